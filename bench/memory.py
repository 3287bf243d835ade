"""Memory: built, loaded, opened, changed, compared, and its image brought up to date; with 10,000 objects and more.

Stores of 1,000, 10,000, 100,000 and 1,000,000 objects, up to `HOLDPROOF_BENCH_OBJECTS` (100,000 unless told), are built
once and used by every round; a million take some minutes. Beside them are pickle, JSON, rows of SQLite and `dulwich`;
`floor` reads the image and hashes it once, the least that anybody pays who wants to verify. What changes objects is not
part of the dump that follows it.
"""

import atexit
import hashlib
import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

from bench import peers_memory
from bench.goals import Goal
from bench.measurement import Contestant, Meter, Options, Race, Result, progress, run_race
from holdproof import sync

FEW = 10_000
_MOST = int(os.environ.get("HOLDPROOF_BENCH_OBJECTS", "100000"))
SIZES = (1_000, FEW, *(size for size in (100_000, 1_000_000) if size <= _MOST))
MANY = SIZES[-1]
CHANGED = 100
BUILD, LOAD, OPEN = f"build, sign and image of {FEW:,} objects", f"load {FEW:,} objects", "lazy open and one object"
COMMIT, DUMP, DIFF = "one object, durable", f"dump after {CHANGED} changes", f"diff of {CHANGED} changes"
SPACE = "lazy opens in a GiB of memory"
READ, LOADED = "image, verified and read from its files", "image.load into an empty store"
PICKLE, FLOOR = "pickle, believed @1", "floor: read and SHA-256 @1"


def run(options: Options) -> list[Result]:
    """Every race; PostgreSQL has no part in them."""
    if not options.wants("sqlite"):
        return []
    known = peers_memory.peers()
    builds = [*(_build_peer(name, keep) for name, keep, _ in known), _build()]
    loads = [*(_load_peer(name, keep, load) for name, keep, load in known), _floor(), _verified(), _loaded()]
    return [
        *run_race(Race(BUILD, builds, (PICKLE,)), options),
        *run_race(Race(LOAD, loads, (PICKLE, FLOOR)), options),
        *run_race(Race(OPEN, [_lazy(size) for size in SIZES], (f"image, {FEW:,} @1",)), options),
        *run_race(Race(COMMIT, _commits(), (f"rows, {FEW:,} @1", f"put, {FEW:,} @1")), options),
        *run_race(Race(DUMP, [_dump(size) for size in SIZES], (f"delta, {FEW:,} @1",)), options),
        *run_race(Race(DIFF, [_diff(size) for size in SIZES], (f"diff, {FEW:,} @1",)), options),
        *_space(options),
    ]


def goals(options: Options) -> list[Goal]:
    """What must be reached, and what is aimed at; what is said in ms holds for a machine that is idle."""
    disk = options.disk
    few, many = f"{FEW:,} @1", f"{MANY:,} @1"
    return [
        Goal(f"build, sign and image of {FEW:,}: 2.5 a second (400 ms)", BUILD, "image @1", "", 2.5, aim=True),
        Goal(f"image.load of {FEW:,} into an empty store: 5 a second (200 ms){disk}", LOAD, f"{LOADED} @1", "", 5),
        Goal("a verified image, read from its files: 10 a second (100 ms)", LOAD, f"{READ} @1", "", 10, aim=True),
        Goal("a verified image, read from its files: 1/4 x the rate of pickle, which verifies nothing", LOAD,
             f"{READ} @1", PICKLE, 0.25),
        Goal(f"a lazy open of {MANY:,}: 200 a second (5 ms)", OPEN, f"image, {many}", "", 200, aim=True),
        Goal(f"memory of a lazy open of {MANY:,}: at most 1.5 x that of {FEW:,}", SPACE, f"image, {many}",
             f"image, {few}", 1 / 1.5),
        Goal(f"a put among {MANY:,} objects: 1/1.5 x the rate among {FEW:,}{disk}", COMMIT, f"put, {many}",
             f"put, {few}", 1 / 1.5),
        Goal(f"a put among {MANY:,} objects: 333 a second (3 ms){disk}", COMMIT, f"put, {many}", "", 333, aim=True),
        Goal(f"a delta among {MANY:,} objects: 20 a second (50 ms){disk}", DUMP, f"delta, {many}", "", 20, aim=True),
        Goal(f"a delta among {MANY:,} objects: 1/2 x the rate among {FEW:,}{disk}", DUMP, f"delta, {many}",
             f"delta, {few}", 0.5),
    ]  # fmt: skip


