"""Vectors: finding the ten nearest, adding durably, opening; beside sqlite-vec and hnswlib.

384 numbers each, made like embeddings are: a few dozen things that vary, and some noise. `holdproof` finds for certain,
`holdproof quantised` with a recall that is measured before the race and must reach 0.98. hnswlib (its recall is in its
name, its index is in memory only and takes minutes to build) takes part where it is installed and the store is small.
A million take minutes to fill and ten gigabytes of memory: `--race "ten nearest of 1,000,000"` asks for them, or
`HOLDPROOF_BENCH_VECTORS=1000000`, which says how many vectors there are at most.
"""

import asyncio
import importlib.util
import itertools
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import apsw
import numpy as np
from numpy.typing import NDArray

from bench.goals import Goal
from bench.measurement import Contestant, Meter, Options, Race, Result, progress, run_race
from bench.threads import threads
from holdproof.db import Database, open_database
from holdproof.executors import AsyncExecutor, SyncExecutor
from holdproof.storage.vectors import open_vectors
from holdproof.storage.vectors.store import Vectors

MOST = int(os.environ.get("HOLDPROOF_BENCH_VECTORS", "100000"))
SIZES = (1_000, 10_000, 100_000, 1_000_000)
WIDTH, K, QUERIES, CALLERS = 384, 10, 64, 64
ADD, OPEN = f"add, {CALLERS} callers", "open and find"
PEER = "sqlite-vec @1"

Matrix = NDArray[np.float32]
Find = Callable[[Matrix], Sequence[str]]


def run(options: Options) -> list[Result]:
    """Every race that the options ask for."""
    if not options.wants("sqlite"):
        return []
    results: list[Result] = []
    for size in SIZES:
        named = f"{size:,}" in options.race
        if (named or size <= MOST) and (options.race in _search(size) or options.race in _open(size)):
            results += _races(size, options)
    return results + run_race(Race(ADD, [_add_peer(), _add()], (f"sqlite-vec @{CALLERS}",)), options)


def _search(size: int) -> str:
    return f"ten nearest of {size:,}"


def _open(size: int) -> str:
    return f"{OPEN}, {size:,}"


def goals(options: Options) -> list[Goal]:
    """What must be reached."""
    disk = f" (+{options.fsync_ms:g} ms)" if options.fsync_ms else ""
    large, million = _search(100_000), _search(1_000_000)
    return [
        Goal("10,000, for certain: 4.5 x sqlite-vec", _search(10_000), "holdproof @1", PEER, 4.5),
        Goal("100,000, for certain: 8 x sqlite-vec", large, "holdproof @1", PEER, 8),
        Goal("100,000, recall 0.98: 18 x sqlite-vec", large, "holdproof quantised @1", PEER, 18),
        Goal("1,000,000, for certain: 8 x sqlite-vec", million, "holdproof @1", PEER, 8),
        Goal("open 100,000 and find: at most 50 ms", _open(100_000), "holdproof @1", "50 ms @1", 1),
        Goal(f"add, 64 callers: 10 x sqlite-vec{disk}", ADD, f"holdproof @{CALLERS}", f"sqlite-vec @{CALLERS}", 10),
    ]


# --- data --------------------------------------------------------------------------------------------------------


def cloud(count: int) -> Matrix:
    """Vectors as embeddings are: what varies is 64 things."""
    chance = np.random.default_rng(count)
    hidden = chance.standard_normal((count, 64), dtype=np.float32)
    spread = np.random.default_rng(1).standard_normal((64, WIDTH), dtype=np.float32) / 8
    return hidden @ spread + 0.2 * chance.standard_normal((count, WIDTH), dtype=np.float32)


def expected(vectors: Matrix, queries: Matrix) -> list[set[str]]:
    """The nearest by plain arithmetic."""
    lengths = np.linalg.norm(vectors, axis=1)
    return [{f"v{row}" for row in np.argpartition(-(vectors @ query / lengths), K)[:K]} for query in queries]


def recall(find: Find, queries: Matrix, right: list[set[str]]) -> float:
    """Which share of the nearest is found."""
    return sum(len(set(find(query)) & nearest) for query, nearest in zip(queries, right, strict=True)) / (
        K * len(queries)
    )


# --- finding -----------------------------------------------------------------------------------------------------


def _races(size: int, options: Options) -> list[Result]:
    with ExitStack() as stack:
        folder = stack.enter_context(_folder())
        progress(f"filling {size:,} vectors")
        vectors, queries = cloud(size), cloud(QUERIES)
        _fill(folder, vectors)
        right = expected(vectors, queries)
        peer = stack.enter_context(closing(_peer(folder, vectors)))
        finders: list[tuple[str, Find]] = [("sqlite-vec", lambda query: _peer_find(peer, query))]
        for name, kind in (("holdproof", "numpy"), ("holdproof quantised", "quantised")):
            store = stack.enter_context(_store(folder, kind))
            finders.append((name, lambda query, store=store: [found.id for found in store.search(query, K)]))  # type: ignore[misc]
            least = {"numpy": 1.0, "quantised": 0.98}[kind]
            assert recall(finders[-1][1], queries, right) >= least, f"{name} finds too little"
        if (graph := _graph(vectors, queries, right)) is not None:
            finders.append(graph)
        race = Race(_search(size), [_finding(name, find, queries) for name, find in finders], (PEER,))
        results = run_race(race, options)
        del finders, vectors
    return results + _opening(size, options)


