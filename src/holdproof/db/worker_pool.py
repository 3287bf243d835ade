"""Jobs, and the threads that run them.

Rules:
- Every job is completed exactly once: with its result, its error, or the reason why it was not run.
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

# How often an idle worker of a pool with `relief` checks whether the busy one still makes progress.
_CHECK_S = 0.005

# Flags of a job.
READS = 1
"""It only reads."""
UNGATED = 2
"""It passes the gate: the lockdown's own records."""
SERIALIZABLE = 4
"""It needs that isolation, and a transaction of its own."""
ONCE = 8
"""It cannot run again."""


class ResultSink(Protocol):
    """Where results are delivered: one per event loop, one for all threads."""

    def claim(self, future: Any) -> bool:
        """Return whether the job may still run; False if its caller has cancelled it."""
        ...

    def post(self, jobs: "list[Job[Any]]") -> None:
        """Complete the futures of finished jobs; called on a worker thread, once a batch."""
        ...


class Job(Generic[T]):
    """A function of a transaction to be run, and later its result or error."""

    __slots__ = ("claimed", "error", "flags", "fn", "future", "result", "sink")

    def __init__(self, fn: Callable[[Tx], T], sink: ResultSink, future: Any, flags: int = 0) -> None:
        self.fn = fn
        self.sink = sink
        self.future = future
        self.flags = flags
        self.result: T | None = None
        self.error: BaseException | None = None
        self.claimed = False

    def claim(self) -> bool:
        """Return whether it may still run; called once, right before it does."""
        self.claimed = True
        return self.sink.claim(self.future)

    def fail(self, error: BaseException) -> None:
        """Record an error as the outcome, in place of any result."""
        self.result = None
        self.error = error


class FutureSink:
    """The result sink of threads: completes `concurrent.futures.Future`."""

    claim = staticmethod(Future.set_running_or_notify_cancel)

    def post(self, jobs: list[Job[Any]]) -> None:
        """See ResultSink."""
        for job in jobs:
            if job.future.done():
                continue
            if job.error is not None:
                job.future.set_exception(job.error)
            else:
                job.future.set_result(job.result)


FUTURES = FutureSink()


def deliver(jobs: Sequence[Job[Any]]) -> None:
    """Deliver every job's outcome to its sink, with one call for each sink."""
    by_sink: dict[ResultSink, list[Job[Any]]] = {}
    for job in jobs:
        by_sink.setdefault(job.sink, []).append(job)
    for sink, its_jobs in by_sink.items():
        sink.post(its_jobs)


def reject(jobs: Sequence[Job[Any]], reason: Callable[[], BaseException]) -> None:
    """Fail jobs that never ran; each gets an exception of its own, since tracebacks are attached to it."""
    live = [*filter(Job.claim, jobs)]
    for job in live:
        job.fail(reason())
    deliver(live)


class Worker(Protocol):
    """What a thread of the pool does with a batch of jobs."""

    @property
    def progress(self) -> int:
        """A number that grows with every job run."""
        ...

    def handle(self, jobs: list[Job[Any]]) -> list[Job[Any]]:
        """Claim, run and deliver jobs; returns those to be put back at the front of the queue."""
        ...

    def pause_s(self, waiting: int) -> float:
        """Return how long to wait for more jobs before a batch of that many begins; 0 to start at once."""
        ...

    def close(self) -> None:
        """Release what the worker holds; the last call, on its thread."""
        ...