def _draft(number: int, turn: int = 0) -> dict[str, Any]:
    return {"type": "note", "content": f"what is known of {number}, {turn}. " * 3, "attributes": {"n": number}}


def _drafts(start: int = 0, end: int = FEW) -> dict[str, Any]:
    return {f"note-{at:07}": _draft(at) for at in range(start, end)}


@cache
def _store(count: int) -> sync.Holdproof:
    """A store with so many objects and an image of them, for the whole run."""
    home = tempfile.mkdtemp(prefix="bench-")
    store = sync.open(home)
    for start in range(0, count, FEW):
        progress(f"a store of {count:,} objects: {start:,}")
        store.objects.apply(_drafts(start, min(count, start + FEW)))
    store.snapshots.create("all of them")
    store.image.dump(_pristine(store))
    atexit.register(shutil.rmtree, home, True)
    atexit.register(store.close)
    return store


def _pristine(store: sync.Holdproof) -> Path:
    """The image of the objects as they were at first."""
    return Path(store.context.paths.data) / "pristine"


def _loop(name: str, prepare: Callable[[], Callable[[int], Any]]) -> Contestant:
    return _changing(name, lambda: (lambda _: None, prepare()))


def _changing(name: str, prepare: Callable[[], tuple[Callable[[int], Any], Callable[[int], Any]]]) -> Contestant:
    """A contestant that does something before each unit which is not part of it."""

    def sample(meter: Meter) -> None:
        before, act = prepare()
        meter.start()
        for turn in itertools.count():
            with meter.aside():
                before(turn)
            act(turn)
            if not meter.done() and turn:  # two at least
                return

    return Contestant(name, 1, sample)


def _places(count: int) -> Callable[[int], int]:
    return lambda turn: turn * 7_919 % count


# --- all of them -------------------------------------------------------------------------------------------------


def _build() -> Contestant:
    def sample(meter: Meter) -> None:
        drafts = _drafts()
        meter.start()
        going = 2
        while going:
            with meter.aside():
                home = tempfile.mkdtemp(prefix="bench-")
                store = sync.open(home)
                store.keys.list()  # a store that is open, with its key
            store.objects.apply(drafts)
            store.image.dump()
            going = max(going - 1, meter.done())  # two at least
            with meter.aside():
                store.close()
                shutil.rmtree(home)

    return Contestant("image", 1, sample)


def _build_peer(name: str, keep: peers_memory.Keep) -> Contestant:
    def sample(meter: Meter) -> None:
        drafts = _drafts()
        meter.start()
        going = 2
        while going:
            with tempfile.TemporaryDirectory(prefix="bench-") as folder:
                keep(Path(folder), drafts)
                going = max(going - 1, meter.done())  # two at least

    return Contestant(name, 1, sample)


def _load_peer(name: str, keep: peers_memory.Keep, load: peers_memory.Load) -> Contestant:
    def prepare() -> Callable[[int], Any]:
        folder = Path(_store(FEW).context.paths.data) / name.replace(" ", "-")
        if not folder.exists():
            folder.mkdir()
            keep(folder, _drafts())
        return lambda _: load(folder)

    return _loop(name, prepare)


def _floor() -> Contestant:
    def prepare() -> Callable[[int], Any]:
        [path] = _pristine(_store(FEW)).glob("*.base.car")
        return lambda _: hashlib.sha256(path.read_bytes()).digest()

    return _loop("floor: read and SHA-256", prepare)


