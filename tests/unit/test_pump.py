"""Pumps: every job is answered, whatever happens to its neighbours."""

import asyncio
import random
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextlib import closing
from typing import Any

import pytest

from holdproof.db import MEMORY, Tx, open_database
from holdproof.db.worker_pool import FUTURES, Job, WorkerPool, deliver
from holdproof.errors import ClosedError, HoldproofError, WriterDeadError
from holdproof.executors import AsyncExecutor
from holdproof.testing.schema import MIGRATIONS, add


class Doer:
    """A worker without a database: runs each job's function with nothing."""

    def __init__(self) -> None:
        self.progress = 0

    def pause_s(self, waiting: int) -> float:
        return 0.0

    def handle(self, jobs: list[Job[Any]]) -> list[Job[Any]]:
        for job in jobs:
            if job.claim():
                job.result = job.fn(None)  # type: ignore[arg-type]
                deliver([job])
            self.progress += 1
        return []

    def close(self) -> None:
        return


def _submit(pool: WorkerPool, fn: Any) -> "Future[Any]":
    future: Future[Any] = Future()
    pool.submit(Job(fn, FUTURES, future))
    return future


@pytest.mark.parametrize("workers", [2, 3, 4])
def test_a_short_job_waits_for_long_ones_only_if_every_worker_has_one(workers: int) -> None:
    pool, go = WorkerPool("test", [Doer() for _ in range(workers)], batch=8, relief=True), threading.Event()

    def long(entered: threading.Event) -> None:
        entered.set()
        go.wait(30)

    try:
        for _ in range(workers - 1):
            entered = threading.Event()
            _submit(pool, lambda _, e=entered: long(e))
            assert entered.wait(60), "a free worker did not step in"
        assert _submit(pool, lambda _: "short").result(60) == "short"
    finally:
        go.set()
        pool.close(10)


