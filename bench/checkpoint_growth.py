"""Stores that keep many checkpoints: what a put costs where there were a thousand before it, or a million.

Threads of twenty checkpoints, a list that grows by an element of 300 bytes each time; put many to a transaction until
so many are kept. HOLDPROOF_BENCH_CHECKPOINTS is the largest number of them that is filled in.
"""

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from hashlib import sha256
from itertools import count

from bench.measurement import Contestant, Meter, Race, progress
from holdproof import sync
from holdproof.db import Tx
from holdproof.memory.threads import threads
from holdproof.model.threads import EncodedList

TITLE = "a put among others"
_MOST = int(os.environ.get("HOLDPROOF_BENCH_CHECKPOINTS", "1000000"))
SIZES = tuple(size for size in (1_000, 10_000, 100_000, 1_000_000) if size <= max(_MOST, 1_000))
_LENGTH, _THREADS = 20, 50


def name(kept: int) -> str:
    """How a contestant is called."""
    return f"{kept:,} checkpoints"


@contextmanager
def race() -> Iterator[Race]:
    """The race, for as long as its stores are there."""
    with ExitStack() as stack:
        contestants = [Contestant(name(size), 1, _puts(stack.enter_context(_filled(size)))) for size in SIZES]
        yield Race(TITLE, contestants, [contestants[0].label])


@contextmanager
def _filled(kept: int) -> Iterator[sync.Holdproof]:
    with tempfile.TemporaryDirectory(prefix="bench-") as folder, sync.open(folder) as store:
        whole = kept // _LENGTH
        for first in range(0, whole, _THREADS):
            progress(f"filling a store: {first * _LENGTH:,} of {kept:,} checkpoints")
            store.write(lambda tx, at=first: _fill(tx, range(at, min(at + _THREADS, whole))))  # type: ignore[misc]
        progress("")
        yield store


def _fill(tx: Tx, numbers: range) -> None:
    for number in numbers:
        parent, digests = None, tuple[bytes, ...]()
        for turn in range(_LENGTH):
            digests, run = _longer(digests, f"{number} {turn}")
            parent = threads.put_checkpoint(tx, f"kept-{number}", {"list": run}, parent_id=parent).checkpoint_id


def _longer(digests: tuple[bytes, ...], text: str) -> tuple[tuple[bytes, ...], EncodedList]:
    """A list with one element more."""
    data = text.encode().ljust(300, b"x")
    digests += (sha256(data).digest(),)
    return digests, EncodedList("m", digests, {digests[-1]: data})


def _puts(store: sync.Holdproof) -> Callable[[Meter], None]:
    fresh = count()

    def sample(meter: Meter) -> None:
        meter.start()
        while True:
            thread, parent, digests = f"new-{next(fresh)}", None, tuple[bytes, ...]()
            for turn in range(_LENGTH):
                digests, run = _longer(digests, f"{thread} {turn}")
                parent = store.threads.put_checkpoint(thread, {"list": run}, parent_id=parent).checkpoint_id
                if not meter.done():
                    return

    return sample
