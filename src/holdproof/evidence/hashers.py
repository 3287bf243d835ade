"""Hash pages on every core: helper processes, because threads of one interpreter cannot share this work.

Rules:
- A helper computes what `digests.digest` computes here; one that cannot be started, or dies, only costs time.
- Pages come back in the order they went out; each helper has one page at a time, so no pipe can block both its ends.
"""

import os
import subprocess
import sys
from collections import deque
from contextlib import suppress
from types import TracebackType
from typing import Protocol

from holdproof.evidence import digests

_MOST_HELPERS = 8

Digests = tuple[bytes, bytes]


class _Worker(Protocol):
    def ask(self, leaves: bytes) -> None: ...
    def answer(self) -> Digests: ...


class Hashers:
    """A pool of hashing workers; a context manager, so that no helper process outlives its use."""

    def __init__(self, helpers: int | None = None) -> None:
        count = min(_MOST_HELPERS, _cores()) if helpers is None else helpers
        self._helpers = [helper for _ in range(count if count > 1 else 0) if (helper := _start()) is not None]
        # Without helpers the same interface computes in this process.
        self._free = deque[_Worker](self._helpers or (_Here(),))
        self._busy: deque[_Worker] = deque()

    @property
    def free(self) -> bool:
        """Whether `put` may be called now."""
        return bool(self._free)

    @property
    def busy(self) -> bool:
        """Whether `take` has a result to wait for."""
        return bool(self._busy)

    def put(self, leaves: bytes) -> None:
        """Give the next page to a worker that is free."""
        worker = self._free.popleft()
        worker.ask(leaves)
        self._busy.append(worker)

    def take(self) -> Digests:
        """The answer to the oldest page that is out."""
        worker = self._busy.popleft()
        digests_of_page = worker.answer()
        self._free.append(worker)
        return digests_of_page

    def __enter__(self) -> "Hashers":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for helper in self._helpers:
            helper.close()


class _Here:
    """A worker in this process, for a machine with one core."""

    def ask(self, leaves: bytes) -> None:
        self._leaves = leaves

    def answer(self) -> Digests:
        return digests.digest(self._leaves)


class _Helper:
    """One helper process."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = process
        self._leaves = b""

    def ask(self, leaves: bytes) -> None:
        self._leaves = leaves
        assert self._process.stdin is not None
        with suppress(OSError, ValueError):  # it died: `answer` computes the page here instead
            digests.send(self._process.stdin, leaves)

    def answer(self) -> Digests:
        stream = self._process.stdout
        assert stream is not None
        hashes = digests.receive(stream)
        roots = digests.receive(stream) if hashes is not None else None
        # A helper that died costs time, never an answer.
        return digests.digest(self._leaves) if hashes is None or roots is None else (hashes, roots)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with suppress(OSError):
                    stream.close()


def _start() -> _Helper | None:
    if not sys.executable:
        return None
    try:
        # Our own interpreter and our own file, nothing of a user's in it.
        process = subprocess.Popen(  # noqa: S603
            [sys.executable, "-I", "-S", digests.__file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
    except OSError:
        return None
    return _Helper(process)


def _cores() -> int:
    """Return how many cores this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on macOS
        return os.cpu_count() or 1
