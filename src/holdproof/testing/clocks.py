"""A clock that stands still and randomness that repeats."""

import hashlib

from holdproof.model.times import to_micros


class FrozenClock:
    """A clock that moves only when told to."""

    def __init__(self, at: str = "2026-01-01T00:00:00Z") -> None:
        self.micros = to_micros(at)

    def __call__(self) -> int:
        """Microseconds since 1970."""
        return self.micros

    def advance(self, seconds: float) -> None:
        """Move the time forward, or back with a negative number."""
        self.micros += round(seconds * 1_000_000)


class SeededRandom:
    """The same bytes in every run: SHA-256 of the seed and a counter."""

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed
        self._count = 0

    def __call__(self, size: int) -> bytes:
        """Return that many bytes."""
        # A counter makes the stream endless, the seed makes it repeatable.
        data = b""
        while len(data) < size:
            self._count += 1
            data += hashlib.sha256(f"{self._seed}/{self._count}".encode()).digest()
        return data[:size]
