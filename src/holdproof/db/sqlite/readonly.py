"""Read SQLite files of other programs without changing anything in their folder. They may be hostile.

Rules:
- Only regular files: no link is followed, no pipe or device opened.
- Only tables: a view runs any statement, and a virtual table any module.
- No value of more than `_LONGEST_BYTES`, and no step from row to row of more than `_STEP_S`.
"""

import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import apsw
import apsw.sqlite_extra

from holdproof.db.sqlite import functions
from holdproof.db.sqlite.tx import typed
from holdproof.errors import FormatError, NotFoundError, UnavailableError

_COMPANIONS = ("-wal", "-journal")
_LONGEST_BYTES: Final = 64 << 20
_STEP_S: Final = 30.0
_INSTRUCTIONS: Final = 20_000
_TABLE = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ? COLLATE NOCASE AND rootpage > 0"


@contextmanager
def foreign_rows(path: Path, table: str) -> Iterator[tuple[list[str], Iterator[dict[str, Any]]]]:
    """Yield the columns of a table and an iterator of its rows as dicts; text that is not UTF-8 comes as bytes."""
    with _open(path) as connection:
        yield _rows(connection, path, table)


@contextmanager
def foreign_tables(path: Path) -> Iterator[Iterator[tuple[str, Iterator[dict[str, Any]]]]]:
    """Yield every table of a file by name with its rows as in `foreign_rows`; all from one state of the file."""
    with _open(path) as connection:
        query = (
            "SELECT name FROM sqlite_schema WHERE type = 'table' AND rootpage > 0"
            " AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY 1"
        )
        tables = [name for (name,) in connection.execute(query)]
        yield ((name, _rows(connection, path, name)[1]) for name in tables)


@contextmanager
def _open(path: Path) -> Iterator[apsw.Connection]:
    """Open the file as immutable.

    If there is a log or journal (its writer crashed, or is running), a copy of all of them is read instead, since
    recovery would change the original.
    """
    _refuse_special(path)
    with tempfile.TemporaryDirectory(prefix="holdproof-foreign-") as aside:
        target = path
        options = "mode=ro&immutable=1"
        try:
            companions = [Path(f"{path}{end}") for end in _COMPANIONS if os.path.lexists(f"{path}{end}")]
            for each in companions:
                _refuse_special(each)
            if any(each.stat().st_size for each in companions):
                target = Path(aside, path.name)
                options = "mode=rw"
                for each in (path, *companions):
                    shutil.copyfile(each, Path(aside, each.name))
        except OSError as error:
            raise UnavailableError(f"cannot read {path}: {error.strerror}", path=str(path)) from error
        flags = apsw.SQLITE_OPEN_URI | (apsw.SQLITE_OPEN_READONLY if target == path else apsw.SQLITE_OPEN_READWRITE)
        try:
            with closing(apsw.Connection(f"file:{quote(str(target))}?{options}", flags=flags)) as connection:
                # Expressions of a foreign schema may call no function with an effect.
                connection.config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0)
                connection.limit(apsw.SQLITE_LIMIT_LENGTH, _LONGEST_BYTES)
                functions.install(connection)
                yield connection
        except apsw.Error as error:
            raise typed(error, path) from error


def _refuse_special(path: Path) -> None:
    """Raise unless a path is a regular file itself."""
    try:
        mode = path.lstat().st_mode
    except OSError as error:
        raise NotFoundError(f"{path}: no such file", path=str(path)) from error
    if not stat.S_ISREG(mode):
        raise FormatError(f"{path} is not a regular file: links, pipes and devices are not read", path=str(path))


def _rows(connection: apsw.Connection, path: Path, table: str) -> tuple[list[str], Iterator[dict[str, Any]]]:
    if not connection.execute(_TABLE, (table,)).fetchall():
        raise FormatError(f"{path} has no table {table}", path=str(path), table=table)
    columns = [str(name) for (name,) in connection.execute("SELECT name FROM pragma_table_info(?)", (table,))]
    if not columns:
        raise FormatError(f"{path} has no table {table}", path=str(path), table=table)
    names = ['"{}"'.format(name.replace('"', '""')) for name in columns]
    # Text is fetched as its bytes: a driver would refuse the whole row for one byte that is not UTF-8.
    fetched = "typeof({0}), CASE typeof({0}) WHEN 'text' THEN CAST({0} AS BLOB) ELSE {0} END"
    parts = ", ".join(map(fetched.format, names))
    order = "" if _without_rowid(connection, table) else " ORDER BY rowid"
    quoted = '"{}"'.format(table.replace('"', '""'))
    cursor = connection.execute(f"SELECT {parts} FROM {quoted}{order}")  # noqa: S608 (the names were quoted)
    steps = _stepwise(connection, cursor)
    return columns, (dict(zip(columns, map(_value, row[::2], row[1::2]), strict=True)) for row in steps)


def _stepwise(connection: apsw.Connection, cursor: Iterable[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    """Yield rows; ReadLimitError, by interruption, if one of them takes too long."""
    until = time.monotonic() + _STEP_S

    def overdue() -> bool:
        return time.monotonic() > until

    # One handler for each reading: several tables of a file may be read in turns.
    handler = object()
    connection.set_progress_handler(overdue, _INSTRUCTIONS, id=handler)
    try:
        for row in cursor:
            yield row
            until = time.monotonic() + _STEP_S
    finally:
        # A reader that stops early leaves this generator to be closed after its connection.
        with suppress(apsw.ConnectionClosedError):
            connection.set_progress_handler(None, id=handler)


def _without_rowid(connection: apsw.Connection, table: str) -> bool:
    with suppress(apsw.SQLError):
        quoted = '"{}"'.format(table.replace('"', '""'))
        connection.execute(f"SELECT rowid FROM {quoted} LIMIT 1").fetchall()  # noqa: S608
        return False
    return True


def _value(kind: str, value: Any) -> Any:
    if kind != "text":
        return value
    with suppress(UnicodeDecodeError):
        return value.decode()
    return value