class WorkerPool:
    """A queue of jobs and a thread for each worker.

    With `relief`, one worker at a time takes all jobs, and the others help only while it makes no progress: threads
    that share an interpreter gain nothing by sharing short jobs, but a long one must not delay the rest.
    """

    def __init__(self, name: str, workers: Sequence[Worker], *, batch: int, relief: bool = False) -> None:
        self.name = name
        self.workers = workers
        self.thread_ids: set[int] = set()
        """Identifiers of the worker threads, which must never wait for a job of their own pool."""
        self._batch = batch
        self._relief = relief
        # Whether an idle worker already watches the busy one; then a new job need not wake another.
        self._watched = False
        self._lock = threading.Lock()
        self._queue: deque[Job[Any]] = deque()
        # One locked lock per sleeping worker; releasing it wakes the worker. Cheaper than a condition variable.
        self._sleepers: list[threading.Lock] = []
        self._running = 0
        self._refusal: Callable[[], HoldproofError] | None = None
        self._threads = [
            threading.Thread(target=self._work, args=(worker,), name=f"holdproof-{name}", daemon=True)
            for worker in workers
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, job: Job[Any]) -> None:
        """Queue a job; raises if the pool accepts none any more (closed, forked, or its thread has died)."""
        with self._lock:
            if self._refusal is None:
                self._queue.append(job)
                if self._sleepers and not (self._relief and self._running and self._watched):
                    self._watched = self._running > 0
                    self._sleepers.pop().release()
                return
        raise self._refusal()

    @property
    def queued(self) -> int:
        """The number of jobs waiting for a worker."""
        return len(self._queue)

    @property
    def progress(self) -> int:
        """A number that grows with every job run."""
        return sum(worker.progress for worker in self.workers)

    @property
    def busy(self) -> bool:
        """Whether any job is queued or under way."""
        return self._running > 0 or len(self._queue) > 0

    def refuse(self, refusal: Callable[[], HoldproofError]) -> list[Job[Any]]:
        """Accept no more jobs, for this reason; returns those that were still queued."""
        with self._lock:
            self._refusal = refusal
            queued = list(self._queue)
            self._queue.clear()
            self._wake_all()
        return queued

    def disown(self, refusal: Callable[[], HoldproofError]) -> None:
        """Refuse all jobs in the child of a fork, where the threads do not exist."""
        # The inherited lock may have been locked by a thread that is not here to release it.
        self._lock = threading.Lock()
        self._refusal = refusal
        self._queue = deque()
        self._threads = []

    def close(self, timeout_s: float) -> None:
        """Finish what is queued, fail what cannot be finished in time, stop the threads."""
        with self._lock:
            if self._refusal is None:
                self._refusal = lambda: ClosedError("the store is closed")
            self._wake_all()
        deadline = time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        with self._lock:
            unfinished = list(self._queue)
            self._queue.clear()
        reject(unfinished, lambda: ClosedError("the store was closed before this call could run"))

    def _wake_all(self) -> None:
        while self._sleepers:
            self._sleepers.pop().release()

    def _work(self, worker: Worker) -> None:
        jobs: list[Job[Any]] = []
        self.thread_ids.add(threading.get_ident())
        try:
            while jobs := self._next_batch(worker):
                unfinished = worker.handle(jobs)
                with self._lock:
                    self._running -= 1
                    self._queue.extendleft(reversed(unfinished))
                    if unfinished and self._sleepers:
                        self._sleepers.pop().release()
        except BaseException as error:  # whatever it was, callers must get an error instead of waiting forever
            self._stop_after(jobs, error)
        finally:
            worker.close()
            # The system may give the number to another thread, which would be taken for this one.
            self.thread_ids.discard(threading.get_ident())

    def _next_batch(self, worker: Worker) -> list[Job[Any]]:
        """Wait for jobs and return a batch of them; empty when the pool is closed and drained."""
        wakeup = threading.Lock()
        wakeup.acquire()
        last_progress = -1
        while True:
            with self._lock:
                waiting = len(self._queue)
                watching = self._relief and self._running > 0
                if not waiting and self._refusal is not None:
                    return []
                stalled = False
                if self._relief:
                    progress = self.progress
                    stalled = progress == last_progress
                    last_progress = progress
                if not waiting or (watching and not stalled):
                    self._watched = watching
                    self._sleepers.append(wakeup)
                    waiting = 0
            if not waiting:
                self._sleep(wakeup, _CHECK_S if watching else -1)
                continue
            if batch := self._dequeue(worker, waiting):
                return batch

    def _sleep(self, wakeup: threading.Lock, seconds: float) -> None:
        if wakeup.acquire(timeout=seconds):
            return
        with self._lock:
            if wakeup in self._sleepers:
                self._sleepers.remove(wakeup)
            else:
                wakeup.acquire()  # it was released between the time-out and here

    def _dequeue(self, worker: Worker, waiting: int) -> list[Job[Any]]:
        """Take a batch off the queue: all of it, or this worker's share where all of them work in parallel."""
        # Where a commit costs more than the wait: first wait, while more jobs keep coming.
        while waiting < self._batch and (pause_s := worker.pause_s(waiting)):
            time.sleep(pause_s)
            before = waiting
            waiting = len(self._queue)
            if waiting <= before:
                break
        with self._lock:
            sharers = 1 if self._relief else len(self.workers)
            batch = list(islice(self._queue, min(self._batch, -(-len(self._queue) // sharers))))
            for _ in batch:
                self._queue.popleft()
            self._running += bool(batch)
            self._watched = False  # the watching worker is busy itself now
        return batch

    def _stop_after(self, jobs: list[Job[Any]], cause: BaseException) -> None:
        """Fail the batch, everything queued and every later job: the worker's thread is ending."""

        def reason() -> WriterDeadError:
            error = WriterDeadError(f"the {self.name} thread has died: {cause!r}")
            error.__cause__ = cause
            return error

        queued = self.refuse(reason)
        self._running -= 1
        # A claimed job must not be claimed again: its future is running already.
        claimed = [job for job in jobs if job.claimed]
        for job in claimed:
            job.fail(reason())
        deliver(claimed)
        reject([job for job in jobs if not job.claimed] + queued, reason)
