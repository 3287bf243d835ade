"""Blobs: durable puts and verified gets beside plain files and raw obstore.

`atomic file` is what a careful program writes by hand: temporary file, fsync, rename, fsync of the folder; it hashes
nothing. `atomic file, hashed` is the same with a SHA-256, the least that anybody pays who wants to know later whether a
blob is what it was. `plain read` reads such a file and verifies nothing, `plain read, hashed` verifies it. `obstore` is
its store of local files, which never syncs: a ceiling for what does not have to be durable. Ours hashes, writes a row,
and verifies what it reads. Every store has taken one blob before the clock runs: folders are made once in its life.
"""

import asyncio
import importlib.util
import itertools
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

from bench.goals import Goal
from bench.measurement import Contestant, Meter, Options, Race, Result, run_race
from bench.threads import threads
from holdproof.db import open_database
from holdproof.executors import AsyncExecutor, SyncExecutor
from holdproof.storage.blobs import Blobs, BlobStoreConfig, open_backend

SIZES = {"4 KiB": 4 << 10, "1 MiB": 1 << 20, "100 MiB": 100 << 20}
CALLERS = {"4 KiB": (1, 64), "1 MiB": (1, 32), "100 MiB": (1,)}
KEYS = {"4 KiB": 1000, "1 MiB": 64, "100 MiB": 2}
FIRST = 1 << 60
HASHED, READ = "atomic file, hashed", "plain read, hashed"


def run(options: Options) -> list[Result]:
    """A race for each size and direction; PostgreSQL has no part in them."""
    results: list[Result] = []
    for size in SIZES if options.wants("sqlite") else ():
        puts = [made for callers in CALLERS[size] for made in _puts(size, callers)]
        gets = [made for callers in CALLERS[size] for made in _gets(size, callers)]
        most = max(CALLERS[size])
        results += run_race(Race(f"put {size}", puts, _labels("atomic file", CALLERS[size])), options)
        replaced = [made for callers in CALLERS[size] for made in _replaced(size, callers)]
        results += run_race(Race(f"replace {size}", replaced, _labels("atomic file", CALLERS[size])), options)
        results += run_race(Race(f"get {size}", gets, (f"plain read @{most}", f"plain read, hashed @{most}")), options)
    return results


def _labels(name: str, callers: tuple[int, ...]) -> tuple[str, ...]:
    return tuple(f"{name} @{count}" for count in callers)


def goals(options: Options) -> list[Goal]:
    """What must be reached."""
    disk = f" (+{options.fsync_ms:g} ms)" if options.fsync_ms else ""
    return [
        Goal(f"put 4 KiB, 64 callers: 3 x atomic files{disk}", "put 4 KiB", "holdproof @64", "atomic file @64", 3.0),
        Goal(f"put 100 MiB: 0.9 x atomic files{disk}", "put 100 MiB", "holdproof @1", "atomic file @1", 0.9),
        Goal(f"put 1 MiB, 32 callers: 0.9 x atomic files{disk}", "put 1 MiB", "holdproof @32", "atomic file @32", 0.9),
        *(
            Goal(f"{act} {size}: 0.9 x {peer}{disk}", f"{act} {size}", f"holdproof @{n}", f"{peer} @{n}", 0.9)
            for act, peer in (("put", HASHED), ("get", READ))
            for size, n in (("1 MiB", 32), ("100 MiB", 1))
        ),
    ]


def _puts(size: str, callers: int) -> Iterator[Contestant]:
    yield _threads("atomic file", callers, size, _files, _put_file)
    yield _threads(HASHED, callers, size, _files, _put_hashed)
    if _has_obstore():
        yield _threads("obstore", callers, size, _obstore, _put_obstore)
    yield _async("holdproof", callers, size, _put)
    yield _threads("holdproof sync", callers, size, _store, _put)


def _replaced(size: str, callers: int) -> Iterator[Contestant]:
    """Puts to keys that have other bytes, which are removed."""
    yield _threads("atomic file", callers, size, _files, _put_file, _put_file)
    yield _async("holdproof", callers, size, _put, _put)


def _gets(size: str, callers: int) -> Iterator[Contestant]:
    yield _threads(READ, callers, size, _files, _get_hashed, _put_file)
    for name, place in (("plain read", _files), ("obstore", _obstore)):
        if place is _files or _has_obstore():
            filled = _put_file if place is _files else _put_obstore
            read = _get_file if place is _files else _get_obstore
            yield _threads(name, callers, size, place, read, filled)
    yield _async("holdproof", callers, size, _get, _put)
    yield _threads("holdproof sync", callers, size, _store, _get, _put)


