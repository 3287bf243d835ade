"""A transaction on an apsw connection, and the translation of apsw's errors."""

import errno
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from math import inf
from typing import Any, ClassVar, Final

import apsw
import apsw.sqlite_extra

from holdproof.db.clock import Clock, Random
from holdproof.db.sql import Dialect, Query, first_word, kind_of, numbered, statements
from holdproof.db.sqlite import functions
from holdproof.db.sqlite.authorizer import LONGEST_BYTES, allows, dependent
from holdproof.db.sqlite.page_checksums import tolerated
from holdproof.db.tx import Refusal, Row, SqlResult, Tx, bounded_rows
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

# The first match counts.
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
"""System errors that mean no space: on the disk, in the user's quota, or for the size of a file."""


APPLICATION_SQL: Final = ""
"""Where an error is, for SQL of applications: whoever wrote the statement has it before them."""


def _place(where: object) -> str:
    return f" ({where})" if where else ""


def typed(error: apsw.Error, where: object, connection: apsw.Connection | None = None) -> HoldproofError:
    """Return Holdproof's error for one of apsw's; damage is reported by table, since users do not know the query.

    SQLite reports an exceeded quota as a general I/O error; the connection knows the system's own error number.
    """
    if connection is not None and isinstance(error, apsw.IOError) and connection.system_errno in FULL:
        return DiskFullError(f"no space left on the disk{_place(where)}", sqlite=type(error).__name__)
    if str(error).startswith("not authorized") or str(error).endswith(
        "is prohibited"
    ):  # apsw raises these as SQL errors
        return ForbiddenSqlError(f"{error}{_place(where)}")
    tables = where.tables if isinstance(where, Query) else ()
    if getattr(error, "extendedresult", 0) == apsw.SQLITE_IOERR_DATA:
        what = "a page of the database is damaged, or another SQLite program wrote it"
        return CorruptError(f"{what}{_place(', '.join(tables) or where)}", tables=tables)
    kind = next((kind for theirs, kind in _TYPED if isinstance(error, theirs)), DatabaseError)
    file = "" if connection is None else connection.filename
    if kind is ReadOnlyError and file and not os.access(file, os.W_OK):
        # Whatever the statement was: it is the file that cannot be written.
        return ReadOnlyError(f"{file} cannot be written", sqlite=type(error).__name__, tables=tables)
    place = ", ".join(tables) or where if kind is CorruptError else where
    return kind(f"{error}{_place(place)}", sqlite=type(error).__name__, tables=tables)


_SQL_LIMIT_S = 30.0
_SQL_LIMITS: Final = {
    apsw.SQLITE_LIMIT_LENGTH: LONGEST_BYTES,
    apsw.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: functions.LONGEST_PATTERN,
}
_UNFIT = (TypeError, OverflowError, UnicodeEncodeError)


def unfit(error: Exception, where: object) -> HoldproofError:
    """Return the error for a parameter that no column can store."""
    return InvalidInputError(f"a parameter does not fit a column: {error}{_place(where)}")


class SqliteTx(Tx):
    """A transaction on one apsw connection."""

    dialect: ClassVar[Dialect] = "sqlite"
    __slots__ = ("_changes", "_connection", "_guarded", "_many", "_run", "_until", "schema_touched")

    def __init__(self, connection: apsw.Connection, clock: Clock, random: Random) -> None:
        super().__init__(clock, random)
        cursor = connection.cursor()
        # Bound methods: looked up once, called for every statement.
        self._run = cursor.execute
        self._many = cursor.executemany
        self._changes = connection.changes
        self._connection = connection
        # Whether the authorizer is installed, and until when application SQL may run; inf while none does.
        self._guarded = False
        self._until = inf
        self.schema_touched = False

    def execute(self, query: Query, /, *, expect: int | None = None, **params: Any) -> None:
        """See Tx."""
        try:
            cursor = self._run(query.sqlite, query.bind(params))
            if query.answers:
                cursor.fetchall()  # unread rows would keep the statement open, and the commit would fail
        except apsw.Error as error:
            raise self._translate(error, query) from error
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
            raise self._translate(error, query) from error
        except _UNFIT as error:
            raise self._break(unfit(error, query)) from error

    def many(self, query: Query, rows: Iterable[Mapping[str, Any]], /) -> None:
        """See Tx."""
        try:
            self._many(query.sqlite, map(query.bind, rows)).fetchall()
        except apsw.Error as error:
            raise self._translate(error, query) from error
        except _UNFIT as error:
            raise self._break(unfit(error, query)) from error

    def script(self, text: str, /) -> None:
        """See Tx."""
        self.schema_touched = True
        try:
            self._run(text).fetchall()  # to the end: unread rows would stop the script
        except apsw.Error as error:
            raise self._translate(error, "script") from error

    def split(self, text: str, /) -> Iterator[str]:
        """See Tx; the semicolons inside a trigger do not end it.

        Each statement ends in a semicolon and none of Holdproof's does, so the statement cache cannot confuse them.
        """
        statement = ""
        for part in statements(text):
            statement += f"{part};"
            if apsw.complete(statement):
                yield statement
                statement = ""
        if statement:
            yield statement

    def run_statement(self, statement: str, params: Mapping[str, Any], /) -> SqlResult:
        """See Tx."""
        if not self._guarded:
            self._guarded = True
            self._connection.set_authorizer(self._decide)
            self._connection.set_progress_handler(self._overdue, 20_000, id="application SQL")
            functions.install(self._connection)
        self._until = time.monotonic() + _SQL_LIMIT_S
        previous = {limit: self._connection.limit(limit, value) for limit, value in _SQL_LIMITS.items()}
        try:
            result = self._run_guarded(statement, params)
        finally:
            self._until = inf
            for limit, value in previous.items():
                self._connection.limit(limit, value)
        if kind_of(statement) == "other" and (reason := dependent(self._connection)) is not None:
            message = f"{reason} depends on a table of Holdproof's; use tables of your own"
            raise self._break(ForbiddenSqlError(message, statement=first_word(statement)))
        return result

    def _decide(self, action: int, first: str | None, second: str | None, *_: str | None) -> int:
        return apsw.SQLITE_OK if self._until == inf or allows(action, first, second) else apsw.SQLITE_DENY

    def _overdue(self) -> bool:
        return time.monotonic() > self._until

    def _run_guarded(self, statement: str, params: Mapping[str, Any]) -> SqlResult:
        before = self._connection.total_changes()
        self.schema_touched |= kind_of(statement) == "other"
        values = {name: params.get(name) for name in numbered(statement, "?")[1]}
        try:
            cursor = self._run(statement, values)
            columns = _columns(cursor)
            rows = bounded_rows(cursor)
        except apsw.Error as error:
            raise self._translate(error, APPLICATION_SQL) from error
        except ReadLimitError as error:
            raise self._break(error) from None
        except (*_UNFIT, KeyError) as error:
            raise self._break(unfit(error, APPLICATION_SQL)) from error
        return SqlResult(columns, rows, 0 if self._connection.total_changes() == before else self._changes())

    def _translate(self, error: apsw.Error, where: object) -> HoldproofError:
        """Return the typed error, after which the operation fails; a page of a foreign writer asks to run it again."""
        return self._break(tolerated(error, self._connection) or typed(error, where, self._connection))

    def _break(self, error: HoldproofError) -> HoldproofError:
        self.broken = error
        return error


def _columns(cursor: apsw.Cursor) -> tuple[str, ...]:
    """Return the column names of a result."""
    try:
        return tuple(name for name, *_ in cursor.get_description())
    except apsw.ExecutionCompleteError:  # a result without rows is complete at once
        return ()
