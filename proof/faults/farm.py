"""Processes for one task each: forked from a parent that has everything imported and nothing open, thrown away after.

So every fault meets a store in a process of its own, as it would; what the process leaves in memory is gone with it.
"""

import os
import pickle
import select
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")

TIMEOUT_S = 120.0


class HungError(Exception):
    """A task did not end in time; its process was killed."""


@dataclass(slots=True)
class _Running(Generic[T]):
    task: T
    process: int
    pipe: int
    until: float
    data: bytes = b""


def farm(tasks: Iterable[T], work: Callable[[T], R], jobs: int) -> Iterator[tuple[T, R | Exception]]:
    """Run every task in a process of its own, a few at once; answers come as they are ready."""
    waiting, running = iter(tasks), dict[int, _Running[T]]()
    while True:
        for task in islice(waiting, jobs - len(running)):  # one by one: each begins with the parent as it is then
            started = _start(task, work)
            running[started.pipe] = started
        if not running:
            return
        for pipe in select.select(list(running), [], [], 1.0)[0]:
            if data := os.read(pipe, 1 << 20):
                running[pipe].data += data
            else:
                ended = running.pop(pipe)
                yield ended.task, _end(ended)
        for late in [each for each in running.values() if time.monotonic() > each.until]:
            os.kill(late.process, signal.SIGKILL)
            running.pop(late.pipe)
            _end(late)
            yield late.task, HungError(f"no end within {TIMEOUT_S:.0f} s")


def alone(work: Callable[[], R]) -> R:
    """Run one task in a process of its own and wait for it."""
    [(_, answer)] = farm([None], lambda _: work(), 1)
    if isinstance(answer, Exception):
        raise answer
    return answer


def _start(task: T, work: Callable[[T], Any]) -> _Running[T]:
    ours, theirs = os.pipe()
    process = os.fork()
    if process == 0:
        os.close(ours)
        _child(theirs, lambda: work(task))
    os.close(theirs)
    return _Running(task, process, ours, time.monotonic() + TIMEOUT_S)


def _child(pipe: int, work: Callable[[], Any]) -> None:
    try:
        answer = work()
    except Exception as error:
        error.add_note(f"in process {os.getpid()}")
        answer = error
    try:
        data = pickle.dumps(answer)
    except Exception:
        data = pickle.dumps(RuntimeError(repr(answer)))
    with os.fdopen(pipe, "wb") as file:
        file.write(data)
    os._exit(0)


def _end(ended: _Running[Any]) -> Any:
    os.close(ended.pipe)
    _, status = os.waitpid(ended.process, 0)
    if not ended.data:
        return RuntimeError(f"the process ended with {status} and said nothing")
    return pickle.loads(ended.data)
