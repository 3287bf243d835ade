"""Pumps: every job is answered, whatever happens to its neighbours."""

import asyncio
import threading
from concurrent.futures import Future
from contextlib import closing
from typing import Any

import pytest

from holdfast.db import MEMORY, Tx, open_database
from holdfast.db.pump import FUTURES, Job, Pump, deliver
from holdfast.errors import WriterDeadError
from holdfast.ops import AsyncFace
from holdfast.testing.schema import MIGRATIONS, add


class Doer:
    """A worker without a database: runs each job's function with nothing."""

    def __init__(self) -> None:
        self.progress = 0

    def pause_s(self, waiting: int) -> float:
        return 0.0

    def handle(self, jobs: list[Job[Any]]) -> list[Job[Any]]:
        for job in jobs:
            if job.box.claim(job.ticket):
                job.result = job.fn(None)  # type: ignore[arg-type]
                deliver([job])
            self.progress += 1
        return []

    def close(self) -> None:
        return


def _submit(pump: Pump, fn: Any) -> "Future[Any]":
    ticket: Future[Any] = Future()
    pump.submit(Job(fn, FUTURES, ticket))
    return ticket


@pytest.mark.parametrize("workers", [2, 3, 4])
def test_a_short_job_waits_for_long_ones_only_if_every_worker_has_one(workers: int) -> None:
    pump, go = Pump("test", [Doer() for _ in range(workers)], batch=8, relief=True), threading.Event()

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
    pump = Pump("test", [Doer()], batch=8)
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

    async def play(face: AsyncFace) -> int:
        held = asyncio.ensure_future(face.write(hold))
        while not entered.is_set():
            await asyncio.sleep(0.001)
        empty: list[str] = []
        both = [face.write(lambda _: next(iter(empty))), face.write(lambda tx: add(tx, "c"))]
        go.set()
        await held
        done, _ = await asyncio.wait(both, timeout=5)
        return len(done)

    with closing(open_database(MEMORY, migrations=MIGRATIONS)) as db:
        assert asyncio.run(play(AsyncFace(db))) == 2
