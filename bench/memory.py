"""Memory: one object changed, all objects loaded, an image brought up to date.

Stores of 10,000 and of many objects (`HOLDFAST_BENCH_OBJECTS`, 100,000 unless told) are built once and used by every
round. `rows` is a table of SQLite with one row an object, synced, without hash, history or log. `pickle` reads a file
that it believes; `floor` reads the image and hashes it once, the least that anybody pays who wants to verify.
"""

import atexit
import hashlib
import itertools
import json
import os
import pickle
import shutil
import tempfile
from collections.abc import Callable
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

import apsw

from bench.goals import Goal
from bench.harness import Contestant, Meter, Options, Race, Result, run_race
from holdfast import sync

FEW = 10_000
MANY = int(os.environ.get("HOLDFAST_BENCH_OBJECTS", "100000"))
CHANGED = 100
COMMIT, LOAD, DUMP = "one object, durable", f"load {FEW:,} objects", f"dump after {CHANGED} changes"
ROWS, PICKLE, FLOOR = f"rows, {FEW:,} @1", "pickle, believed @1", "floor: read and SHA-256 @1"


def run(options: Options) -> list[Result]:
    """Every race; PostgreSQL has no part in them."""
    if not options.wants("sqlite"):
        return []
    commits = [_rows(), _put(FEW), _put(MANY), _snapshot(FEW), _snapshot(MANY)]
    loads = [_pickle(), _floor(), _verified(), _lazy(FEW), _lazy(MANY)]
    return [
        *run_race(Race(COMMIT, commits, (ROWS, f"put, {FEW:,} @1")), options),
        *run_race(Race(LOAD, loads, (PICKLE, FLOOR)), options),
        *run_race(Race(DUMP, [_dump(FEW), _dump(MANY)], (f"delta, {FEW:,} @1",)), options),
    ]


def goals(options: Options) -> list[Goal]:
    """What must be reached, and what is aimed at."""
    disk = options.disk
    return [
        Goal(f"a put among {MANY:,} objects: 1/1.5 x the rate among {FEW:,}{disk}", COMMIT, f"put, {MANY:,} @1",
             f"put, {FEW:,} @1", 1 / 1.5),
        Goal("a verified load: 1/4 x the rate of pickle, which verifies nothing", LOAD, "image, verified @1", PICKLE,
             0.25, aim=True),
        Goal(f"a dump among {MANY:,} objects: 1/2 x the rate among {FEW:,}{disk}", DUMP, f"delta, {MANY:,} @1",
             f"delta, {FEW:,} @1", 0.5, aim=True),
    ]  # fmt: skip


def _draft(number: int, turn: int = 0) -> dict[str, Any]:
    return {"type": "note", "content": f"what is known of {number}, {turn}. " * 3, "attributes": {"n": number}}


@cache
def _store(count: int) -> sync.Holdfast:
    """A store with so many objects and an image of them, for the whole run."""
    home = tempfile.mkdtemp(prefix="bench-")
    store = sync.open(home)
    for start in range(0, count, FEW):
        store.objects.apply({f"note-{at:07}": _draft(at) for at in range(start, min(count, start + FEW))})
    store.snapshots.create("all of them")
    store.image.dump(_pristine(store))
    atexit.register(shutil.rmtree, home, True)
    atexit.register(store.close)
    return store


def _pristine(store: sync.Holdfast) -> Path:
    """The image of the objects as they were at first."""
    return Path(store.context.paths.data) / "pristine"


def _loop(name: str, prepare: Callable[[], Callable[[int], Any]]) -> Contestant:
    def sample(meter: Meter) -> None:
        act = prepare()
        meter.start()
        for turn in itertools.count():
            act(turn)
            if not meter.done():
                return

    return Contestant(name, 1, sample)


def _places(count: int) -> Callable[[int], int]:
    return lambda turn: turn * 7_919 % count


def _put(count: int) -> Contestant:
    def prepare() -> Callable[[int], Any]:
        store, place, token = _store(count), _places(count), os.urandom(4).hex()
        return lambda turn: store.objects.put(f"note-{place(turn):07}", type="note", content=f"{token} {turn}")

    return _loop(f"put, {count:,}", prepare)


def _snapshot(count: int) -> Contestant:
    def prepare() -> Callable[[int], Any]:
        store, place, token = _store(count), _places(count), os.urandom(4).hex()

        def act(turn: int) -> None:
            store.objects.put(f"note-{place(turn):07}", type="note", content=f"{token} {turn}")
            store.snapshots.create()

        return act

    return _loop(f"put and snapshot, {count:,}", prepare)


def _rows() -> Contestant:
    def sample(meter: Meter) -> None:
        with (
            tempfile.TemporaryDirectory(prefix="bench-") as folder,
            closing(apsw.Connection(f"{folder}/rows.db")) as connection,
        ):
            connection.pragma("journal_mode", "wal")
            connection.pragma("synchronous", "full")
            connection.execute("CREATE TABLE notes (id TEXT PRIMARY KEY, data TEXT)")
            with connection:
                made = ((f"note-{at:07}", json.dumps(_draft(at))) for at in range(FEW))
                connection.executemany("INSERT INTO notes VALUES (?, ?)", made)
            place = _places(FEW)
            meter.start()
            for turn in itertools.count():
                written = (json.dumps(_draft(turn)), f"note-{place(turn):07}")
                connection.execute("UPDATE notes SET data = ? WHERE id = ?", written)
                if not meter.done():
                    return

    return Contestant(f"rows, {FEW:,}", 1, sample)


def _pickle() -> Contestant:
    def prepare() -> Callable[[int], Any]:
        path = Path(_store(FEW).context.paths.data) / "all.pickle"
        path.write_bytes(pickle.dumps({f"note-{at:07}": _draft(at) for at in range(FEW)}))
        return lambda _: pickle.loads(path.read_bytes())

    return _loop("pickle, believed", prepare)


def _floor() -> Contestant:
    def prepare() -> Callable[[int], Any]:
        [path] = _pristine(_store(FEW)).glob("*.base.car")
        return lambda _: hashlib.sha256(path.read_bytes()).digest()

    return _loop("floor: read and SHA-256", prepare)


def _verified() -> Contestant:
    def prepare() -> Callable[[int], Any]:
        store = _store(FEW)
        return lambda _: store.image.open(_pristine(store), verify="full").close()

    return _loop("image, verified", prepare)


def _lazy(count: int) -> Contestant:
    def prepare() -> Callable[[int], Any]:
        store = _store(count)

        def act(_: int) -> None:
            with store.image.open(_pristine(store)) as image:
                image.get("note-0000001")

        return act

    return _loop(f"image, lazily, {count:,}", prepare)


def _dump(count: int) -> Contestant:
    def prepare() -> Callable[[int], Any]:
        store, place = _store(count), _places(count)
        token = os.urandom(4).hex()
        store.image.dump()

        def act(turn: int) -> None:
            changed = (place(turn * CHANGED + at) for at in range(CHANGED))
            store.objects.apply({f"note-{at:07}": {"type": "note", "content": f"{token} {turn}"} for at in changed})
            store.image.dump()

        return act

    return _loop(f"delta, {count:,}", prepare)
