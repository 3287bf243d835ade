"""Jobs, and the threads that carry them out.

Rules:
- Every job is answered exactly once: with its result, its error, or the reason why it was not carried out.
- A cancelled caller never hurts a worker: a job is claimed before it runs, and one cancelled by then is skipped.
- A worker that dies fails every pending and later job with its cause; nothing hangs.
- Closing finishes what is queued; what cannot be finished in time is failed, never lost silently.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from itertools import islice
from typing import Any, Generic, Protocol, TypeVar

from holdproof.db.tx import Tx
from holdproof.errors import ClosedError, HoldproofError, WriterDeadError

T = TypeVar("T")

_LOOK_S = 0.005

READS, UNGATED, SERIALIZABLE, ONCE = 1, 2, 4, 8
"""Flags of a job: it only reads; the gate does not concern it; it wants that isolation; it cannot run again."""


class ResultSink(Protocol):
    """Where answers go: one per event loop, one for all threads."""

    def claim(self, ticket: Any) -> bool:
        """May the job still run? False if its caller has gone."""
        ...

    def post(self, jobs: "list[Job[Any]]") -> None:
        """Hand over finished jobs; called on a worker thread, once a batch."""
        ...


class Job(Generic[T]):
    """A function of a transaction on its way, and later its answer."""

    __slots__ = ("box", "claimed", "error", "flags", "fn", "result", "ticket")

    def __init__(self, fn: Callable[[Tx], T], box: ResultSink, ticket: Any, flags: int = 0) -> None:
        self.fn = fn
        self.box = box
        self.ticket = ticket
        self.flags = flags
        self.result: T | None = None
        self.error: BaseException | None = None
        self.claimed = False

    def claim(self) -> bool:
        """May it still run? Asked once."""
        self.claimed = True
        return self.box.claim(self.ticket)


class Futures:
    """The outbox of threads: tickets are `concurrent.futures.Future`."""

    def claim(self, ticket: "Future[Any]") -> bool:
        """See ResultSink."""
        return ticket.set_running_or_notify_cancel()

    def post(self, jobs: list[Job[Any]]) -> None:
        """See ResultSink."""
        for job in jobs:
            if job.ticket.done():
                continue
            if job.error is not None:
                job.ticket.set_exception(job.error)
            else:
                job.ticket.set_result(job.result)


FUTURES = Futures()


def deliver(jobs: Sequence[Job[Any]]) -> None:
    """Give every job's answer to its outbox, one call an outbox."""
    while jobs:
        box = jobs[0].box
        mine = [job for job in jobs if job.box is box]
        box.post(mine)
        jobs = [job for job in jobs if job.box is not box] if len(mine) < len(jobs) else ()


def fail(jobs: Sequence[Job[Any]], reason: Callable[[], BaseException]) -> None:
    """Answer jobs that were not carried out; each gets an exception of its own."""
    claimed = [job for job in jobs if job.claim()]
    for job in claimed:
        job.error = reason()
    deliver(claimed)


class Worker(Protocol):
    """What a pump's thread does with a batch."""

    @property
    def progress(self) -> int:
        """Grows with every job carried out."""
        ...

    def handle(self, jobs: list[Job[Any]]) -> list[Job[Any]]:
        """Claim, run and deliver jobs; jobs given back go to the front of the queue."""
        ...

    def pause_s(self, waiting: int) -> float:
        """How long to wait for company before a batch of that many begins; 0 to start at once."""
        ...

    def close(self) -> None:
        """Free what the worker holds; called on its thread, last."""
        ...


