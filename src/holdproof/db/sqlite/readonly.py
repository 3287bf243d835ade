"""Reading a SQLite file that is not ours, without leaving a trace in its folder."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import apsw
import apsw.sqlite_extra

from holdproof.db.sqlite.tx import typed
from holdproof.errors import FormatError, NotFoundError, UnavailableError

_BESIDE = ("-wal", "-journal")


@contextmanager
def foreign_rows(path: Path, table: str) -> Iterator[tuple[list[str], Iterator[dict[str, Any]]]]:
    """The columns of a table and its rows as dicts, read one by one; text that is not UTF-8 arrives as bytes."""
    with _opened(path) as connection:
        yield _rows(connection, path, table)


@contextmanager
def foreign_tables(path: Path) -> Iterator[Iterator[tuple[str, Iterator[dict[str, Any]]]]]:
    """Every table of a file by name, with its rows as in `foreign_rows`; all of one state of the file."""
    with _opened(path) as connection:
        named = (
            "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY 1"
        )
        tables = [name for (name,) in connection.execute(named)]
        yield ((name, _rows(connection, path, name)[1]) for name in tables)


@contextmanager
def _opened(path: Path) -> Iterator[apsw.Connection]:
    """The file opened as immutable.

    If a log or journal lies beside it (its writer crashed, or is at work), a copy of all of them is read instead, since
    recovering the original would change it.
    """
    if not path.is_file():
        raise NotFoundError(f"{path}: no such file", path=str(path))
    with tempfile.TemporaryDirectory(prefix="holdproof-foreign-") as aside:
        target, options = path, "mode=ro&immutable=1"
        try:
            beside = [Path(f"{path}{end}") for end in _BESIDE if Path(f"{path}{end}").exists()]
            if any(each.stat().st_size for each in beside):
                target, options = Path(aside, path.name), "mode=rw"
                for each in (path, *beside):
                    shutil.copyfile(each, Path(aside, each.name))
        except OSError as error:
            raise UnavailableError(f"cannot read {path}: {error.strerror}", path=str(path)) from error
        flags = apsw.SQLITE_OPEN_URI | (apsw.SQLITE_OPEN_READONLY if target == path else apsw.SQLITE_OPEN_READWRITE)
        try:
            with closing(apsw.Connection(f"file:{quote(str(target))}?{options}", flags=flags)) as connection:
                yield connection
        except apsw.Error as error:
            raise typed(error, path) from error


def _rows(connection: apsw.Connection, path: Path, table: str) -> tuple[list[str], Iterator[dict[str, Any]]]:
    columns = [row[1] for row in connection.execute("SELECT * FROM pragma_table_info(?)", (table,))]
    if not columns:
        raise FormatError(f"{path} has no table {table}", path=str(path), table=table)
    names = ['"{}"'.format(name.replace('"', '""')) for name in columns]
    # Text is fetched as its bytes: a driver would refuse the whole row for one byte that is not UTF-8.
    fetched = "typeof({0}), CASE typeof({0}) WHEN 'text' THEN CAST({0} AS BLOB) ELSE {0} END"
    parts = ", ".join(map(fetched.format, names))
    order = "" if _without_rowid(connection, table) else " ORDER BY rowid"
    quoted = '"{}"'.format(table.replace('"', '""'))
    cursor = connection.execute(f"SELECT {parts} FROM {quoted}{order}")  # noqa: S608 (the names were quoted)
    return columns, (dict(zip(columns, map(_value, row[::2], row[1::2]), strict=True)) for row in cursor)


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
