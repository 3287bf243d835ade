"""Stores with a past: what a whole decision costs where there were a thousand flows before it, or a million.

The past is written with SQL, not through operations: completed flows with their transitions, context and audit event
under ids that grow with time, and a leaf for each of these rows in a log that is whole and signed. A million flows take
four gigabytes and some minutes; HOLDPROOF_BENCH_FLOWS is the largest number of them that is filled in.
"""

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench import decision_unit, own_contestants
from bench import workload as w
from bench.measurement import Contestant, Race, progress
from harness.filling import settled
from holdproof import sync
from holdproof.db import Database, Tx, sql
from holdproof.db.sql import sql_postgres
from holdproof.db.sqlite.files import connect
from holdproof.evidence import tree

_MOST = int(os.environ.get("HOLDPROOF_BENCH_FLOWS", "1000000"))
SIZES = tuple(size for size in (1_000, 10_000, 100_000, 1_000_000) if size <= max(_MOST, 1_000))
_CHUNK = 1 << 16
_KINDS = ("decision", "transition", "transition", "context", "audit")


@dataclass(frozen=True)
class _Dialect:
    """What the two databases write differently; `n` is the number of a flow."""

    hexadecimal: str
    moment: str
    """A column of times."""
    text: str
    """The same moment as an entry has it."""
    salt: str

    def id(self, kind: int) -> str:
        """SQL for an id of flow `n`, in the order of time: number 0 is the flow's own, the others are of its leaves."""
        at = "(1735689600000 + n * 1000)"
        parts = (self.hex(f"{at} >> 16", 8), self.hex(f"{at} & 65535", 4), self.hex(f"n * 8 + {kind}", 12))
        return "{} || '-' || {} || '-7000-8000-' || {}".format(*parts)

    def hex(self, number: str, width: int) -> str:
        """SQL for a number of so many hexadecimal digits."""
        return self.hexadecimal.format(number=number, width=width)


_AT = "strftime('%Y-%m-%dT%H:%M:%f', 1735689600 + n, 'unixepoch') || '000Z'"
_SQLITE = _Dialect(
    hexadecimal="printf('%0{width}x', {number})",
    moment=_AT,
    text=_AT,
    salt="zeroblob(16)",
)
_POSTGRES = _Dialect(
    hexadecimal="lpad(to_hex({number}), {width}, '0')",
    moment="to_timestamp(1735689600 + n)",
    text="""to_char(to_timestamp(1735689600 + n) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS') || '.000000Z'""",
    salt="decode(repeat('00', 16), 'hex')",
)
_NUMBERS = (
    "WITH RECURSIVE numbers(n) AS (SELECT CAST(:first AS BIGINT) UNION ALL SELECT n + 1 FROM numbers"
    " WHERE n + 1 < CAST(:end AS BIGINT))"
)


def _insert(table: str, columns: Sequence[str], values: Sequence[str], leaf: int, write: _Dialect) -> str:
    names = (*columns, "leaf_id", "leaf_ver", "leaf_salt")
    chosen = (*values, write.id(leaf), "1", write.salt)
    return f"INSERT INTO {table} ({', '.join(names)}) {_NUMBERS} SELECT {', '.join(chosen)} FROM numbers"


def _transition(before: str, after: str, leaf: int, write: _Dialect) -> str:
    columns = ("dfid", "root_dfid", "from_status", "to_status", "created_at")
    values = (write.id(0), write.id(0), f"'{before}'", f"'{after}'", write.moment)
    return _insert("flow_transitions", columns, values, leaf, write)


def _leaf(kind: int, write: _Dialect) -> str:
    """SQL for a leaf as long as a real one; its commitment is made up."""
    name = _KINDS[kind - 1]
    head = f"""'{{"h":"' || {write.hex(f"n * 8 + {kind}", 64)} || '","id":"' || {write.id(kind)} ||"""
    return f"""{head} '","ns":"main","p":"{name}s/1","t":"{name}","ts":"' || {write.text} || '","v":1,"ver":1}}'"""


def _leaves(write: _Dialect) -> str:
    each = (f"SELECT n, {kind}, {write.id(kind)}, {_leaf(kind, write)} FROM numbers" for kind in range(1, 6))
    made = " UNION ALL ".join(each)
    return (
        f"INSERT INTO log_leaves (idx, id, ver, leaf) {_NUMBERS}, made(n, kind, id, leaf) AS ({made})"
        " SELECT CAST(:size AS BIGINT) + (n - CAST(:first AS BIGINT)) * 5 + kind - 1, id, 1, leaf FROM made"
    )


def _statements(write: _Dialect) -> tuple[str, ...]:
    """The statements that write flows from number `:first` to `:end`, into a log of `:size` entries."""
    of_flow = ("dfid", "root_dfid", "agent_id", "flow_type", "status", "started_at", "completed_at", "created_at")
    of_event = ("dfid", "root_dfid", "event_type", "detail_json", "created_at")
    flow, at = write.id(0), write.moment
    return (
        _insert(
            "decision_flows",
            (*of_flow, "updated_at"),
            (flow, flow, f"'{w.AGENT}'", "'rebalance'", "'COMPLETED'", at, at, at, at),
            1,
            write,
        ),
        _transition("CREATED", "RUNNING", 2, write),
        _transition("RUNNING", "COMPLETED", 3, write),
        _insert("flow_context", ("dfid", "data", "updated_at"), (flow, f"'{w.INPUT}'", at), 4, write),
        _insert("decision_audit_events", of_event, (flow, flow, "'DECIDED'", f"'{w.PAYLOAD}'", at), 5, write),
        _leaves(write),
    )


_ON_POSTGRES = tuple(sql_postgres(each) for each in _statements(_POSTGRES))
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


def fill(home: str, flows: int, url: str | None = None) -> None:
    """Give the store of that folder, or of that database, a past of so many flows."""
    with decision_unit.opened(home, url) as store:
        settled(store)
        size = store.read(tree.state).size
        chunks = [
            {"first": first, "end": min(first + _CHUNK, flows), "size": size + first * len(_KINDS)}
            for first in range(0, flows, _CHUNK)
        ]
        write = _write_sqlite if url is None else _write_postgres
        for chunk in chunks:
            progress(f"filling a store: {chunk['first']:,} of {flows:,} flows")
            write(store, chunk)
        _grow(store)


def _write_sqlite(store: sync.Holdproof, chunk: Mapping[str, int]) -> None:
    with closing(connect(store.core.paths.kernel_db, busy_s=10)) as connection:
        for setting in ("PRAGMA synchronous=OFF", "PRAGMA cache_size=-200000", "PRAGMA wal_autocheckpoint=20000"):
            connection.execute(setting)
        with connection:
            for statement in _statements(_SQLITE):
                connection.execute(statement, chunk)


def _write_postgres(store: sync.Holdproof, chunk: Mapping[str, int]) -> None:
    def write(tx: Tx) -> None:
        for query in _ON_POSTGRES:
            tx.execute(query, **chunk)

    store.write(write)


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
