"""Four worker processes, each of which may be killed and is then replaced."""

import os
import select
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Final

from harness.children import Child, child, preload
from proof.workflows import mixed_worker

WORKERS: Final = 4

preload(mixed_worker.__name__)


@dataclass
class Member:
    """A worker of the fleet, and what it has acknowledged so far."""

    process: Child
    stack: ExitStack
    data: bytes = b""
    acknowledged_at: float | None = None

    @property
    def lines(self) -> list[str]:
        """Every whole line; one that a kill cut short was not acknowledged."""
        return self.data.decode().split("\n")[:-1]


@dataclass
class Fleet:
    """Four worker processes; one that is killed is replaced."""

    words: tuple[str, ...]
    seed: str
    members: list[Member] = field(default_factory=list)
    acknowledged: list[str] = field(default_factory=list)
    dead: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    """When killed processes were gone, by their id: the system gives an id to another one after a while."""
    started: int = 0

    def start(self) -> None:
        """Start one more worker."""
        stack = ExitStack()
        process = stack.enter_context(child(mixed_worker.__name__, *self.words, f"{self.seed} {self.started}"))
        self.started += 1
        self.members.append(Member(process, stack))

    def listen(self, seconds: float) -> None:
        """Take in what the workers acknowledge, for that long at most."""
        pipes = {member.process.pipe.fileno(): member for member in self.members}
        for pipe in select.select([*pipes], [], [], seconds)[0]:
            chunk = os.read(pipe, 1 << 16)
            assert chunk, "a worker ended by itself"
            member = pipes[pipe]
            member.data += chunk
            member.acknowledged_at = member.acknowledged_at or time.monotonic()

    def kill(self, member: Member) -> None:
        """kill -9; what it had acknowledged counts."""
        self.members.remove(member)
        pid = member.process.process.pid
        member.process.kill()
        self.dead[str(pid)].append(time.monotonic())
        while chunk := os.read(member.process.pipe.fileno(), 1 << 16):
            member.data += chunk
        self._dismiss(member)

    def join(self) -> None:
        """Wait for workers that were asked to end."""
        for member in self.members:
            member.process.process.join(60)
            assert member.process.process.exitcode == 0
            self._dismiss(member)
        self.members = []

    def _dismiss(self, member: Member) -> None:
        self.acknowledged += member.lines
        member.stack.close()

    def dismiss_all(self) -> None:
        """Leave no process behind."""
        for member in self.members:
            member.stack.close()


@contextmanager
def fleet(*words: str, seed: str) -> Iterator[Fleet]:
    """Four workers, none of which is left when the block is."""
    workers = Fleet(words, seed)
    try:
        for _ in range(WORKERS):
            workers.start()
        yield workers
    finally:
        workers.dismiss_all()
