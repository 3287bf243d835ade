"""A transaction on an apsw connection, and our errors for apsw's."""

import errno
import time
from collections.abc import Iterable, Iterator, Mapping
from math import inf
from typing import Any, ClassVar, Final

import apsw
import apsw.sqlite_extra

from holdproof.db.clock import Clock, Random
from holdproof.db.sql import Dialect, Query, kind_of, numbered, statements
from holdproof.db.sqlite.authorizer import LONGEST_BYTES, allows, lays_a_trap
from holdproof.db.tx import Answer, Refusal, Row, Tx, bounded_rows
from holdproof.errors import (
    BusyError,
    ConstraintError,
    CorruptError,
    DatabaseError,
    DiskFullError,
    ExpectationError,
    ForbiddenSqlError,
    ForeignFileError,
    HoldproofError,
    InvalidInputError,
    QueryError,
    ReadLimitError,
    ReadOnlyError,
    UnavailableError,
)

_TYPED: list[tuple[type[apsw.Error], type[HoldproofError]]] = [
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


FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""What a system says where no room is left: on the disk, for the user, or for the file."""


def typed(error: apsw.Error, where: object, connection: apsw.Connection | None = None) -> HoldproofError:
    """Our error for one of apsw's; damage is told by tables, since whoever meets it did not write the query.

    SQLite calls a quota, or a limit on files, trouble with the disk; what the system said is known to the connection.
    """
    if connection is not None and isinstance(error, apsw.IOError) and connection.system_errno in FULL:
        return DiskFullError(f"no room on the disk ({where})", sqlite=type(error).__name__)
    if str(error).startswith("not authorized") or str(error).endswith("is prohibited"):  # told as errors of the text
        return ForbiddenSqlError(f"{error} ({where})")
    tables = where.tables if isinstance(where, Query) else ()
    if getattr(error, "extendedresult", 0) == apsw.SQLITE_IOERR_DATA:
        return CorruptError(f"a page of the database is damaged ({', '.join(tables) or where})", tables=tables)
    ours = next((ours for theirs, ours in _TYPED if isinstance(error, theirs)), DatabaseError)
    named = ", ".join(tables) or where if ours is CorruptError else where
    return ours(f"{error} ({named})", sqlite=type(error).__name__, tables=tables)


_ASK_LIMIT_S = 30.0
_UNFIT = (TypeError, OverflowError, UnicodeEncodeError)


def unfit(error: Exception, where: object) -> HoldproofError:
    """Our error for a parameter that no column can hold."""
    return InvalidInputError(f"a parameter does not fit a column: {error} ({where})")


class SqliteTx(Tx):
    """A transaction on one apsw connection."""

    dialect: ClassVar[Dialect] = "sqlite"
    __slots__ = ("_changes", "_connection", "_guarded", "_many", "_run", "_until", "schema_touched")

    def __init__(self, connection: apsw.Connection, clock: Clock, random: Random) -> None:
        super().__init__(clock, random)
        cursor = connection.cursor()
        self._run, self._many, self._changes = cursor.execute, cursor.executemany, connection.changes
        self._connection, self._guarded, self._until = connection, False, inf
        self.schema_touched = False

    def execute(self, query: Query, /, *, expect: int | None = None, **params: Any) -> None:
        """See Tx."""
        try:
            cursor = self._run(query.sqlite, query.bind(params))
            if query.answers:
                cursor.fetchall()  # an unread answer would keep the statement, and with it the commit, waiting
        except apsw.Error as error:
            raise self._break(typed(error, query, self._connection)) from error
        except _UNFIT as error:
            raise self._break(unfit(error, query)) from error
        if expect is None:
            if query.kind == "other":
                self.schema_touched = True
        elif self._changes() != expect:
            raise self._break(ExpectationError(f"{query} touched {self._changes()} rows, expected {expect}"))

    def guard(self, query: Query, refusal: Refusal, /, **params: Any) -> None:
        """See Tx."""
        self.execute(query, **params)
        if self._changes() != 1:
            raise self._break(refusal(f"{query} touched {self._changes()} rows, expected 1"))

    def count(self, query: Query, /, **params: Any) -> int:
        """See Tx."""
        self.execute(query, **params)
        return self._changes()

    def fetch(self, query: Query, params: Mapping[str, Any], /) -> list[Row]:
        """See Tx."""
        try:
            return self._run(query.sqlite, query.bind(params)).fetchall()
        except apsw.Error as error:
            raise self._break(typed(error, query, self._connection)) from error
        except _UNFIT as error:
            raise self._break(unfit(error, query)) from error

    def many(self, query: Query, rows: Iterable[Mapping[str, Any]], /) -> None:
        """See Tx."""
        try:
            self._many(query.sqlite, map(query.bind, rows)).fetchall()
        except apsw.Error as error:
            raise self._break(typed(error, query, self._connection)) from error
        except _UNFIT as error:
            raise self._break(unfit(error, query)) from error

    def script(self, text: str, /) -> None:
        """See Tx."""
        self.schema_touched = True
        try:
            self._run(text).fetchall()  # to the end: a statement with rows would stop the script
        except apsw.Error as error:
            raise self._break(typed(error, "script", self._connection)) from error

    def split(self, text: str, /) -> Iterator[str]:
        """See Tx; a trigger keeps the semicolons inside it.

        Each statement ends in a semicolon and none of ours does, so the statement cache never takes one for the other.
        """
        begun = ""
        for part in statements(text):
            begun += f"{part};"
            if apsw.complete(begun):
                yield begun
                begun = ""
        if begun:
            yield begun

    def ask_one(self, statement: str, params: Mapping[str, Any], /) -> Answer:
        """See Tx."""
        if lays_a_trap(statement):
            raise ForbiddenSqlError("no trigger may speak of what Holdproof keeps for itself", statement="CREATE")
        if not self._guarded:
            self._guarded = True
            self._connection.set_authorizer(self._decide)
            self._connection.set_progress_handler(self._overdue, 20_000, id="ask")
        self._until = time.monotonic() + _ASK_LIMIT_S
        longest = self._connection.limit(apsw.SQLITE_LIMIT_LENGTH, LONGEST_BYTES)
        try:
            return self._ask(statement, params)
        finally:
            self._until = inf
            self._connection.limit(apsw.SQLITE_LIMIT_LENGTH, longest)

    def _decide(self, action: int, first: str | None, second: str | None, *_: str | None) -> int:
        return apsw.SQLITE_OK if self._until == inf or allows(action, first, second) else apsw.SQLITE_DENY

    def _overdue(self) -> bool:
        return time.monotonic() > self._until

    def _ask(self, statement: str, params: Mapping[str, Any]) -> Answer:
        before = self._connection.total_changes()
        self.schema_touched |= kind_of(statement) == "other"
        bound = {name: params.get(name) for name in numbered(statement, "?")[1]}
        try:
            cursor = self._run(statement, bound)
            columns = _columns(cursor)
            rows = bounded_rows(cursor)
        except apsw.Error as error:
            raise self._break(typed(error, "statement", self._connection)) from error
        except ReadLimitError as error:
            raise self._break(error) from None
        except (*_UNFIT, KeyError) as error:
            raise self._break(unfit(error, "statement")) from error
        return Answer(columns, rows, 0 if self._connection.total_changes() == before else self._changes())

    def _break(self, error: HoldproofError) -> HoldproofError:
        self.broken = error
        return error


def _columns(cursor: apsw.Cursor) -> tuple[str, ...]:
    """The names of an answer; one without rows is over before anybody can ask."""
    try:
        return tuple(column[0] for column in cursor.get_description())
    except apsw.ExecutionCompleteError:
        return ()
