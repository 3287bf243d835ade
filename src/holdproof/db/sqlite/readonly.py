"""Read SQLite files of other programs without changing anything in their folder."""

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

_COMPANIONS = ("-wal", "-journal")


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
            "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY 1"
        )
        tables = [name for (name,) in connection.execute(query)]
        yield ((name, _rows(connection, path, name)[1]) for name in tables)


@contextmanager
def _open(path: Path) -> Iterator[apsw.Connection]:
    """Open the file as immutable.

    If there is a log or journal (its writer crashed, or is running), a copy of all of them is read instead, since
    recovery would change the original.
    """
    if not path.is_file():
        raise NotFoundError(f"{path}: no such file", path=str(path))
    with tempfile.TemporaryDirectory(prefix="holdproof-foreign-") as aside:
        target = path
        options = "mode=ro&immutable=1"
        try:
            companions = [Path(f"{path}{end}") for end in _COMPANIONS if Path(f"{path}{end}").exists()]
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
                yield connection
        except apsw.Error as error:
            raise typed(error, path) from error


def _rows(connection: apsw.Connection, path: Path, table: str) -> tuple[list[str], Iterator[dict[str, Any]]]:
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