def test_a_pump_whose_worker_died_is_not_busy() -> None:
    """A busy pool keeps every event loop that used it looking, for ever."""
    pool = WorkerPool("test", [Doer()], batch=8)
    future = _submit(pool, lambda _: 1 // 0)
    assert isinstance(future.exception(5), WriterDeadError)
    pool.close(10)
    assert not pool.busy


def test_a_pump_whose_worker_died_takes_no_other_thread_for_it() -> None:
    """Systems give the number of a thread that ended to the next one, whose calls would be refused as nested."""
    pool = WorkerPool("test", [Doer()], batch=8)
    assert isinstance(_submit(pool, lambda _: 1 // 0).exception(5), WriterDeadError)
    pool.close(10)
    assert pool.thread_ids == set()


def test_an_operation_that_raises_stop_iteration_leaves_nobody_waiting() -> None:
    """`next(iter(rows))` on no rows; asyncio's futures refuse that one exception."""
    entered, go = threading.Event(), threading.Event()

    def hold(_: Tx) -> None:
        entered.set()
        go.wait(30)

    async def play(face: AsyncExecutor) -> int:
        held = asyncio.ensure_future(face.write(hold))
        while not entered.is_set():
            await asyncio.sleep(0.001)
        empty: list[str] = []
        both = [face.write(lambda _: next(iter(empty))), face.write(lambda tx: add(tx, "c"))]
        go.set()
        await held
        done, _ = await asyncio.wait(both, timeout=60)
        assert sum(isinstance(task.exception(), RuntimeError) for task in done) == 1
        return len(done)

    with closing(open_database(MEMORY, migrations=MIGRATIONS)) as db:
        assert asyncio.run(play(AsyncExecutor(db))) == 2


# --- every job is answered exactly once ----------------------------------------------------------------------------


class Box:
    """An result sink that counts: each future is claimed once at most and answered once exactly."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.cancelled: set[int] = set()
        self.claimed: list[int] = []
        self.answers: list[tuple[int, Any]] = []
        self.skipped: list[int] = []

    def cancel(self, future: int) -> None:
        with self._lock:
            self.cancelled.add(future)

    def claim(self, future: int) -> bool:
        with self._lock:
            wanted = future not in self.cancelled
            (self.claimed if wanted else self.skipped).append(future)
            return wanted

    def post(self, jobs: list[Job[Any]]) -> None:
        with self._lock:
            self.answers += [(job.future, job.error or job.result) for job in jobs]


def _giving(number: int) -> Callable[[Tx], int]:
    return lambda _: number


def _into(order: list[int], number: int) -> Callable[[Tx], None]:
    return lambda _: order.append(number)


class Returner(Doer):
    """Takes a few jobs of a batch, as a reader does whose snapshot has become old, and gives the rest back."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def handle(self, jobs: list[Job[Any]]) -> list[Job[Any]]:
        super().handle(jobs[: self._most])
        return jobs[self._most :]


def _race(pool: WorkerPool, sink: Box, seed: int) -> set[int]:
    """Four threads submit, one cancels, one closes in the middle; the futures that were taken."""
    taken: list[int] = []
    halfway = threading.Event()

    def submit(thread: int) -> None:
        chance = random.Random(f"{seed}/{thread}")
        for number in range(200):
            future = thread * 1000 + number
            try:
                pool.submit(Job(_giving(future), sink, future))
            except HoldproofError:
                continue
            taken.append(future)
            if chance.random() < 0.2:
                sink.cancel(taken[chance.randrange(len(taken))])
            if number == 100:
                halfway.set()

    threads = [threading.Thread(target=submit, args=(thread,)) for thread in range(4)]
    for thread in threads:
        thread.start()
    assert halfway.wait(30)
    pool.close(30)
    for thread in threads:
        thread.join(30)
    return set(taken)


def _answered_once(sink: Box, taken: set[int]) -> None:
    answered = [future for future, _ in sink.answers]
    assert len(answered) == len(set(answered)), "answered twice"
    assert set(answered) | set(sink.skipped) == taken, "neither answered nor skipped because its caller had gone"
    assert not set(answered) & set(sink.skipped)
    assert set(sink.skipped) <= sink.cancelled
    assert len(sink.claimed) == len(set(sink.claimed)), "claimed twice"


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize(("workers", "relief"), [(1, False), (3, False), (3, True)])
def test_racing_submit_cancel_and_close_answers_every_job_exactly_once(workers: int, relief: bool, seed: int) -> None:
    sink = Box()
    pool = WorkerPool("test", [Returner(5) for _ in range(workers)], batch=16, relief=relief)
    taken = _race(pool, sink, seed)
    _answered_once(sink, taken)
    assert all(answer == future for future, answer in sink.answers), "closing finishes what is queued"
    assert not pool.busy


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize(("workers", "relief"), [(1, False), (3, False), (3, True)])
def test_a_worker_that_dies_in_the_middle_of_a_batch_leaves_nobody_waiting(
    workers: int, relief: bool, seed: int
) -> None:
    chance, go, futures = random.Random(seed), threading.Event(), list[Future[Any]]()
    pool = WorkerPool("test", [Returner(5) for _ in range(workers)], batch=16, relief=relief)
    for number in range(200):
        deadly = number == 100
        futures.append(_submit(pool, lambda _, n=number, d=deadly: (go.wait(30), n // (not d))[1]))
        if chance.random() < 0.2:
            futures[chance.randrange(len(futures))].cancel()
    go.set()
    outcomes = [future.cancelled() or future.exception(10) for future in futures]
    assert all(outcome in (True, None) or isinstance(outcome, WriterDeadError) for outcome in outcomes)
    pool.close(30)


def test_a_cancelled_job_behind_one_that_kills_the_worker_is_told_so() -> None:
    pool, entered, go = WorkerPool("test", [Doer()], batch=8), threading.Event(), threading.Event()

    def deadly(_: Tx) -> None:
        entered.set()
        go.wait(60)
        raise MemoryError

    first = _submit(pool, lambda _: entered.wait(60))  # holds the worker until both of the others are queued
    futures = [_submit(pool, deadly), _submit(pool, lambda _: 1)]
    entered.set()
    first.result(60)
    futures[1].cancel()
    go.set()
    pool.close(10)
    assert not wait(futures, 1).not_done


def test_a_submit_after_the_close_is_refused_and_never_answered() -> None:
    pool, sink = WorkerPool("test", [Doer()], batch=8), Box()
    pool.close(10)
    with pytest.raises(ClosedError):
        pool.submit(Job(lambda _: 1, sink, 1))
    assert sink.answers == []


def test_jobs_that_are_given_back_keep_their_place() -> None:
    """What was taken first is carried out first, though a batch is handled three at a time."""
    sink, order, entered, go = Box(), list[int](), threading.Event(), threading.Event()
    pool = WorkerPool("test", [Returner(3)], batch=8)

    def hold(_: Tx) -> None:
        entered.set()
        go.wait(30)

    pool.submit(Job(hold, sink, -1))
    assert entered.wait(30)
    for number in range(40):
        pool.submit(Job(_into(order, number), sink, number))
    go.set()
    pool.close(30)
    assert order == list(range(40))


def test_jobs_that_are_given_back_are_finished_though_the_pump_is_closing() -> None:
    sink, entered, go = Box(), threading.Event(), threading.Event()
    pool = WorkerPool("test", [Returner(1)], batch=64)

    def hold(_: Tx) -> None:
        entered.set()
        go.wait(30)

    pool.submit(Job(hold, sink, 0))
    assert entered.wait(30)
    for number in range(1, 20):
        pool.submit(Job(lambda _: None, sink, number))
    closing_ = threading.Thread(target=pool.close, args=(30,))
    closing_.start()
    go.set()
    closing_.join(30)
    assert [future for future, _ in sink.answers] == list(range(20))


def test_what_was_given_back_after_the_close_gave_up_is_still_answered_once() -> None:
    sink, entered, go = Box(), threading.Event(), threading.Event()
    pool = WorkerPool("test", [Returner(1)], batch=64)

    def hold(_: Tx) -> None:
        entered.set()
        go.wait(30)

    for number in range(20):
        pool.submit(Job(hold if number == 0 else lambda _: None, sink, number))
    assert entered.wait(30)
    pool.close(0.01)
    go.set()
    pool.close(30)
    _answered_once(sink, set(range(20)))
