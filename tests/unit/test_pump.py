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


def _submit(pump: WorkerPool, fn: Any) -> "Future[Any]":
    ticket: Future[Any] = Future()
    pump.submit(Job(fn, FUTURES, ticket))
    return ticket


@pytest.mark.parametrize("workers", [2, 3, 4])
def test_a_short_job_waits_for_long_ones_only_if_every_worker_has_one(workers: int) -> None:
    pump, go = WorkerPool("test", [Doer() for _ in range(workers)], batch=8, relief=True), threading.Event()

    def long(entered: threading.Event) -> None:
        entered.set()
        go.wait(30)

    try:
        for _ in range(workers - 1):
            entered = threading.Event()
            _submit(pump, lambda _, e=entered: long(e))
            assert entered.wait(5), "a free worker did not step in"
        assert _submit(pump, lambda _: "short").result(5) == "short"
    finally:
        go.set()
        pump.close(10)


def test_a_pump_whose_worker_died_is_not_busy() -> None:
    """A busy pump keeps every event loop that used it looking, for ever."""
    pump = WorkerPool("test", [Doer()], batch=8)
    ticket = _submit(pump, lambda _: 1 // 0)
    assert isinstance(ticket.exception(5), WriterDeadError)
    pump.close(10)
    assert not pump.busy


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
        done, _ = await asyncio.wait(both, timeout=5)
        assert sum(isinstance(task.exception(), RuntimeError) for task in done) == 1
        return len(done)

    with closing(open_database(MEMORY, migrations=MIGRATIONS)) as db:
        assert asyncio.run(play(AsyncExecutor(db))) == 2


# --- every job is answered exactly once ----------------------------------------------------------------------------


class Box:
    """An outbox that counts: each ticket is claimed once at most and answered once exactly."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.cancelled: set[int] = set()
        self.claimed: list[int] = []
        self.answers: list[tuple[int, Any]] = []
        self.skipped: list[int] = []

    def cancel(self, ticket: int) -> None:
        with self._lock:
            self.cancelled.add(ticket)

    def claim(self, ticket: int) -> bool:
        with self._lock:
            wanted = ticket not in self.cancelled
            (self.claimed if wanted else self.skipped).append(ticket)
            return wanted

    def post(self, jobs: list[Job[Any]]) -> None:
        with self._lock:
            self.answers += [(job.ticket, job.error or job.result) for job in jobs]


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


def _race(pump: WorkerPool, box: Box, seed: int) -> set[int]:
    """Four threads submit, one cancels, one closes in the middle; the tickets that were taken."""
    taken: list[int] = []
    halfway = threading.Event()

    def submit(thread: int) -> None:
        chance = random.Random(f"{seed}/{thread}")
        for number in range(200):
            ticket = thread * 1000 + number
            try:
                pump.submit(Job(_giving(ticket), box, ticket))
            except HoldproofError:
                continue
            taken.append(ticket)
            if chance.random() < 0.2:
                box.cancel(taken[chance.randrange(len(taken))])
            if number == 100:
                halfway.set()

    threads = [threading.Thread(target=submit, args=(thread,)) for thread in range(4)]
    for thread in threads:
        thread.start()
    assert halfway.wait(30)
    pump.close(30)
    for thread in threads:
        thread.join(30)
    return set(taken)


def _answered_once(box: Box, taken: set[int]) -> None:
    answered = [ticket for ticket, _ in box.answers]
    assert len(answered) == len(set(answered)), "answered twice"
    assert set(answered) | set(box.skipped) == taken, "neither answered nor skipped because its caller had gone"
    assert not set(answered) & set(box.skipped)
    assert set(box.skipped) <= box.cancelled
    assert len(box.claimed) == len(set(box.claimed)), "claimed twice"


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize(("workers", "relief"), [(1, False), (3, False), (3, True)])
def test_racing_submit_cancel_and_close_answers_every_job_exactly_once(workers: int, relief: bool, seed: int) -> None:
    box = Box()
    pump = WorkerPool("test", [Returner(5) for _ in range(workers)], batch=16, relief=relief)
    taken = _race(pump, box, seed)
    _answered_once(box, taken)
    assert all(answer == ticket for ticket, answer in box.answers), "closing finishes what is queued"
    assert not pump.busy


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize(("workers", "relief"), [(1, False), (3, False), (3, True)])
def test_a_worker_that_dies_in_the_middle_of_a_batch_leaves_nobody_waiting(
    workers: int, relief: bool, seed: int
) -> None:
    chance, go, tickets = random.Random(seed), threading.Event(), list[Future[Any]]()
    pump = WorkerPool("test", [Returner(5) for _ in range(workers)], batch=16, relief=relief)
    for number in range(200):
        deadly = number == 100
        tickets.append(_submit(pump, lambda _, n=number, d=deadly: (go.wait(30), n // (not d))[1]))
        if chance.random() < 0.2:
            tickets[chance.randrange(len(tickets))].cancel()
    go.set()
    outcomes = [ticket.cancelled() or ticket.exception(10) for ticket in tickets]
    assert all(outcome in (True, None) or isinstance(outcome, WriterDeadError) for outcome in outcomes)
    pump.close(30)


def test_a_cancelled_job_behind_one_that_kills_the_worker_is_told_so() -> None:
    pump, entered, go = WorkerPool("test", [Doer()], batch=8), threading.Event(), threading.Event()

    def deadly(_: Tx) -> None:
        entered.set()
        go.wait(10)
        raise MemoryError

    first = _submit(pump, lambda _: entered.wait(10))  # holds the worker until both of the others are queued
    tickets = [_submit(pump, deadly), _submit(pump, lambda _: 1)]
    entered.set()
    first.result(10)
    tickets[1].cancel()
    go.set()
    pump.close(10)
    assert not wait(tickets, 1).not_done


def test_a_submit_after_the_close_is_refused_and_never_answered() -> None:
    pump, box = WorkerPool("test", [Doer()], batch=8), Box()
    pump.close(10)
    with pytest.raises(ClosedError):
        pump.submit(Job(lambda _: 1, box, 1))
    assert box.answers == []


def test_jobs_that_are_given_back_keep_their_place() -> None:
    """What was taken first is carried out first, though a batch is handled three at a time."""
    box, order, entered, go = Box(), list[int](), threading.Event(), threading.Event()
    pump = WorkerPool("test", [Returner(3)], batch=8)

    def hold(_: Tx) -> None:
        entered.set()
        go.wait(30)

    pump.submit(Job(hold, box, -1))
    assert entered.wait(30)
    for number in range(40):
        pump.submit(Job(_into(order, number), box, number))
    go.set()
    pump.close(30)
    assert order == list(range(40))


def test_jobs_that_are_given_back_are_finished_though_the_pump_is_closing() -> None:
    box, entered, go = Box(), threading.Event(), threading.Event()
    pump = WorkerPool("test", [Returner(1)], batch=64)

    def hold(_: Tx) -> None:
        entered.set()
        go.wait(30)

    pump.submit(Job(hold, box, 0))
    assert entered.wait(30)
    for number in range(1, 20):
        pump.submit(Job(lambda _: None, box, number))
    closing_ = threading.Thread(target=pump.close, args=(30,))
    closing_.start()
    go.set()
    closing_.join(30)
    assert [ticket for ticket, _ in box.answers] == list(range(20))


def test_what_was_given_back_after_the_close_gave_up_is_still_answered_once() -> None:
    box, entered, go = Box(), threading.Event(), threading.Event()
    pump = WorkerPool("test", [Returner(1)], batch=64)

    def hold(_: Tx) -> None:
        entered.set()
        go.wait(30)

    for number in range(20):
        pump.submit(Job(hold if number == 0 else lambda _: None, box, number))
    assert entered.wait(30)
    pump.close(0.01)
    go.set()
    pump.close(30)
    _answered_once(box, set(range(20)))
