"""Stores with a past: what a whole decision costs where there were a thousand flows before it, or a million.

The past is written with SQL, not through operations: completed flows with their transitions, context and audit event
under ids that grow with time, and a leaf for each of these rows in a log that is whole and signed. A million flows take
four gigabytes and some minutes; HOLDPROOF_BENCH_FLOWS is the largest number of them that is filled in.
"""

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from bench import decision_unit, own_contestants
from bench import workload as w
from bench.measurement import Contestant, Race, progress
from holdproof import sync
from holdproof.db import Database, Tx, sql
from holdproof.db.sqlite.files import connect
from holdproof.evidence import tree

_MOST = int(os.environ.get("HOLDPROOF_BENCH_FLOWS", "1000000"))
SIZES = tuple(size for size in (1_000, 10_000, 100_000, 1_000_000) if size <= max(_MOST, 1_000))
_CHUNK = 1 << 16
_AT = "strftime('%Y-%m-%dT%H:%M:%f', 1735689600 + n, 'unixepoch') || '000Z'"
_KINDS = ("decision", "transition", "transition", "context", "audit")


def _id(kind: int) -> str:
    """SQL for an id of flow `n`, in the order of time: number 0 is the flow's own, the others are of its leaves."""
    return f"printf('%08x-%04x-7000-8000-%012x', (1735689600000 + n * 1000) >> 16, (n * 1000) & 65535, n * 8 + {kind})"


_FLOW, _SALT = _id(0), "zeroblob(16)"
_NUMBERS = "WITH RECURSIVE numbers(n) AS (SELECT :first UNION ALL SELECT n + 1 FROM numbers WHERE n + 1 < :end)"


def _insert(table: str, columns: Sequence[str], values: Sequence[str], leaf: int) -> str:
    names = (*columns, "leaf_id", "leaf_ver", "leaf_salt")
    chosen = (*values, _id(leaf), "1", _SALT)
    return f"INSERT INTO {table} ({', '.join(names)}) {_NUMBERS} SELECT {', '.join(chosen)} FROM numbers"


def _transition(before: str, after: str, leaf: int) -> str:
    columns = ("dfid", "root_dfid", "from_status", "to_status", "created_at")
    return _insert("flow_transitions", columns, (_FLOW, _FLOW, f"'{before}'", f"'{after}'", _AT), leaf)


def _leaf(kind: int) -> str:
    """SQL for a leaf as long as a real one; its commitment is made up."""
    name = _KINDS[kind - 1]
    head = f"""'{{"h":"' || printf('%064x', n * 8 + {kind}) || '","id":"' || {_id(kind)} || '","ns":"main","p":"' ||"""
    return f"""{head} '{name}s/1","t":"{name}","ts":"' || {_AT} || '","v":1,"ver":1}}'"""


_LEAVES = " UNION ALL ".join(f"SELECT n, {kind}, {_id(kind)}, {_leaf(kind)} FROM numbers" for kind in range(1, 6))
_FILL = (
    _insert(
        "decision_flows",
        (
            "dfid",
            "root_dfid",
            "agent_id",
            "flow_type",
            "status",
            "started_at",
            "completed_at",
            "created_at",
            "updated_at",
        ),
        (_FLOW, _FLOW, f"'{w.AGENT}'", "'rebalance'", "'COMPLETED'", _AT, _AT, _AT, _AT),
        1,
    ),
    _transition("CREATED", "RUNNING", 2),
    _transition("RUNNING", "COMPLETED", 3),
    _insert("flow_context", ("dfid", "data", "updated_at"), (_FLOW, f"'{w.INPUT}'", _AT), 4),
    _insert(
        "decision_audit_events",
        ("dfid", "root_dfid", "event_type", "detail_json", "created_at"),
        (_FLOW, _FLOW, "'DECIDED'", f"'{w.PAYLOAD}'", _AT),
        5,
    ),
    f"INSERT INTO log_leaves (idx, id, ver, leaf) {_NUMBERS}, made(n, kind, id, leaf) AS ({_LEAVES})"
    " SELECT :size + (n - :first) * 5 + kind - 1, id, 1, leaf FROM made",
)
_TEXTS = sql("SELECT leaf FROM log_leaves WHERE idx >= :first ORDER BY idx LIMIT :limit")


@contextmanager
def race(title: str, callers: int) -> Iterator[Race]:
    """The race, for as long as its stores are there."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        contestants = []
        for flows in SIZES:
            home = str(Path(folder, str(flows)))
            fill(home, flows)
            contestants.append(_on(home, flows, callers))
        yield Race(title, contestants, [contestants[0].label])


def name(flows: int) -> str:
    """How a contestant is called."""
    return f"{flows:,} flows"


def _on(home: str, flows: int, callers: int) -> Contestant:
    """Samples add to the store what they decide: a few thousand flows each."""

    @contextmanager
    def opened() -> Iterator[Database]:
        with decision_unit.opened(home) as store:
            yield store.database

    return own_contestants.asynchronous("whole", callers, opened, name(flows))


def fill(home: str, flows: int) -> None:
    """Give the store of that folder a past of so many flows."""
    with decision_unit.opened(home) as store:
        size = store.read(tree.state).size
        with closing(connect(store.core.paths.kernel_db, busy_s=10)) as connection:
            for setting in ("PRAGMA synchronous=OFF", "PRAGMA cache_size=-200000", "PRAGMA wal_autocheckpoint=20000"):
                connection.execute(setting)
            for first in range(0, flows, _CHUNK):
                progress(f"filling a store: {first:,} of {flows:,} flows")
                numbers = {"first": first, "end": min(first + _CHUNK, flows), "size": size + first * len(_KINDS)}
                with connection:
                    for statement in _FILL:
                        connection.execute(statement, numbers)
        _grow(store)


def _grow(store: sync.Holdproof) -> None:
    """Take leaves that stand there into the tree, under a signed head."""
    tree_writer = tree.TreeWriter()

    def chunk(tx: Tx) -> int:
        before = tree.lock(tx)
        texts = [text.encode() for (text,) in tx.all(_TEXTS, first=before.size, limit=_CHUNK)]
        if texts:
            tree_writer.grow(tx, before, texts, store.context.log.sign)
        return len(texts)

    while store.write(chunk):
        progress("growing the log")
