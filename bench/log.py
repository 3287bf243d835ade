"""The log: what a leaf costs beside its row, a proof out of a million leaves, an audit of all of them.

`bare row` is a row through the same engine without a leaf. `append` is a leaf whose text is ready (leaf, tree, signed
head), `stamp` makes it too (handle, salt, commitment to the row): all that the log adds to a row. `stamped row` is row
and stamp. `hashing alone` is SHA-256 over the texts of the leaves and nothing else; `2 ms` is a clock that ticks every
two milliseconds. pymerkle (GPL, never a dependency) takes part where it is installed, with a tree of the size it can be
given in reasonable time.
"""

import importlib.util
import itertools
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

from bench import workload as w
from bench.goals import Goal
from bench.measurement import Contestant, Meter, Options, Race, Result, progress, run_race
from holdproof import sync
from holdproof.db import Migration, Tx, migrate, sql
from holdproof.evidence import leaves, tree
from holdproof.evidence.leaves import Projection

LEAVES = int(os.environ.get("HOLDPROOF_BENCH_LEAVES", "1000000"))
SIZES = (*(size for size in (1_000, 10_000, 100_000) if size < LEAVES), LEAVES)
GROUP, CHUNK, PEER_LEAVES = 100, 8192, 20_000
APPEND, AUDIT = f"append in groups of {GROUP}", f"full audit of {LEAVES:,}"
BARE, BUDGET, FLOOR = "bare row @1", "2 ms @1", "hashing alone @1"

MIGRATIONS = [
    *migrate.shipped("kernel"),
    Migration(
        "9000_bench",
        "CREATE TABLE bare (id TEXT PRIMARY KEY, agent_id TEXT NOT NULL, input TEXT NOT NULL, output TEXT NOT NULL,"
        " created_at @time NOT NULL);"
        "CREATE TABLE stamped (id TEXT PRIMARY KEY, agent_id TEXT NOT NULL, input TEXT NOT NULL, output TEXT NOT NULL,"
        " created_at @time NOT NULL, leaf_id TEXT NOT NULL, leaf_ver @int NOT NULL, leaf_salt @blob);",
    ),
]
STAMPED = Projection("stamped", 1, ("id", "agent_id", "input", "output", "created_at"))
_BARE = sql(
    "INSERT INTO bare (id, agent_id, input, output, created_at) VALUES (:id, :agent_id, :input, :output, :created_at)"
)
_STAMPED = sql(
    "INSERT INTO stamped (id, agent_id, input, output, created_at, leaf_id, leaf_ver, leaf_salt)"
    " VALUES (:id, :agent_id, :input, :output, :created_at, :leaf_id, :leaf_ver, :leaf_salt)"
)


def run(options: Options) -> list[Result]:
    """Every race that the options ask for."""
    results: list[Result] = []
    if not options.wants("sqlite"):
        return results
    rows = [_append("bare row", _bare), _append("append", _ready), _append("stamp", _stamp)]
    rows.append(_append("stamped row", _stamped))
    results += run_race(Race(APPEND, rows + ([_peer_append()] if _peer() else []), (BARE,)), options)
    for size in SIZES:
        whole = size == LEAVES
        if options.race in _proofs(size) or (whole and options.race in AUDIT):
            with _filled(size) as store:
                peers = [_peer_proof()] if whole and _peer() else []
                results += run_race(Race(_proofs(size), [_budget(), _proof(store), *peers], (BUDGET,)), options)
                if whole:
                    results += run_race(Race(AUDIT, [_floor(store), _audit(store)], (FLOOR,)), options)
    return results


def _proofs(size: int) -> str:
    return f"inclusion proof of {size:,}"


def goals(options: Options) -> list[Goal]:
    """What must be reached."""
    disk = options.disk
    # Its licence is the GPL, so the extra `bench` does not install it: no aim where it takes no part.
    against = f"stamp: as fast as pymerkle, which signs nothing{disk}"
    return [
        Goal(f"append: at most 1.6 x the bare row (1 / 1.6){disk}", APPEND, "append @1", BARE, 1 / 1.6),
        Goal(f"{_proofs(LEAVES)}: at most 2 ms", _proofs(LEAVES), "holdproof @1", BUDGET, 1.0),
        Goal(f"{AUDIT}: at most 2 x hashing alone (1 / 2)", AUDIT, "holdproof @1", FLOOR, 0.5),
        Goal(f"stamp: at most 1.6 x the bare row{disk}", APPEND, "stamp @1", BARE, 1 / 1.6, aim=True),
        *([Goal(against, APPEND, "stamp @1", "pymerkle @1", 1, aim=True)] if _peer() else []),
    ]


# --- append ------------------------------------------------------------------------------------------------------


def _row(tx: Tx) -> dict[str, Any]:
    return {"id": tx.new_id(), "agent_id": w.AGENT, "input": w.INPUT, "output": w.OUTPUT, "created_at": tx.now}


def _bare(tx: Tx) -> None:
    for _ in range(GROUP):
        tx.execute(_BARE, **_row(tx), expect=1)


def _stamped(tx: Tx) -> None:
    for _ in range(GROUP):
        row = _row(tx)
        tx.execute(_STAMPED, **row, **leaves.stamp(tx, "decision", STAMPED, row)._asdict(), expect=1)