# --- what is done ------------------------------------------------------------------------------------------------


class Load:
    """Bytes that differ from put to put, and the key they are put under."""

    def __init__(self, size: str, keys: int | None = None) -> None:
        self._data = bytearray(os.urandom(4096) * (SIZES[size] // 4096))
        self._keys = keys

    def key(self, number: int) -> str:
        """A key of its own, or one of those there are."""
        return f"k{number if self._keys is None else number % self._keys}"

    def data(self, number: int) -> bytearray:
        """The same buffer with another beginning."""
        self._data[:8] = number.to_bytes(8, "big")
        return self._data


def _put_file(folder: Path, load: Load, number: int) -> None:
    aside = folder / f"{number}.tmp"
    handle = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        data = memoryview(load.data(number))
        while data:
            data = data[os.write(handle, data) :]
        os.fsync(handle)
    finally:
        os.close(handle)
    os.replace(aside, folder / load.key(number))
    place = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(place)
    finally:
        os.close(place)


def _put_hashed(folder: Path, load: Load, number: int) -> None:
    sha256(load.data(number)).hexdigest()
    _put_file(folder, load, number)


def _get_file(folder: Path, load: Load, number: int) -> None:
    assert (folder / load.key(number)).read_bytes()


def _get_hashed(folder: Path, load: Load, number: int) -> None:
    assert sha256((folder / load.key(number)).read_bytes()).hexdigest()


def _put_obstore(store: Any, load: Load, number: int) -> None:
    store.put(load.key(number), load.data(number), use_multipart=False)


def _get_obstore(store: Any, load: Load, number: int) -> None:
    assert store.get(load.key(number)).bytes().to_bytes()


def _put(blobs: Any, load: Load, number: int) -> Any:
    return blobs.put(load.key(number), load.data(number))


def _get(blobs: Any, load: Load, number: int) -> Any:
    return blobs.get(load.key(number))


# --- where ---------------------------------------------------------------------------------------------------------


@contextmanager
def _files() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="bench-blobs-") as folder:
        yield Path(folder)


@contextmanager
def _obstore() -> Iterator[Any]:
    from obstore.store import LocalStore  # noqa: PLC0415

    with _files() as folder:
        yield LocalStore(str(folder))


def _has_obstore() -> bool:
    found = importlib.util.find_spec("obstore") is not None
    if not found and sys.stderr.isatty():
        sys.stderr.write("obstore is not installed (pip install obstore): it takes no part\n")
    return found


@contextmanager
def _store() -> Iterator[Blobs[SyncExecutor]]:
    with _files() as folder, closing(open_database(folder / "membrane.db", space="membrane")) as database:
        yield Blobs(SyncExecutor(database), BlobStoreConfig(open_backend(folder / "blobs")))


# --- how -----------------------------------------------------------------------------------------------------------


def _threads(name: str, callers: int, size: str, place: Any, act: Any, fill: Any = None) -> Contestant:
    """Callers as threads."""

    def caller(where: Any, meter: Meter, first: int) -> None:
        load = Load(size, None if fill is None else KEYS[size])
        for number in itertools.count(first, callers):
            act(where, load, number)
            if not meter.done():
                return

    def sample(meter: Meter) -> None:
        with place() as where:
            load = Load(size)
            for number in range(KEYS[size] if fill is not None else 1):
                (fill or act)(where, load, FIRST if fill is None else number)
            meter.start()
            threads(callers, lambda first: caller(where, meter, first))

    return Contestant(name, callers, sample)


def _async(name: str, callers: int, size: str, act: Any, fill: Any = None) -> Contestant:
    """Callers as coroutines."""

    async def caller(blobs: Blobs[AsyncExecutor], meter: Meter, first: int) -> None:
        load = Load(size, None if fill is None else KEYS[size])
        for number in itertools.count(first, callers):
            await act(blobs, load, number)
            if not meter.done():
                return

    async def play(blobs: Blobs[AsyncExecutor], meter: Meter) -> None:
        load = Load(size)
        for number in range(KEYS[size] if fill is not None else 1):
            await (fill or act)(blobs, load, FIRST if fill is None else number)
        meter.start()
        await asyncio.gather(*(caller(blobs, meter, first) for first in range(callers)))

    def sample(meter: Meter) -> None:
        with _store() as blobs:
            asyncio.run(play(Blobs(AsyncExecutor(blobs._executor.database), blobs.held), meter))

    return Contestant(name, callers, sample)
