"""Moving the spaces of a store from one database to another, whatever either is made of.

Rules:
- While a database is being left nobody else is in it. What is read is what is there at the end, and the seal is part of
  the same hold on it: killed at any moment before the seal, the source is as it was.
- A space that is being filled is marked in its ledger before anything else is in it, and the mark goes last.
- Rows pass one by one, as plain tuples that are the same on every database; nothing holds a table in memory.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from types import ModuleType
from typing import Protocol

from holdproof.db.backends import is_url, open_database
from holdproof.db.database import Database
from holdproof.db.migrate import ARRIVING, shipped
from holdproof.db.sqlite import transfer as files
from holdproof.db.tx import Row, Tx
from holdproof.errors import MissingExtraError

Columns = Mapping[str, list[str]]
"""The columns of each table."""


class TransferSource(Protocol):
    """A database that is being left; held alone until the seal, or until it is let go as it was."""

    spaces: list[str]
    """Which of the spaces asked for are there, the kernel first."""

    def ledger(self, space: str) -> dict[str, str]:
        """Name and digest of every entry in the ledger of a space."""
        ...

    def tx(self, space: str) -> Tx:
        """For reading."""
        ...

    def tables(self, space: str) -> dict[str, list[str]]:
        """Every table and its columns; what a database keeps for itself is left out."""
        ...

    def count(self, space: str, table: str) -> int:
        """How many rows a table has."""
        ...

    def rows(self, space: str, table: str, columns: list[str]) -> Iterator[Row]:
        """Every row, in no order that means anything."""
        ...

    def counters(self, space: str) -> dict[str, int]:
        """The last number that each table with numbers of its own has given."""
        ...

    def seal(self, to: str) -> None:
        """Say for good that the store goes on elsewhere; the kernel first. Durable when it returns."""
        ...


class TransferTarget(Protocol):
    """A database that is being filled; not held: the marks in its ledgers keep others out."""

    def ledger(self, space: str) -> dict[str, str] | None:
        """Name and digest of every entry in the ledger of a space; None where nothing is."""
        ...

    def discard(self, space: str) -> None:
        """Remove a space that a copy was filling; AlreadyExistsError for any other. Harmless where there is none."""
        ...

    def fill(self, space: str, tables: Columns, rows: Mapping[str, Iterable[Row]], counters: Mapping[str, int]) -> None:
        """Replace all rows of these tables, all or nothing; the mark stays. Durable when it returns."""
        ...

    def rows(self, space: str, tables: Columns) -> Iterator[tuple[str, Iterator[Row]]]:
        """Each table with every row of it, in no order that means anything."""
        ...

    def tables(self, space: str) -> dict[str, list[str]]:
        """See TransferSource."""
        ...

    def settle(self, space: str) -> None:
        """Take the mark away: from here on the space counts. Harmless if repeated."""
        ...


def leave(target: str | Path, spaces: Mapping[str, Path]) -> AbstractContextManager[TransferSource]:
    """Hold a database alone; `spaces` are those to look for, and in which files they would be."""
    if not is_url(target):
        return files.leave(spaces)
    held: AbstractContextManager[TransferSource] = _server().leave(str(target), list(spaces))
    return held


def arrive(target: str | Path, spaces: Mapping[str, Path]) -> TransferTarget:
    """A database to be filled."""
    if not is_url(target):
        return files.Arriving(spaces)
    filling: TransferTarget = _server().Arriving(str(target))
    return filling


def begin(target: str | Path, space: str) -> None:
    """Make a space that is marked before anything else is in it, then give it our tables."""
    open_database(target, space=space, migrations=[ARRIVING]).close()
    filled(target, space).close()


def filled(target: str | Path, space: str) -> Database:
    """A space under its mark, opened."""
    return open_database(target, space=space, migrations=[ARRIVING, *shipped(space)], read_limit_s=3600.0)


def _server() -> ModuleType:
    try:
        from holdproof.db.postgres import transfer  # noqa: PLC0415 (an optional extra)
    except ImportError as error:
        raise MissingExtraError("PostgreSQL needs its driver: pip install 'holdproof[postgres]'") from error
    return transfer