def _loaded() -> Contestant:
    """`image.load` into an empty store: all is verified, then written to the tables with its history."""

    def sample(meter: Meter) -> None:
        made = _store(FEW)
        did = made.snapshots.get().did
        meter.start()
        going = 2
        while going:
            with meter.aside():
                home = tempfile.mkdtemp(prefix="bench-")
                store = sync.open(home)
                store.keys.list()  # a store that is open, with its key
            store.image.load(_pristine(made), did=did)
            going = max(going - 1, meter.done())  # two at least
            with meter.aside():
                store.close()
                shutil.rmtree(home)

    return Contestant(LOADED, 1, sample)


def _verified() -> Contestant:
    def prepare() -> Callable[[int], Any]:
        store = _store(FEW)
        return lambda _: store.image.open(_pristine(store), verify="full").close()

    return _loop(READ, prepare)


# --- one of them -------------------------------------------------------------------------------------------------


def _lazy(count: int) -> Contestant:
    def prepare() -> Callable[[int], Any]:
        store = _store(count)

        def act(_: int) -> None:
            with store.image.open(_pristine(store)) as image:
                image.get("note-0000001")

        return act

    return _loop(f"image, {count:,}", prepare)


_CHILD = """
import os, sys
from holdproof import sync
def held():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024
with sync.open(sys.argv[1]) as store:
    store.image.open(sys.argv[2]).close()
    before = held()
    with store.image.open(sys.argv[2]) as image:
        image.get("note-0000001")
        print(max(256, held() - before))
"""
"""What an open image holds in KiB, once all code for it is there; less than a quarter of a MiB is noise."""


def _space(options: Options) -> list[Result]:
    """How much memory a lazy open takes, in a process of its own."""
    if options.race not in SPACE or not Path("/proc/self/statm").exists():
        return []
    found = []
    for size in SIZES:
        store = _store(size)
        command = [sys.executable, "-c", _CHILD, str(store.context.paths.data), str(_pristine(store))]
        taken = [int(subprocess.check_output(command)) for _ in range(options.repeats)]
        found.append(Result(SPACE, f"image, {size:,}", 1, tuple(2**20 / kib for kib in taken)))
    over = found[0]
    compared = [Result(one.race, one.name, 1, one.rates, 0.0, {over.label: one.over(over)}) for one in found]
    return options.journal.add(compared)


def _commits() -> list[Contestant]:
    return [_rows(), *map(_put, SIZES), *map(_snapshot, SIZES)]


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
            closing(peers_memory.open_rows(Path(folder))) as connection,
        ):
            peers_memory.fill_rows(connection, _drafts())
            place = _places(FEW)
            meter.start()
            for turn in itertools.count():
                written = (json.dumps(_draft(turn)), f"note-{place(turn):07}")
                connection.execute("UPDATE notes SET data = ? WHERE id = ?", written)
                if not meter.done():
                    return

    return Contestant(f"rows, {FEW:,}", 1, sample)


# --- a hundred of them -------------------------------------------------------------------------------------------


def _changes(count: int) -> Callable[[int], dict[str, Any]]:
    place, token = _places(count), os.urandom(4).hex()

    def made(turn: int) -> dict[str, Any]:
        changed = (place(turn * CHANGED + at) for at in range(CHANGED))
        return {f"note-{at:07}": {"type": "note", "content": f"{token} {turn}"} for at in changed}

    return made


def _dump(count: int) -> Contestant:
    def prepare() -> tuple[Callable[[int], Any], Callable[[int], Any]]:
        store, made = _store(count), _changes(count)
        store.image.dump()
        return lambda turn: store.objects.apply(made(turn)), lambda _: store.image.dump()

    return _changing(f"delta, {count:,}", prepare)


def _diff(count: int) -> Contestant:
    def prepare() -> Callable[[int], Any]:
        store = _store(count)
        before = store.snapshots.create("before")
        store.objects.apply(_changes(count)(0))
        return lambda _: store.snapshots.diff(before.cid, limit=1_000)

    return _loop(f"diff, {count:,}", prepare)
