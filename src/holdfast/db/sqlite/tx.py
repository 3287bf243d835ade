"""A transaction on an apsw connection, and our errors for apsw's."""

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import apsw
import apsw.sqlite_extra

from holdfast.db.clock import Clock, Random
from holdfast.db.sql import Dialect, Query
from holdfast.db.tx import Row, Tx
from holdfast.errors import (
    BusyError,
    ConstraintError,
    CorruptError,
    DatabaseError,
    DiskFullError,
    ExpectationError,
    ForeignFileError,
    HoldfastError,
    InvalidInputError,
    QueryError,
    ReadLimitError,
    ReadOnlyError,
    UnavailableError,
)

_TYPED: list[tuple[type[apsw.Error], type[HoldfastError]]] = [
    (apsw.ConstraintError, ConstraintError),
    (apsw.BusyError, BusyError),
    (apsw.LockedError, BusyError),
    (apsw.FullError, DiskFullError),
    (apsw.ReadOnlyError, ReadOnlyError),
    (apsw.CorruptError, CorruptError),
    (apsw.NotADBError, ForeignFileError),
    (apsw.CantOpenError, UnavailableError),
    (apsw.PermissionsError, UnavailableError),
    (apsw.IOError, UnavailableError),
    (apsw.InterruptError, ReadLimitError),
    (apsw.TooBigError, InvalidInputError),
    (apsw.SQLError, QueryError),
    (apsw.BindingsError, QueryError),
    (apsw.RangeError, QueryError),
]


def typed(error: apsw.Error, where: object) -> HoldfastError:
    """Our error for one of apsw's; damage is told by tables, since whoever meets it did not write the query."""
    tables = where.tables if isinstance(where, Query) else ()
    if getattr(error, "extendedresult", 0) == apsw.SQLITE_IOERR_DATA:
        return CorruptError(f"a page of the database is damaged ({', '.join(tables) or where})", tables=tables)
    ours = next((ours for theirs, ours in _TYPED if isinstance(error, theirs)), DatabaseError)
    named = ", ".join(tables) or where if ours is CorruptError else where
    return ours(f"{error} ({named})", sqlite=type(error).__name__, tables=tables)


_UNFIT = (TypeError, OverflowError, UnicodeEncodeError)


def unfit(error: Exception, where: object) -> HoldfastError:
    """Our error for a parameter that no column can hold."""
    return InvalidInputError(f"a parameter does not fit a column: {error} ({where})")


class SqliteTx(Tx):
    """A transaction on one apsw connection."""

    dialect: ClassVar[Dialect] = "sqlite"
    __slots__ = ("_changes", "_many", "_run", "schema_touched")

    def __init__(self, connection: apsw.Connection, clock: Clock, random: Random) -> None:
        super().__init__(clock, random)
        cursor = connection.cursor()
        self._run, self._many, self._changes = cursor.execute, cursor.executemany, connection.changes
        self.schema_touched = False

    def execute(self, query: Query, /, *, expect: int | None = None, **params: Any) -> None:
        """See Tx."""
        try:
            cursor = self._run(query.sqlite, query.bind(params))
            if query.answers:
                cursor.fetchall()  # an unread answer would keep the statement, and with it the commit, waiting
        except apsw.Error as error:
            raise self._break(typed(error, query)) from error
        except _UNFIT as error:
            raise self._break(unfit(error, query)) from error
        if expect is None:
            if query.kind == "other":
                self.schema_touched = True
        elif self._changes() != expect:
            raise self._break(ExpectationError(f"{query} touched {self._changes()} rows, expected {expect}"))

    def count(self, query: Query, /, **params: Any) -> int:
        """See Tx."""
        self.execute(query, **params)
        return self._changes()

    def fetch(self, query: Query, params: Mapping[str, Any], /) -> list[Row]:
        """See Tx."""
        try:
            return self._run(query.sqlite, query.bind(params)).fetchall()
        except apsw.Error as error:
            raise self._break(typed(error, query)) from error
        except _UNFIT as error:
            raise self._break(unfit(error, query)) from error

    def many(self, query: Query, rows: Iterable[Mapping[str, Any]], /) -> None:
        """See Tx."""
        try:
            self._many(query.sqlite, map(query.bind, rows)).fetchall()
        except apsw.Error as error:
            raise self._break(typed(error, query)) from error
        except _UNFIT as error:
            raise self._break(unfit(error, query)) from error

    def script(self, text: str, /) -> None:
        """See Tx."""
        self.schema_touched = True
        try:
            self._run(text).fetchall()  # to the end: a statement with rows would stop the script
        except apsw.Error as error:
            raise self._break(typed(error, "script")) from error

    def _break(self, error: HoldfastError) -> HoldfastError:
        self.broken = error
        return error
