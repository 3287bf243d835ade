"""Stores with one stamped table, for the tests of the log."""

import time
from pathlib import Path
from typing import Any

import pytest

from holdproof import sync
from holdproof.crypto import merkle
from holdproof.crypto.tiles import WIDTH, EntryBundle
from holdproof.db import Migration, Tx, migrate, sql
from holdproof.evidence import leaves, log, tree
from holdproof.evidence.leaves import Projection
from holdproof.model.log import Audited

THINGS = Projection("things", 1, ("id", "body", "amount"))
MIGRATIONS = [
    *migrate.shipped("kernel"),
    Migration(
        "9000_things",
        "CREATE TABLE things (id TEXT PRIMARY KEY, body TEXT NOT NULL, amount @real,"
        " leaf_id TEXT NOT NULL, leaf_ver @int NOT NULL, leaf_salt @blob)",
    ),
]
_ADD = sql(
    "INSERT INTO things (id, body, amount, leaf_id, leaf_ver, leaf_salt)"
    " VALUES (:id, :body, :amount, :leaf_id, :leaf_ver, :leaf_salt)"
)
_COUNT = sql("SELECT count(*) FROM things")
_TEXTS = sql("SELECT leaf FROM log_leaves ORDER BY idx")
_UNLOGGED = sql(
    "SELECT count(*) FROM things t WHERE NOT EXISTS"
    " (SELECT 1 FROM log_leaves l WHERE l.id = t.leaf_id AND l.ver = t.leaf_ver)"
)


def put(tx: Tx, body: str = "x") -> str:
    """A thing and its leaf; gives the leaf's handle."""
    row = {"id": tx.new_id(), "body": body, "amount": 1.5}
    mark = leaves.stamp(tx, "state", THINGS, row)
    tx.execute(_ADD, **row, **mark._asdict(), expect=1)
    return mark.leaf_id


def put_many(tx: Tx, count: int) -> list[str]:
    """Several."""
    return [put(tx) for _ in range(count)]


def things(tx: Tx) -> int:
    """How many there are."""
    [(count,)] = tx.all(_COUNT)
    return int(count)


def unlogged(tx: Tx) -> int:
    """How many have no leaf under a head."""
    [(count,)] = tx.all(_UNLOGGED)
    return int(count)


def texts(tx: Tx) -> list[bytes]:
    """Every leaf, in order."""
    return [row[0].encode() for row in tx.all(_TEXTS)]


def entries(tx: Tx) -> list[bytes]:
    """The same through the bundles that are served."""
    size = tree.state(tx).size
    return [
        entry
        for index in range(-(-size // WIDTH))
        for entry in tree.entries(tx, EntryBundle(index, min(WIDTH, size - index * WIDTH)))
    ]


def settle(store: sync.Holdproof, seconds: float = 10.0) -> None:
    """Wait until every committed leaf is under a head."""
    deadline = time.monotonic() + seconds
    while store.log.pending():
        assert time.monotonic() < deadline, "leaves stay pending"
        time.sleep(0.002)


def check(store: sync.Holdproof) -> Audited:
    """How a test of the log ends: everything logged, the tree that of its leaves, the full audit clean."""
    settle(store)
    state, found, missing = store.read(lambda tx: (tree.state(tx), texts(tx), unlogged(tx)))
    assert missing == 0
    assert state.size == len(found)
    assert store.read(log.head).checkpoint.root == merkle.root(merkle.leaf_hashes(found))
    audited = store.log.audit(full=True)
    assert audited.findings == []
    assert audited.ok
    return audited


class OnSqlite:
    """A home of its own for each test."""

    shared = True

    @pytest.fixture(autouse=True)
    def _place(self, sqlite_home: Path) -> None:
        self.home = sqlite_home
        self.url: str | None = None

    def open(self, home: Path | None = None, **options: Any) -> sync.Holdproof:
        """Open the test's store."""
        return sync.open(home or self.home, self.url, **{"migrations": MIGRATIONS, **options})


class InMemory(OnSqlite):
    """Nothing on disk, the same behaviour."""

    shared = False

    @pytest.fixture(autouse=True)
    def _place(self, tmp_path: Path) -> None:
        self.home, self.url = tmp_path / "home", ":memory:"


class OnPostgres(OnSqlite):
    """A database of its own for each test, on a real server."""

    @pytest.fixture(autouse=True)
    def _place(self, tmp_path: Path, postgres_url: str) -> None:
        self.home, self.url = tmp_path / "home", postgres_url
