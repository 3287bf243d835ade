"""Stores on every backend, for the nouns that live on them; each is proven row by row when its test is over."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdproof import sync
from holdproof.db import MEMORY, Tx, sql
from holdproof.db.sql import Query
from holdproof.evidence.tables import IMPORTED, Table
from holdproof.runtime import checks
from holdproof.testing import FrozenClock
from holdproof.upkeep import kernel_tables


class CrashError(BaseException):
    """A worker that dies: no chance to write anything down."""


_EVERY = "(SELECT id, ver, leaf FROM log_leaves UNION ALL SELECT id, ver, leaf FROM log_pending) AS l"
_LEAF = sql(
    "SELECT leaf, (SELECT max(ver) FROM log_leaves n WHERE n.id = :id) FROM log_leaves WHERE id = :id AND ver = :ver",
    postgres=f"SELECT leaf, (SELECT max(ver) FROM {_EVERY} WHERE l.id = :id) FROM {_EVERY}"
    " WHERE id = :id AND ver = :ver",
)


def _rows(record: Table[Any]) -> Query:
    columns = ", ".join(record.projection.columns)
    return sql(f"SELECT leaf_id, leaf_ver, leaf_salt, {columns} FROM {record.projection.table}")


_ROWS = {record.projection.name: (record, _rows(record)) for record in kernel_tables.TABLES}


def proven(tx: Tx) -> int:
    """Every row under the log has its leaf, in its newest version, and the leaf commits to it; how many rows."""
    count = 0
    for record, query in _ROWS.values():
        for leaf_id, ver, salt, *values in tx.all(query):
            found = tx.one(_LEAF, id=leaf_id, ver=ver)
            assert found is not None, f"{record.projection.table} {values[0]} has no leaf"
            leaf, newest = json.loads(found[0]), found[1]
            row = dict(zip(record.projection.columns, values, strict=True))
            assert leaf["h"] == record.projection.commit(salt, row), f"{record.projection.table}: {row}"
            assert (leaf["ver"], newest) == (ver, ver)
            assert leaf["t"] in {record.kind, IMPORTED}
            count += 1
    return count


def sound(store: sync.Holdproof) -> None:
    """The store is proven, its flows follow from their transitions, and the database is whole."""
    store.read(proven)
    after: checks.FlowKey | None = ("", "")
    while after is not None:
        findings, after = store.read(lambda tx, after=after: checks.flows(tx, after=after))  # type: ignore[misc]
        assert findings == []
    assert store.check().ok


class OnStore:
    """A store of its own for each test, with a clock that stands still, and an agent called `trader`."""

    shared = True

    def target(self) -> dict[str, Any]:
        raise NotImplementedError

    def open(self, **options: Any) -> sync.Holdproof:
        return sync.open(**self.target(), **options)

    @pytest.fixture
    def clock(self) -> FrozenClock:
        return FrozenClock()

    @pytest.fixture
    def store(self, clock: FrozenClock) -> Iterator[sync.Holdproof]:
        with self.open(clock=clock) as store:
            store.agents.register("trader", version="1.0.0")
            yield store
            sound(store)

    @pytest.fixture
    def live(self) -> Iterator[sync.Holdproof]:
        """The same with the real time, for what waits."""
        with self.open() as store:
            store.agents.register("trader", version="1.0.0")
            yield store
            sound(store)


class OnSqlite(OnStore):
    @pytest.fixture(autouse=True)
    def _place(self, sqlite_home: Path) -> None:
        self.home = sqlite_home

    def target(self) -> dict[str, Any]:
        return {"home": self.home}


class InMemory(OnStore):
    shared = False

    def target(self) -> dict[str, Any]:
        return {"url": MEMORY}


class OnPostgres(OnStore):
    @pytest.fixture(autouse=True)
    def _place(self, postgres_store: tuple[str, Path]) -> None:
        self.url, self.home = postgres_store

    def target(self) -> dict[str, Any]:
        return {"url": self.url, "home": self.home}