class WorkerPool:
    """A queue of jobs and a thread for each worker.

    With `relief`, one worker at a time takes everything and the others step in only while it makes no progress: threads
    that share an interpreter gain nothing by sharing short jobs, but a long one must not hold up the rest.
    """

    def __init__(self, name: str, workers: Sequence[Worker], *, batch: int, relief: bool = False) -> None:
        self.name, self.workers = name, workers
        self._batch, self._relief, self._watched = batch, relief, False
        self._lock = threading.Lock()
        self._queue: deque[Job[Any]] = deque()
        self._sleepers: list[threading.Lock] = []
        self._running = 0
        self._idents: set[int] = set()
        self._refusal: Callable[[], HoldproofError] | None = None
        self._threads = [
            threading.Thread(target=self._work, args=(worker,), name=f"holdproof-{name}", daemon=True)
            for worker in workers
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, job: Job[Any]) -> None:
        """Queue a job; raises where no job is taken any more."""
        with self._lock:
            if self._refusal is None:
                self._queue.append(job)
                if self._sleepers and not (self._relief and self._running and self._watched):
                    self._watched = self._running > 0
                    self._sleepers.pop().release()
                return
        raise self._refusal()

    def works_here(self) -> bool:
        """Whether the calling thread is one of the workers, which must not wait for a job of their own pump."""
        return threading.get_ident() in self._idents

    @property
    def queued(self) -> int:
        """Jobs waiting for a worker."""
        return len(self._queue)

    @property
    def progress(self) -> int:
        """Grows with every job carried out."""
        return sum(worker.progress for worker in self.workers)

    @property
    def busy(self) -> bool:
        """Whether any job is queued or under way."""
        return self._running > 0 or len(self._queue) > 0

    def refuse(self, refusal: Callable[[], HoldproofError]) -> list[Job[Any]]:
        """Take no more jobs, for this reason; gives back what was still queued."""
        with self._lock:
            self._refusal = refusal
            left = list(self._queue)
            self._queue.clear()
            self._ring_all()
        return left

    def disown(self, refusal: Callable[[], HoldproofError]) -> None:
        """In the child of a fork: nothing is left but to refuse; even the lock may have been held by another thread."""
        self._lock = threading.Lock()
        self._refusal, self._queue, self._threads = refusal, deque(), []

    def close(self, timeout_s: float) -> None:
        """Finish what is queued, fail what cannot be finished in time, stop the threads."""
        with self._lock:
            if self._refusal is None:
                self._refusal = lambda: ClosedError("the store is closed")
            self._ring_all()
        deadline = time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        with self._lock:
            left = list(self._queue)
            self._queue.clear()
        fail(left, lambda: ClosedError("the store was closed before this call could be carried out"))

    def _ring_all(self) -> None:
        while self._sleepers:
            self._sleepers.pop().release()

    def _work(self, worker: Worker) -> None:
        jobs: list[Job[Any]] = []
        self._idents.add(threading.get_ident())
        try:
            while jobs := self._take(worker):
                self._give_back(worker.handle(jobs))
        except BaseException as error:  # whatever it was, callers must hear of it
            self._die(jobs, error)
        finally:
            worker.close()

    def _take(self, worker: Worker) -> list[Job[Any]]:
        """The next batch; empty when the pump is closed and drained."""
        bell = threading.Lock()
        bell.acquire()
        seen = -1
        while True:
            with self._lock:
                waiting, watching = len(self._queue), self._relief and self._running > 0
                if not waiting and self._refusal is not None:
                    return []
                stalled = seen == (seen := self.progress)
                if not waiting or (watching and not stalled):
                    self._watched = watching
                    self._sleepers.append(bell)
                    waiting = 0
            if not waiting:
                self._sleep(bell, _LOOK_S if watching else -1)
                continue
            self._gather(worker, waiting)
            if batch := self._share():
                return batch

    def _sleep(self, bell: threading.Lock, seconds: float) -> None:
        if bell.acquire(timeout=seconds):
            return
        with self._lock:
            if bell in self._sleepers:
                self._sleepers.remove(bell)
            else:
                bell.acquire()  # rung at this very moment

    def _share(self) -> list[Job[Any]]:
        """A batch off the queue: all of it, or this worker's part where all work side by side."""
        with self._lock:
            sharers = 1 if self._relief else len(self.workers)
            batch = list(islice(self._queue, min(self._batch, -(-len(self._queue) // sharers))))
            for _ in batch:
                self._queue.popleft()
            self._running += bool(batch)
            self._watched = False  # whoever watched is at work now
        return batch

    def _gather(self, worker: Worker, waiting: int) -> None:
        """Wait while callers keep arriving, where a commit costs more than the wait."""
        while waiting < self._batch and (pause_s := worker.pause_s(waiting)):
            time.sleep(pause_s)
            arrived = len(self._queue)
            if arrived <= waiting:
                return
            waiting = arrived

    def _give_back(self, jobs: list[Job[Any]]) -> None:
        with self._lock:
            self._running -= 1
            self._queue.extendleft(reversed(jobs))
            if jobs and self._sleepers:
                self._sleepers.pop().release()

    def _die(self, jobs: list[Job[Any]], cause: BaseException) -> None:
        def reason() -> WriterDeadError:
            error = WriterDeadError(f"the {self.name} thread has died: {cause!r}")
            error.__cause__ = cause
            return error

        left = self.refuse(reason)
        self._running -= 1
        claimed = [job for job in jobs if job.claimed]
        for job in claimed:
            job.error, job.result = reason(), None
        deliver(claimed)
        fail([job for job in jobs if not job.claimed] + left, reason)
