"""Registry of what can be erased: each domain registers how its records are found and removed for `upkeep.erase`.

    erasable.register(Erasable("battles", find=…, at=…, remove=…))

Rules:
- `remove` deletes the whole row, salt included: what is left is the leaf, which nobody can guess back from.
- A removed record's files are named relative to the data folder and are removed once the erasure is committed.
- All three are functions of a transaction and may run again.
- Rows of a subject that no leaf covers (`register_rows`) go with it too; they are counted, and leave nothing behind.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from holdproof.db import Tx
from holdproof.errors import InvalidInputError


class Removed(NamedTuple):
    """A record that is gone: its handle and newest version in the log, its files under the data folder."""

    leaf_id: str
    leaf_ver: int
    files: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Erasable:
    """How records of one table are erased."""

    table: str
    find: Callable[[Tx, str], list[str]]
    """The ids of all records labelled with a subject's handle."""
    at: Callable[[Tx, str], str | None]
    """The id of the record with that leaf handle, None if it is not (or no longer) there."""
    remove: Callable[[Tx, str], Removed | None]
    """Delete the record with that id; None if there is none."""


ERASABLE: Final[dict[str, Erasable]] = {}


def register(domain: Erasable) -> Erasable:
    """Make a table's records erasable."""
    ERASABLE[domain.table] = domain
    return domain


def of(table: str) -> Erasable:
    """Return how records of that table are erased; InvalidInputError for a table that is not registered."""
    domain = ERASABLE.get(table)
    if domain is None:
        raise InvalidInputError(f"records of {table!r} cannot be erased", table=table, known=sorted(ERASABLE))
    return domain


def domains() -> Iterator[Erasable]:
    """Return every registered table, by name."""
    return iter(sorted(ERASABLE.values(), key=lambda each: each.table))


class UnloggedRows(NamedTuple):
    """Rows outside the log that may be a subject's."""

    table: str
    remove: Callable[[Tx, str], int]
    """Delete all that carry a subject's handle; how many."""


ROWS: Final[dict[str, UnloggedRows]] = {}


def register_rows(rows: UnloggedRows) -> UnloggedRows:
    """Register rows without leaves that are removed with their subject."""
    ROWS[rows.table] = rows
    return rows


def remove_rows(tx: Tx, handle: str) -> int:
    """Remove the rows of a subject that have no leaf; return how many."""
    return sum(ROWS[table].remove(tx, handle) for table in sorted(ROWS))
