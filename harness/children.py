"""Processes that are there to be killed.

They are forked from one that has everything imported and nothing open: a start costs milliseconds, not a second.
"""

import os
import runpy
import select
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

FORKS = get_context("forkserver")
_PRELOADED: list[str] = []


def preload(*modules: str) -> None:
    """Import these before the first fork; later it only costs every child the time of its imports."""
    _PRELOADED.extend(modules)
    FORKS.set_forkserver_preload(_PRELOADED)


@dataclass(frozen=True, slots=True)
class Child:
    """One of them, and where it says what it acknowledges."""

    process: BaseProcess
    pipe: Connection

    def kill(self) -> None:
        """kill -9, and wait until it is gone."""
        self.process.kill()
        self.process.join()


@contextmanager
def child(module: str, *words: str) -> Iterator[Child]:
    """A module, running as a program; what it acknowledges comes out of its pipe. Dead when we leave."""
    ours, theirs = FORKS.Pipe(duplex=False)
    process = FORKS.Process(target=_become, args=(module, words, theirs), daemon=True)
    process.start()
    theirs.close()
    with ours:
        made = Child(process, ours)
        try:
            yield made
        finally:
            made.kill()


def _become(module: str, words: tuple[str, ...], pipe: Connection) -> None:
    os.dup2(pipe.fileno(), 1)
    pipe.close()
    sys.argv = [module, *words]
    sys.modules.pop(module, None)  # imported before the fork, for the sake of what it imports
    runpy.run_module(module, run_name="__main__")


def kill_after(child: Child, delay_s: float, meanwhile: Callable[[], None] = lambda: None) -> list[str]:
    """Let it write for that long after its first answer, kill it, and give back what it acknowledged."""
    pipe = child.pipe.fileno()
    data = b""
    deadline: float | None = None
    while deadline is None or time.monotonic() < deadline:
        timeout = 60 if deadline is None else max(0.0, deadline - time.monotonic())
        if not select.select([pipe], [], [], timeout)[0]:
            assert deadline is not None, "the writer said nothing for a minute"
            break
        chunk = os.read(pipe, 1 << 16)
        assert chunk, "the writer stopped by itself"
        data += chunk
        deadline = deadline or time.monotonic() + delay_s
        meanwhile()
    child.kill()
    while chunk := os.read(pipe, 1 << 16):
        data += chunk
    return data.decode().split("\n")[:-1]
