"""Where a simulation runs: a store whose clock, randomness and log key come from the seed."""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from hashlib import sha256
from pathlib import Path

from harness.servers import Postgres
from holdproof import sync
from holdproof.crypto import keys
from holdproof.db import MEMORY
from holdproof.evidence.key_files import MemoryKeys
from holdproof.testing import FrozenClock, SeededRandom

Opening = Callable[[], sync.Holdproof]


class SeededKeys(MemoryKeys):
    """Log and root keys that are the same in every run: a key is a leaf, and a leaf is part of the root."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        for role in ("log", "root"):
            self._current[role] = keys.from_seed(sha256(f"simulation {seed} {role}".encode()).digest())


def opening(seed: int, home: Path, url: str | None = None) -> tuple[Opening, FrozenClock]:
    """How to open the store of a run, any number of times, and its clock."""
    clock = FrozenClock()
    return partial(sync.open, home, url, clock=clock, random=SeededRandom(seed), keys=SeededKeys(seed)), clock


@contextmanager
def somewhere(place: str, seed: int) -> Iterator[tuple[Opening, FrozenClock]]:
    """A store in memory, in a file or on a server, gone afterwards."""
    server = Postgres(syncs=False) if place == "postgres" else None
    with tempfile.TemporaryDirectory(prefix="holdproof-simulation-") as folder:
        url = server.url() if server else MEMORY if place == "memory" else None
        try:
            yield opening(seed, Path(folder) / "home", url)
        finally:
            if server:
                server.stop()
