"""The stream of a store's tables from a snapshot to a database: which tables, which values change, and the comparison.

Rules:
- A move and a restore into the other kind of database compare every row at the target with the source's; a restore
  into the same kind is covered by the hashes of the backup's files.
- Tables that applications created have types that may mean something else in another database: such a transfer is
  refused, and they are named.
"""

from collections.abc import Iterable, Iterator, Mapping, Set
from hashlib import sha256
from itertools import count
from typing import Final

from holdproof.db import Row
from holdproof.db.clock import system_random
from holdproof.db.migrate import MOVE_IN_PROGRESS
from holdproof.db.row_stream import RowStream
from holdproof.db.transfer import DatabaseTarget, TableSnapshot
from holdproof.db.tx import DERIVED_TABLES, MIGRATED_TABLES
from holdproof.errors import CorruptError, InvalidInputError
from holdproof.model.progress import Progress

PENDING: Final = "log_pending"
"""Entries of the log that no head covers yet: a table that only PostgreSQL has."""
_MODULUS: Final = 1 << 256
_EVERY: Final = 1000
_LEDGER: Final = "schema_migrations"
# `change` of a vector is the writer's count on SQLite and the transaction's number on a server.
_ADAPTED: Final = frozenset({"vectors", "vector_facts"})


def tables(snapshot: TableSnapshot, space: str) -> dict[str, list[str]]:
    """Return the tables of a space that a transfer carries, with their columns."""
    derived = DERIVED_TABLES | {PENDING}
    return {table: names for table, names in snapshot.tables(space).items() if table not in derived}


def refuse_application_tables(names: Iterable[str]) -> None:
    """Raise InvalidInputError if there are tables that applications created."""
    _refuse_strange(set(names) - MIGRATED_TABLES)


def _refuse_strange(names: Set[str]) -> None:
    if names:
        raise InvalidInputError(
            f"applications created tables or views that another kind of database may read otherwise:"
            f" {', '.join(sorted(names))}; export their rows and drop them, then try again",
            tables=sorted(names),
        )


def pour(
    snapshot: TableSnapshot,
    target: DatabaseTarget,
    space: str,
    columns: Mapping[str, list[str]],
    tell: Progress,
    *,
    to_server: bool,
) -> None:
    """Fill a space of the target and compare every row that arrived; CorruptError where one differs."""
    existing = target.tables(space)
    _refuse_strange({table for table in columns if set(columns[table]) != set(existing.get(table, ()))})
    sums = {table: RowSum(space, table, snapshot.count(space, table), tell) for table in columns}
    streams = {
        table: sums[table].over(adapted(table, columns[table], snapshot.rows(space, table, columns[table]), to_server))
        for table in columns
    }
    # Sequences continue where the source's stood, or new ids would collide.
    counters = {table: last for table, last in snapshot.counters(space).items() if table in columns}
    target.fill(space, columns, streams, counters)
    for number, (table, arrived) in enumerate(target.rows(space, columns), 1):
        if (
            RowSum.of(row for row in arrived if table != _LEDGER or MOVE_IN_PROGRESS.name not in row)
            != sums[table].total
        ):
            raise CorruptError(f"what arrived of {table} is not what was sent", table=table, space=space)
        tell(f"comparing {space}", number, len(columns))


class RowSum:
    """Adds up the hashes of rows as they pass: the same rows give the same sum, in any order."""

    def __init__(self, space: str, table: str, expected: int, tell: Progress) -> None:
        self._name = f"{space}.{table}"
        self._expected = expected
        self._tell = tell
        self.total = 0

    def over(self, rows: Iterable[Row]) -> RowStream:
        """Pass the rows on, adding each to the sum."""
        return RowStream(lambda: self._added(rows))

    def _added(self, rows: Iterable[Row]) -> Iterator[Row]:
        for number, row in enumerate(rows, 1):
            self.total = (self.total + row_hash(row)) % _MODULUS
            if number % _EVERY == 0 or number == self._expected:
                self._tell(self._name, number, max(number, self._expected))
            yield row

    @staticmethod
    def of(rows: Iterable[Row]) -> int:
        """Return the sum over rows that are not passed on."""
        return sum(map(row_hash, rows)) % _MODULUS


def row_hash(row: Row) -> int:
    """Return the hash of a row as a number; rows are plain tuples, equal on every database."""
    return int.from_bytes(sha256(repr(row).encode("utf-8", "surrogatepass")).digest(), "big")


def adapted(table: str, columns: list[str], rows: RowStream, to_server: bool) -> RowStream:
    """Change the values that mean something in one database only; the rows of all other tables pass unchanged.

    Vectors are renumbered, without tombstones, under a new key, so that an index cached for the source is not used for
    the target.
    """
    return RowStream(lambda: _adapted(table, columns, rows, to_server)) if table in _ADAPTED else rows


def _adapted(table: str, columns: list[str], rows: Iterable[Row], to_server: bool) -> Iterator[Row]:
    if table == "vectors":
        at = columns.index("change")
        stamp = columns.index("stamp")
        # A transaction id of another server means nothing here: 1 is older than any of the target's.
        numbers = count(1)
        for row in rows:
            if row[stamp]:
                yield (*row[:at], 1 if to_server else next(numbers), *row[at + 1 :])
    else:
        new = {columns.index("key"): system_random(12).hex(), columns.index("swept"): 0}
        for row in rows:
            yield tuple(new.get(number, value) for number, value in enumerate(row))
