"""Snapshots of SQLite files, and files as targets; the contract is in db/transfer.py."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import apsw

from holdproof.db.clock import system_clock, system_random
from holdproof.db.migrate import MOVE_IN_PROGRESS, MOVED, applied
from holdproof.db.row_stream import RowStream
from holdproof.db.sqlite.files import configure, connect, typed_by_disk
from holdproof.db.sqlite.tx import SqliteTx, typed
from holdproof.db.tx import Tx
from holdproof.errors import AlreadyExistsError, BusyError

_TABLES = (
    "SELECT t.name, c.name FROM pragma_table_list t JOIN pragma_table_info(t.name) c"
    " WHERE t.schema = 'main' AND t.type IN ('table', 'view') AND t.name NOT LIKE 'sqlite\\_%' ESCAPE '\\'"
    " ORDER BY t.name, c.cid"
)


class SqliteSnapshot:
    """Files of a store, locked for a move or those of a backup; see TableSnapshot and LockedSource."""

    def __init__(self, connections: Mapping[str, apsw.Connection]) -> None:
        self._connections = connections
        self.spaces = list(connections)

    def ledger(self, space: str) -> dict[str, str]:
        """See TableSnapshot."""
        return applied(self.tx(space))

    def tx(self, space: str) -> Tx:
        """See TableSnapshot."""
        return SqliteTx(self._connections[space], system_clock, system_random)

    def tables(self, space: str) -> dict[str, list[str]]:
        """See TableSnapshot."""
        return _tables(self._connections[space])

    def count(self, space: str, table: str) -> int:
        """See TableSnapshot."""
        return int(self._connections[space].execute(f'SELECT count(*) FROM "{table}"').get)  # noqa: S608

    def rows(self, space: str, table: str, columns: list[str]) -> RowStream:
        """See TableSnapshot."""
        return _rows(self._connections[space], table, columns)

    def counters(self, space: str) -> dict[str, int]:
        """See TableSnapshot."""
        return _counters(self._connections[space])

    def seal(self, to: str) -> None:
        """See TableSnapshot."""
        for connection in self._connections.values():
            tx = SqliteTx(connection, system_clock, system_random)
            if MOVED not in applied(tx):
                connection.execute(
                    "INSERT INTO schema_migrations (name, sha256, applied_at) VALUES (?, ?, ?)", (MOVED, to, tx.now)
                )
            connection.execute("COMMIT")


@contextmanager
def open_source(spaces: Mapping[str, Path]) -> Iterator[SqliteSnapshot]:
    """Lock the existing files exclusively: no other process may have them open, not even to read."""
    with ExitStack() as ends:
        connections: dict[str, apsw.Connection] = {}
        for space, path in spaces.items():
            if path.exists():
                connection = connect(path, busy_s=0, create=False)
                ends.callback(connection.close)
                connections[space] = _lock(connection, path)
        try:
            yield SqliteSnapshot(connections)
        except apsw.Error as error:
            raise typed(error, "the source of the transfer") from error


@contextmanager
def open_files(spaces: Mapping[str, Path]) -> Iterator[SqliteSnapshot]:
    """Read the files of a backup; nobody writes to them."""
    with ExitStack() as ends:
        connections: dict[str, apsw.Connection] = {}
        for space, path in spaces.items():
            if path.exists():
                connections[space] = connect(path, busy_s=10, create=False)
                ends.callback(connections[space].close)
                connections[space].pragma("query_only", True)
        try:
            yield SqliteSnapshot(connections)
        except apsw.Error as error:
            raise typed(error, "the files of the backup") from error


def _lock(connection: apsw.Connection, path: Path) -> apsw.Connection:
    try:
        connection.pragma("locking_mode", "exclusive")
        connection.pragma("synchronous", "full")
        connection.execute("BEGIN EXCLUSIVE").fetchall()
    except apsw.BusyError as error:
        raise BusyError(f"{path} is open elsewhere; close it there first", path=str(path)) from error
    except apsw.Error as error:
        raise typed(error, path) from error
    return connection


class SqliteTarget:
    """The files of a store that is being filled; see DatabaseTarget."""

    def __init__(self, spaces: Mapping[str, Path]) -> None:
        self._paths = spaces

    def ledger(self, space: str) -> dict[str, str] | None:
        """See Target."""
        if not self._paths[space].exists():
            return None
        with self._open(space) as connection:
            # A file without tables was created a moment ago, and counts as missing.
            has_tables = bool(_tables(connection))
            return applied(SqliteTx(connection, system_clock, system_random)) if has_tables else None

    def discard(self, space: str) -> None:
        """See Target."""
        ledger = self.ledger(space)
        if ledger is not None and MOVE_IN_PROGRESS.name not in ledger:
            raise AlreadyExistsError(f"the target is not empty: it has a {space} already", space=space)
        path = self._paths[space]
        for end in ("-wal", "-shm", ""):
            path.with_name(path.name + end).unlink(missing_ok=True)

    def fill(
        self,
        space: str,
        tables: Mapping[str, list[str]],
        rows: Mapping[str, RowStream],
        counters: Mapping[str, int],
    ) -> None:
        """See Target."""
        with self._open(space) as connection:
            configure(connection, busy_s=10)
            # Tables are filled in any order; the rows satisfied every foreign key at their source.
            connection.pragma("foreign_keys", False)
            connection.execute("BEGIN IMMEDIATE")
            for table in tables:
                connection.execute(f'DELETE FROM "{table}" WHERE {_KEEP.get(table, "true")}')  # noqa: S608
            for table, columns in tables.items():
                listed = ", ".join(f'"{name}"' for name in columns)
                marks = ", ".join("?" * len(columns))
                connection.executemany(f'INSERT INTO "{table}" ({listed}) VALUES ({marks})', rows[table])  # noqa: S608
            if counters:
                connection.execute("DELETE FROM sqlite_sequence")
                connection.executemany("INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)", counters.items())
            connection.execute("COMMIT")
            connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)

    def rows(self, space: str, tables: Mapping[str, list[str]]) -> Iterator[tuple[str, RowStream]]:
        """See Target."""
        with self._open(space) as connection:
            for table, columns in tables.items():
                yield table, _rows(connection, table, columns)

    def tables(self, space: str) -> dict[str, list[str]]:
        """See Target."""
        with self._open(space) as connection:
            return _tables(connection)

    def remove_mark(self, space: str) -> None:
        """See Target."""
        with self._open(space) as connection:
            connection.pragma("synchronous", "full")
            connection.execute("DELETE FROM schema_migrations WHERE name = ?", (MOVE_IN_PROGRESS.name,))

    @contextmanager
    def _open(self, space: str) -> Iterator[apsw.Connection]:
        connection = connect(self._paths[space], busy_s=10, create=False)
        try:
            yield connection
        except apsw.Error as error:
            raise typed_by_disk(error, connection, self._paths[space]) from error
        finally:
            connection.close()


_KEEP = {"schema_migrations": f"name <> '{MOVE_IN_PROGRESS.name}'"}


def _tables(connection: apsw.Connection) -> dict[str, list[str]]:
    tables: dict[str, list[str]] = {}
    for table, column in connection.execute(_TABLES):
        tables.setdefault(table, []).append(column)
    return tables


def _rows(connection: apsw.Connection, table: str, columns: list[str]) -> RowStream:
    listed = ", ".join(f'"{name}"' for name in columns)
    return RowStream(lambda: iter(connection.execute(f'SELECT {listed} FROM "{table}"')))  # noqa: S608


def _counters(connection: apsw.Connection) -> dict[str, int]:
    if connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'sqlite_sequence'").get is None:
        return {}
    return {str(name): int(last) for name, last in connection.execute("SELECT name, seq FROM sqlite_sequence")}