def _finding(name: str, find: Find, queries: Matrix) -> Contestant:
    def sample(meter: Meter) -> None:
        meter.start()
        for query in itertools.cycle(queries):
            find(query)
            if not meter.done():
                return

    return Contestant(name, 1, sample)


@contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="bench-vectors-") as folder:
        yield Path(folder)


@contextmanager
def _store(folder: Path, kind: str) -> Iterator[Vectors[SyncExecutor]]:
    with closing(open_database(folder / "membrane.db", space="membrane")) as database:
        face = SyncExecutor(database)
        store = face.run(open_vectors(face, kind, dimensions=WIDTH, cache=folder / "cache"))
        yield store
        store.close()


def _fill(folder: Path, vectors: Matrix) -> None:
    with _store(folder, "numpy") as store:
        store.add_many((f"v{at}", vector, {"at": at}) for at, vector in enumerate(vectors))
        store.search(vectors[0])


# --- opening -----------------------------------------------------------------------------------------------------


def _opening(size: int, options: Options) -> list[Result]:
    """Everything from a closed file to the first answer: the database, the sidecar, a scan."""
    if options.race not in _open(size):
        return []
    with _folder() as folder:
        query = cloud(1)[0]
        _fill(folder, cloud(size))

        def sample(meter: Meter) -> None:
            meter.start()
            while True:
                with _store(folder, "numpy") as store:
                    store.search(query)
                    going = meter.done()
                if not going:
                    return

        return run_race(Race(_open(size), [_clock(0.05), Contestant("holdproof", 1, sample)], ("50 ms @1",)), options)


def _clock(seconds: float) -> Contestant:
    def sample(meter: Meter) -> None:
        meter.start()
        while True:
            time.sleep(seconds)
            if not meter.done():
                return

    return Contestant(f"{seconds * 1000:g} ms", 1, sample)


# --- adding ------------------------------------------------------------------------------------------------------


def _add() -> Contestant:
    vectors = cloud(1000)

    async def caller(store: Any, meter: Meter, first: int) -> None:
        for number in itertools.count(first, CALLERS):
            await store.add(f"v{number}", vectors[number % 1000], {"at": number})
            if not meter.done():
                return

    async def all_callers(database: Database, meter: Meter) -> None:
        face = AsyncExecutor(database)
        store = await face.run(open_vectors(face, dimensions=WIDTH))
        await store.add("first", vectors[0])
        meter.start()
        await asyncio.gather(*(caller(store, meter, first) for first in range(CALLERS)))

    def sample(meter: Meter) -> None:
        with _folder() as folder, closing(open_database(folder / "membrane.db", space="membrane")) as database:
            asyncio.run(all_callers(database, meter))

    return Contestant("holdproof", CALLERS, sample)


def _add_peer() -> Contestant:
    """A commit for each, as anybody would write it; one connection, because SQLite has one writer."""
    vectors = cloud(1000)

    def caller(connection: apsw.Connection, lock: threading.Lock, meter: Meter, first: int) -> None:
        for number in itertools.count(first, CALLERS):
            with lock:
                connection.execute(_PEER_ADD, (f"v{number}", vectors[number % 1000].tobytes()))
            if not meter.done():
                return

    def sample(meter: Meter) -> None:
        with _folder() as folder, closing(_peer(folder, vectors[:0])) as connection:
            lock = threading.Lock()
            meter.start()
            threads(CALLERS, lambda first: caller(connection, lock, meter, first))

    return Contestant("sqlite-vec", CALLERS, sample)


# --- the peers ---------------------------------------------------------------------------------------------------

_PEER_ADD = "INSERT INTO vectors (id, vector) VALUES (?, ?)"


def _peer(folder: Path, vectors: Matrix) -> apsw.Connection:
    import sqlite_vec  # noqa: PLC0415 -- a peer

    connection = apsw.Connection(str(folder / "peer.db"))
    connection.enable_load_extension(True)
    connection.load_extension(sqlite_vec.loadable_path())
    for statement in ("PRAGMA journal_mode=wal", "PRAGMA synchronous=full"):
        connection.execute(statement)
    columns = f"id TEXT PRIMARY KEY, vector FLOAT[{WIDTH}] distance_metric=cosine"
    connection.execute(f"CREATE VIRTUAL TABLE vectors USING vec0({columns})")
    with connection:
        connection.executemany(_PEER_ADD, ((f"v{at}", vector.tobytes()) for at, vector in enumerate(vectors)))
    return connection


def _peer_find(connection: apsw.Connection, query: Matrix) -> list[str]:
    found = connection.execute("SELECT id FROM vectors WHERE vector MATCH ? AND k = ?", (query.tobytes(), K))
    return [str(id) for (id,) in found]


def _graph(vectors: Matrix, queries: Matrix, right: list[set[str]]) -> tuple[str, Find] | None:
    """hnswlib, where it is installed; over more vectors building it would take too long."""
    if importlib.util.find_spec("hnswlib") is None or len(vectors) > 10_000:
        return None
    import hnswlib  # noqa: PLC0415 -- a peer

    index = hnswlib.Index("cosine", WIDTH)
    index.init_index(len(vectors), ef_construction=100, M=16)
    index.set_ef(100)
    index.add_items(vectors, num_threads=1)

    def find(query: Matrix) -> list[str]:
        return [f"v{row}" for row in index.knn_query(query, K, num_threads=1)[0][0]]

    return f"hnswlib (recall {recall(find, queries, right):.3f})", find
