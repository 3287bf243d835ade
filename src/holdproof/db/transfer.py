"""One stream for backup, restore, copy and move: a `TableSnapshot` of a store's tables fills a `Target`.

A snapshot is a database at one moment (SQLite files, schemas of a server) or a backup on disk. A target is a database,
or the files of a backup. A *space* is one database of a store: `kernel`, `membrane` (application tables), `telemetry`.

Rules:
- Rows are streamed as plain tuples that are the same on every database, or as COPY text where both ends have it; no
  table is loaded into memory.
- The source of a move is locked exclusively from the first read to the seal. Killed at any moment before the seal, it
  is unchanged; what was read is its final state.
- The target of a move is marked in its ledger before anything else is in it, and the mark is removed last.
"""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from types import ModuleType
from typing import Protocol

from holdproof.db.backends import is_url, open_database
from holdproof.db.database import Database
from holdproof.db.migrate import MOVE_IN_PROGRESS, shipped
from holdproof.db.row_stream import RowStream
from holdproof.db.sqlite import transfer as files
from holdproof.db.tx import Tx
from holdproof.errors import MissingExtraError

Columns = Mapping[str, list[str]]
"""The columns of each table."""


class TableSnapshot(Protocol):
    """The tables of a store at one moment."""

    spaces: list[str]
    """The spaces that it holds, the kernel first."""

    def ledger(self, space: str) -> dict[str, str]:
        """Return name and digest of every migration of a space."""
        ...

    def tables(self, space: str) -> dict[str, list[str]]:
        """Return every table and its columns, without the database's internal ones."""
        ...

    def count(self, space: str, table: str) -> int:
        """Return how many rows a table has; 0 if only reading them would tell."""
        ...

    def rows(self, space: str, table: str, columns: list[str]) -> RowStream:
        """Return every row, in no particular order."""
        ...

    def counters(self, space: str) -> dict[str, int]:
        """Return the last generated number of each table that numbers its rows."""
        ...


class LockedSource(TableSnapshot, Protocol):
    """A database that is moved: locked exclusively until it is sealed, or released unchanged."""

    def tx(self, space: str) -> Tx:
        """Return a transaction for reading."""
        ...

    def seal(self, to: str) -> None:
        """Mark every space as moved to `to`, the kernel first. MUST be durable when it returns."""
        ...


class Target(Protocol):
    """Where the tables of a snapshot go."""

    def fill(self, space: str, tables: Columns, rows: Mapping[str, RowStream], counters: Mapping[str, int]) -> None:
        """Replace all rows of these tables atomically. MUST be durable when it returns."""
        ...


class DatabaseTarget(Target, Protocol):
    """A database to fill; not locked: the marks in its ledgers keep others from opening it."""

    def ledger(self, space: str) -> dict[str, str] | None:
        """Return name and digest of every ledger entry of a space; None if the space does not exist."""
        ...

    def discard(self, space: str) -> None:
        """Remove a space that a move was filling; AlreadyExistsError for any other. MAY be called if there is none."""
        ...

    def rows(self, space: str, tables: Columns) -> Iterator[tuple[str, RowStream]]:
        """Return each table with its rows, in no particular order."""
        ...

    def tables(self, space: str) -> dict[str, list[str]]:
        """See TableSnapshot."""
        ...

    def remove_mark(self, space: str) -> None:
        """Remove the mark: from here on the space can be opened. MAY be repeated."""
        ...


def open_source(target: str | Path, spaces: Mapping[str, Path]) -> AbstractContextManager[LockedSource]:
    """Lock a database exclusively for reading; `spaces` names those to look for and the files they would be in."""
    if not is_url(target):
        return files.open_source(spaces)
    source: AbstractContextManager[LockedSource] = server("snapshot").open_source(str(target), list(spaces))
    return source


def open_target(target: str | Path, spaces: Mapping[str, Path]) -> DatabaseTarget:
    """Return a database to be filled."""
    if not is_url(target):
        return files.SqliteTarget(spaces)
    database: DatabaseTarget = server("transfer").PostgresTarget(str(target))
    return database


def create_marked(target: str | Path, space: str) -> None:
    """Create a space that is marked before anything else is in it, then apply all migrations."""
    open_database(target, space=space, migrations=[MOVE_IN_PROGRESS]).close()
    open_marked(target, space).close()


def open_marked(target: str | Path, space: str) -> Database:
    """Open a space that is still marked as being filled."""
    return open_database(target, space=space, migrations=[MOVE_IN_PROGRESS, *shipped(space)], read_limit_s=3600.0)


def server(module: str) -> ModuleType:
    """Return a module of `db.postgres`, which is an optional extra; MissingExtraError without its driver."""
    try:
        from holdproof.db.postgres import databases, partitions, roles, snapshot, transfer  # noqa: PLC0415 (an optional extra)
    except ImportError as error:
        raise MissingExtraError("PostgreSQL needs its driver: pip install 'holdproof[postgres]'") from error
    modules = (databases, partitions, roles, snapshot, transfer)
    return {each.__name__.rpartition(".")[2]: each for each in modules}[module]
