"""Transfer the spaces of a store from one database to another, SQLite or PostgreSQL on either side.

Rules:
- The source is locked exclusively from the first read to the seal. Killed at any moment before the seal, it is
  unchanged; what was read is its final state.
- The target is marked in its ledger before anything else is in it, and the mark is removed last.
- Rows are streamed as plain tuples that are the same on every database; no table is loaded into memory.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from types import ModuleType
from typing import Protocol

from holdproof.db.backends import is_url, open_database
from holdproof.db.database import Database
from holdproof.db.migrate import COPY_IN_PROGRESS, shipped
from holdproof.db.sqlite import transfer as files
from holdproof.db.tx import Row, Tx
from holdproof.errors import MissingExtraError

Columns = Mapping[str, list[str]]
"""The columns of each table."""


class TransferSource(Protocol):
    """A database to read from; locked exclusively until it is sealed, or released unchanged."""

    spaces: list[str]
    """The requested spaces that exist, the kernel first."""

    def ledger(self, space: str) -> dict[str, str]:
        """Return name and digest of every ledger entry of a space."""
        ...

    def tx(self, space: str) -> Tx:
        """Return a transaction for reading."""
        ...

    def tables(self, space: str) -> dict[str, list[str]]:
        """Return every table and its columns, without the database's internal ones."""
        ...

    def count(self, space: str, table: str) -> int:
        """Return how many rows a table has."""
        ...

    def rows(self, space: str, table: str, columns: list[str]) -> Iterator[Row]:
        """Stream every row, in no particular order."""
        ...

    def counters(self, space: str) -> dict[str, int]:
        """Return the last generated number of each table that numbers its rows."""
        ...

    def seal(self, to: str) -> None:
        """Mark every space as moved to `to`, the kernel first. MUST be durable when it returns."""
        ...


class TransferTarget(Protocol):
    """A database to fill; not locked: the marks in its ledgers keep others from opening it."""

    def ledger(self, space: str) -> dict[str, str] | None:
        """Return name and digest of every ledger entry of a space; None if the space does not exist."""
        ...

    def discard(self, space: str) -> None:
        """Remove a space that a copy was filling; AlreadyExistsError for any other. MAY be called if there is none."""
        ...

    def fill(self, space: str, tables: Columns, rows: Mapping[str, Iterable[Row]], counters: Mapping[str, int]) -> None:
        """Replace all rows of these tables atomically; the mark stays. MUST be durable when it returns."""
        ...

    def rows(self, space: str, tables: Columns) -> Iterator[tuple[str, Iterator[Row]]]:
        """Stream each table with its rows, in no particular order."""
        ...

    def tables(self, space: str) -> dict[str, list[str]]:
        """See TransferSource."""
        ...

    def remove_mark(self, space: str) -> None:
        """Remove the mark: from here on the space can be opened. MAY be repeated."""
        ...


def open_source(target: str | Path, spaces: Mapping[str, Path]) -> AbstractContextManager[TransferSource]:
    """Lock a database exclusively for reading; `spaces` names those to look for and the files they would be in."""
    if not is_url(target):
        return files.open_source(spaces)
    source: AbstractContextManager[TransferSource] = _server().open_source(str(target), list(spaces))
    return source


def open_target(target: str | Path, spaces: Mapping[str, Path]) -> TransferTarget:
    """Return a database to be filled."""
    if not is_url(target):
        return files.SqliteTarget(spaces)
    server: TransferTarget = _server().PostgresTarget(str(target))
    return server


def create_marked(target: str | Path, space: str) -> None:
    """Create a space that is marked before anything else is in it, then apply all migrations."""
    open_database(target, space=space, migrations=[COPY_IN_PROGRESS]).close()
    open_marked(target, space).close()


def open_marked(target: str | Path, space: str) -> Database:
    """Open a space that is still marked as being filled."""
    return open_database(target, space=space, migrations=[COPY_IN_PROGRESS, *shipped(space)], read_limit_s=3600.0)


def _server() -> ModuleType:
    try:
        from holdproof.db.postgres import transfer  # noqa: PLC0415 (an optional extra)
    except ImportError as error:
        raise MissingExtraError("PostgreSQL needs its driver: pip install 'holdproof[postgres]'") from error
    return transfer
