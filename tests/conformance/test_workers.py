"""Workers: they run what is due, wait without looking all the time, drain, and leave nothing behind when killed."""

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from holdproof import errors, sync
from holdproof.api import OpenFlow
from holdproof.client import Holdproof
from holdproof.executors import AsyncExecutor, SyncExecutor
from tests.conformance.decisions import InMemory, OnPostgres, OnSqlite, OnStore

Flow = OpenFlow[SyncExecutor]


def other(store: sync.Holdproof) -> sync.Holdproof:
    """Another client of the same store, with nothing registered."""
    return sync.Holdproof(store.core)


def until(condition: Callable[[], Any], seconds: float = 20.0) -> None:
    """Wait for something that happens in other threads."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)


class Workers(OnStore):
    def test_a_worker_runs_queued_flows_within_their_limits(self, live: sync.Holdproof) -> None:
        running: list[int] = []
        most: list[int] = []

        @live.flow(agent="trader")
        def pay(flow: Flow, n: int) -> int:
            running.append(n)
            most.append(len(running))
            time.sleep(0.01)
            running.remove(n)
            return n

        live.queues.create("q", concurrency=2)
        handles = [pay.enqueue(n, queue="q") for n in range(12)]
        with live.worker(concurrency=3), live.worker(concurrency=3):
            assert [handle.result(timeout_s=30) for handle in handles] == [*range(12)]
        assert max(most) <= 2

    def test_what_sleeps_is_woken_and_costs_no_place_meanwhile(self, live: sync.Holdproof) -> None:
        @live.flow(agent="trader")
        def nap(flow: Flow, seconds: float) -> str:
            flow.sleep(seconds)
            return "awake"

        with live.worker(concurrency=1) as worker:
            slow = nap.enqueue(3600)
            until(lambda: slow.status() == "RUNNING" and not worker.running)
            assert nap.enqueue(1.2).result(timeout_s=30) == "awake"
            assert slow.status() == "RUNNING"
        assert live.flows.orphans() == ()

    def test_an_answer_lets_a_suspended_flow_go_on(self, live: sync.Holdproof) -> None:
        @live.flow(agent="trader")
        def ask(flow: Flow) -> str:
            flow.approve("may I?")
            return "did"

        with live.worker() as worker:
            handle = ask.enqueue()
            until(lambda: handle.status() == "WAITING_ESCALATION" and not worker.running)
            [question] = live.escalations.list().items
            live.escalations.resolve(question.id, "approve", by="ann")
            assert handle.result(timeout_s=30) == "did"

    def test_a_worker_applies_the_default_of_an_escalation_at_its_deadline(self, live: sync.Holdproof) -> None:
        @live.flow(agent="trader")
        def ask(flow: Flow) -> str:
            flow.approve("may I?", deadline_s=1.5, on_deadline="approve")
            return "did"

        with live.worker():
            assert ask.enqueue().result(timeout_s=30) == "did"

    def test_a_worker_fires_schedules(self, live: sync.Holdproof) -> None:
        fired = threading.Event()

        @live.flow(agent="trader")
        def tick(flow: Flow) -> None:
            fired.set()

        with live.worker():
            live.schedules.create("every second", tick, cron="* * * * * *")
            assert fired.wait(30)
            live.schedules.pause("every second")

    def test_flows_of_a_killed_worker_go_on_elsewhere(self, live: sync.Holdproof) -> None:
        done: list[str] = []

        def register(store: sync.Holdproof) -> Any:
            @store.flow(agent="trader", lease_s=1, name="pay")
            def pay(flow: Flow) -> str:
                flow.step("first", done.append, "first")
                return "paid"

            return pay

        handle = register(live).enqueue(queue="q")
        # Leased by somebody who never comes back.
        dead = live.worker()
        claim = live.run(dead._look()).claim
        assert [leased.run.lease.flow_id for leased in claim.leased] == [handle.flow_id]
        with live.worker():
            assert handle.result(timeout_s=30) == "paid"
        assert done == ["first"]

    def test_a_step_that_is_longer_than_its_lease_is_not_taken_by_a_worker(self, live: sync.Holdproof) -> None:
        runs: list[str] = []

        def long(_: Any = None) -> str:
            runs.append("run")
            time.sleep(1.2)
            return "done"

        @live.flow(agent="trader", lease_s=0.3)
        def work(flow: Flow) -> str:
            return flow.step("long", long)

        with live.worker():
            direct = work()
            queued = work.enqueue().result(timeout_s=30)
            with live.flows.run("trader", lease_s=0.3) as flow:
                flow.step("long", long)
        assert (direct, queued, runs) == ("done", "done", ["run"] * 3)

    # --- stopping -------------------------------------------------------------------------------------------------

    def test_a_stopping_worker_finishes_what_runs_and_takes_nothing_new(self, live: sync.Holdproof) -> None:
        begun = threading.Event()
        goes_on = threading.Event()

        @live.flow(agent="trader")
        def work(flow: Flow) -> str:
            begun.set()
            goes_on.wait(60)
            return "done"

        worker = live.worker(concurrency=1).start()
        first = work.enqueue()
        begun.wait(60)
        second = work.enqueue()
        threading.Timer(0.2, goes_on.set).start()
        assert worker.stop(deadline_s=60)
        assert (first.status(), second.status()) == ("COMPLETED", "CREATED")
        assert live.workers.list() == ()

    def test_what_is_unfinished_at_the_deadline_is_given_back(self, live: sync.Holdproof) -> None:
        begun = threading.Event()
        goes_on = threading.Event()

        @live.flow(agent="trader", lease_s=3600)
        def work(flow: Flow) -> str:
            if not begun.is_set():
                begun.set()
                goes_on.wait(60)
            return "done"

        worker = live.worker(concurrency=1).start()
        handle = work.enqueue()
        begun.wait(60)
        assert not worker.stop(deadline_s=0.1)
        with live.worker():
            assert handle.result(timeout_s=30) == "done"
        goes_on.set()

    def test_workers_say_what_they_run(self, live: sync.Holdproof) -> None:
        @live.flow(agent="trader", version="2", compatible=("1",))
        def work(flow: Flow) -> None: ...

        with live.worker(queues=["q"], concurrency=3, name="box"):
            [worker] = live.workers.list()
            assert (worker.name, worker.concurrency, worker.queues) == ("box", 3, ["q"])
            assert (worker.functions, worker.state) == ({"work": ["2", "1"]}, "RUNNING")

    # --- children -------------------------------------------------------------------------------------------------

    def test_children_run_here_or_in_a_queue_and_give_their_results(self, live: sync.Holdproof) -> None:
        @live.flow(agent="trader")
        def child(flow: Flow, n: int) -> int:
            if n < 0:
                raise ValueError("negative")
            flow.sleep(1.5 if n == 7 else 0)
            return n * 2

        @live.flow(agent="trader")
        def parent(flow: Flow, *, queue: str | None = None) -> list[Any]:
            started = [flow.start(child, n, queue="q") for n in (1, 7)]
            results = [flow.run(child, 3, queue=queue), *(flow.result(each) for each in started)]
            with pytest.raises(errors.FlowFailedError, match="negative"):
                flow.run(child, -1, queue=queue)
            return results

        with live.worker(concurrency=1):
            here = parent.with_id("here")()
            queued = parent.enqueue(queue="parents").result(timeout_s=60)
            by_queue = parent.with_id("by queue")(queue="q")
        assert here == queued == by_queue == [6, 2, 14]
        assert len(live.flows.tree("here").children) == 4
        assert [step.name for step in live.flows.steps("here")].count("flow.start") == 2

    def test_cancelling_a_parent_cancels_its_children(self, live: sync.Holdproof) -> None:
        @live.flow(agent="trader")
        def child(flow: Flow) -> None:
            flow.sleep(3600)

        @live.flow(agent="trader")
        def parent(flow: Flow) -> None:
            flow.run(child, queue="q")

        with live.worker() as worker:
            handle = parent.enqueue()
            until(lambda: len(live.flows.list().items) == 2 and not worker.running)
            handle.cancel()
        assert {flow.status for flow in live.flows.list().items} == {"CANCELLED"}

    def test_a_parent_that_runs_again_starts_no_second_child_and_no_other_one(self, live: sync.Holdproof) -> None:
        wanted = [1]

        @live.flow(agent="trader")
        def child(flow: Flow, n: int) -> int:
            return n

        @live.flow(agent="trader")
        def parent(flow: Flow) -> int:
            handle = flow.start(child, wanted[0], queue="nobody")
            flow.sleep(1.2)
            return int(flow.result(handle))

        with live.worker(queues=["default"]) as worker:
            handle = parent.enqueue()
            until(lambda: live.flows.steps(handle.flow_id) and not worker.running)
            wanted[0] = 2
            until(lambda: any(event.event_type == "FLOW_STOPPED" for event in live.audit.list().items))
        assert len(live.flows.list().items) == 2

    # --- the async client -----------------------------------------------------------------------------------------

    def test_an_async_worker_runs_flows_in_tasks_and_drains(self, live: sync.Holdproof) -> None:
        async def main() -> None:
            store = Holdproof(live.core)

            @store.flow(agent="trader")
            async def child(flow: OpenFlow[AsyncExecutor], n: int) -> int:
                await flow.sleep(1.1 if n == 1 else 0)
                return n

            @store.flow(agent="trader")
            async def parent(flow: OpenFlow[AsyncExecutor], n: int) -> int:
                here = await flow.run(child, n)
                queued = await flow.run(child, n, queue="q")
                return here + queued

            async with store.worker(concurrency=2):
                handles = [await parent.enqueue(n) for n in range(4)]
                assert [await handle.result(timeout_s=60) for handle in handles] == [0, 2, 4, 6]

            @store.flow(agent="trader", lease_s=3600)
            async def slow(flow: OpenFlow[AsyncExecutor]) -> None:
                await asyncio.sleep(3600)

            worker = await store.worker().start()
            handle = await slow.enqueue()
            while not worker.running:
                await asyncio.sleep(0.01)
            assert not await worker.stop(deadline_s=0.1)
            assert [orphan.flow_id for orphan in await store.flows.orphans()] == [handle.flow_id]

        asyncio.run(main())


class TestWorkersInMemory(Workers, InMemory): ...


class TestWorkersSqlite(Workers, OnSqlite): ...


class TestWorkersPostgres(Workers, OnPostgres): ...
