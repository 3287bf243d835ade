"""Long work that a request begins and a page watches: verification, recovery, images.

Rules:
- A job runs once, in this process; its end, good or bad, is kept until `MAX_ENDED` others have ended after it.
- The server's end cancels what still runs: work of ours is made to be cut off at any moment.
- A caller bound to a namespace sees the jobs of that namespace only.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final

from holdproof.errors import HoldproofError, NotFoundError, RateLimitedError
from holdproof.model.progress import Progress

_log = logging.getLogger("holdproof.server")

MAX_ENDED: Final = 20
MOST: Final = 4
"""How many run at a time."""


@dataclass(slots=True)
class ServerJob:
    """One piece of long work: what it is, how far it has come, and what came of it."""

    number: int
    kind: str
    by: str
    ns: str | None
    """The namespace that its caller is bound to; None for every one."""
    began_at: str
    stage: str = ""
    done: int = 0
    total: int = 0
    stages: list[str] = field(default_factory=list)
    ended_at: str | None = None
    result: Any = None
    error: str = ""

    @property
    def running(self) -> bool:
        """Whether it is still at work."""
        return self.ended_at is None

    def tell(self, stage: str, done: int, total: int) -> None:
        """What the work says of itself; may come from any thread."""
        if stage != self.stage:
            self.stages.append(stage)
        self.stage = stage
        self.done = done
        self.total = total


class Jobs:
    """The jobs of one server."""

    def __init__(self, now: Callable[[], str]) -> None:
        self._now = now
        self._next = 1
        self._jobs: dict[int, ServerJob] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}

    def start(self, kind: str, by: str, ns: str | None, work: Callable[[Progress], Awaitable[Any]]) -> ServerJob:
        """Begin some work for somebody bound to a namespace, or to none; RateLimitedError if too much is under way."""
        if len(self._tasks) >= MOST:
            raise RateLimitedError("too much is under way already", retry_after_s=5.0)
        job = ServerJob(self._next, kind, by, ns, self._now())
        self._next += 1
        self._jobs[job.number] = job
        # Oldest first, as dictionaries keep their order; running jobs are never forgotten.
        ended = [each.number for each in self._jobs.values() if not each.running]
        for number in ended[:-MAX_ENDED]:
            del self._jobs[number]
        self._tasks[job.number] = asyncio.create_task(self._run(job, work))
        return job

    async def _run(self, job: ServerJob, work: Callable[[Progress], Awaitable[Any]]) -> None:
        try:
            job.result = await work(job.tell)
        except HoldproofError as error:
            job.error = error.message
        except Exception:
            _log.exception("the job %d (%s) failed", job.number, job.kind)
            job.error = "this failed in a way it should not; the server's log has more"
        finally:
            job.ended_at = self._now()
            self._tasks.pop(job.number, None)

    def get(self, number: int, ns: str | None = None) -> ServerJob:
        """A job that runs, or ended not long ago; of a namespace only, if one is given."""
        job = self._jobs.get(number)
        if job is None or ns not in (None, job.ns):
            raise NotFoundError("there is no such job; the server forgets the old ones", number=number)
        return job

    def list(self, ns: str | None = None) -> tuple[ServerJob, ...]:
        """The jobs that are known, the newest first; of a namespace only, if one is given."""
        return tuple(each for each in reversed(self._jobs.values()) if ns in (None, each.ns))

    async def stop(self) -> None:
        """End what still runs."""
        tasks = dict(self._tasks)
        for task in tasks.values():
            task.cancel()
        await asyncio.gather(*tasks.values(), return_exceptions=True)
        for number in tasks:
            # A task cancelled before its first step never reached the `finally` of _run.
            self._jobs[number].ended_at = self._jobs[number].ended_at or self._now()
            self._jobs[number].error = self._jobs[number].error or "the server ended"