def _ready(tx: Tx) -> None:
    _fill(tx, range(GROUP))


def _stamp(tx: Tx) -> None:
    row = _row(tx)
    for _ in range(GROUP):
        leaves.stamp(tx, "decision", STAMPED, row)


def _append(name: str, group: Callable[[Tx], None]) -> Contestant:
    def sample(meter: Meter) -> None:
        with _store() as store:
            meter.start()
            while True:
                store.write(group)
                if not meter.done(GROUP):
                    return

    return Contestant(name, 1, sample)


# --- many leaves -------------------------------------------------------------------------------------------------


def _proof(store: sync.Holdproof) -> Contestant:
    size = store.log.head().checkpoint.size

    def sample(meter: Meter) -> None:
        chance = random.Random(1)
        meter.start()
        while True:
            index = chance.randrange(size)
            store.read(lambda tx: tree.prove_inclusion(tx, index, size))  # noqa: B023
            if not meter.done():
                return

    return Contestant("holdproof", 1, sample)


def _budget() -> Contestant:
    def sample(meter: Meter) -> None:
        meter.start()
        for tick in itertools.count(1):
            time.sleep(max(0.0, meter._begin + tick * 0.002 - time.perf_counter()))
            if not meter.done():
                return

    return Contestant("2 ms", 1, sample)


_TEXTS = sql("SELECT leaf FROM log_leaves WHERE idx < :count ORDER BY idx")


def _floor(store: sync.Holdproof) -> Contestant:
    texts: list[str] = [row[0] for row in store.database.read(lambda tx: tx.all(_TEXTS, count=100_000)).result()]

    def sample(meter: Meter) -> None:
        meter.start()
        for at in itertools.cycle(range(0, len(texts) - CHUNK + 1, CHUNK)):
            part = texts[at : at + CHUNK]
            assert len([sha256(b"\x00" + text.encode()).digest() for text in part]) == CHUNK
            if not meter.done(CHUNK):
                return

    return Contestant("hashing alone", 1, sample)


def _audit(store: sync.Holdproof) -> Contestant:
    def sample(meter: Meter) -> None:
        meter.start()
        open_, done = True, 0

        def count(now: int, _: int) -> None:
            nonlocal open_, done
            open_ = meter.done(now - done) if now > done else open_
            done = now

        while open_:
            done = 0
            audited = store.log.audit(full=True, progress=count)
            assert audited.ok, audited.findings

    return Contestant("holdproof", 1, sample)


@contextmanager
def _store() -> Iterator[sync.Holdproof]:
    with tempfile.TemporaryDirectory(prefix="bench-log-") as folder, sync.open(folder, migrations=MIGRATIONS) as store:
        yield store


@contextmanager
def _filled(size: int) -> Iterator[sync.Holdproof]:
    """A store whose log has so many leaves."""
    with _store() as store:
        for first in range(0, size, 2000):
            progress(f"filling the log: {first:,} of {size:,}")
            store.write(lambda tx, at=first: _fill(tx, range(at, min(at + 2000, size))))  # type: ignore[misc]
        progress("")
        yield store


def _fill(tx: Tx, numbers: Sequence[int]) -> None:
    for number in numbers:
        handle = tx.new_id()
        digest = sha256(number.to_bytes(8, "big")).hexdigest()
        text = (
            f'{{"h":"{digest}","id":"{handle}","ns":"main","p":"decision_flows/1","t":"decision","ts":"{tx.now}",'
            '"v":1,"ver":1}'
        )
        leaves.append(tx, (handle, 1, text))


# --- the peer ----------------------------------------------------------------------------------------------------


def _peer() -> bool:
    found = importlib.util.find_spec("pymerkle") is not None
    if not found and sys.stderr.isatty():
        sys.stderr.write("pymerkle is not installed (pip install pymerkle): it takes no part\n")
    return found


@contextmanager
def _peer_tree() -> Iterator[Any]:
    from pymerkle import SqliteTree  # type: ignore[import-untyped,unused-ignore]  # noqa: PLC0415

    with tempfile.TemporaryDirectory(prefix="bench-log-") as folder, SqliteTree(str(Path(folder, "tree.db"))) as made:
        yield made


def _peer_append() -> Contestant:
    """Its own batch append; the entry is as long as a leaf, and there is no row beside it."""

    def sample(meter: Meter) -> None:
        with _peer_tree() as made:
            meter.start()
            while True:
                made.append_entries([os.urandom(107).hex().encode() for _ in range(GROUP)])
                if not meter.done(GROUP):
                    return

    return Contestant("pymerkle", 1, sample)


def _peer_proof() -> Contestant:
    """Inclusion proofs of a tree fifty times smaller, its cache warm."""

    def sample(meter: Meter) -> None:
        chance = random.Random(1)
        with _peer_tree() as made:
            made.append_entries([os.urandom(107).hex().encode() for _ in range(PEER_LEAVES)])
            meter.start()
            while True:
                made.prove_inclusion(chance.randrange(1, PEER_LEAVES + 1))
                if not meter.done():
                    return

    return Contestant(f"pymerkle ({PEER_LEAVES:,})", 1, sample)
