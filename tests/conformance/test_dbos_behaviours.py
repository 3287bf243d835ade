"""Behaviours that users of DBOS rely on, where no other suite shows them (docs/internals/dbos-parity.tsv)."""

import asyncio
import functools
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from holdproof import errors, sync
from holdproof.api import OpenFlow
from holdproof.client import Holdproof
from holdproof.executors import SyncExecutor
from holdproof.runtime import calls, claims, runs
from holdproof.testing import FrozenClock
from tests.conformance.decisions import InMemory, OnPostgres, OnStore
from tests.conformance.test_workers import until

Flow = OpenFlow[SyncExecutor]


def claimed(store: sync.Holdproof, *names: str, ns: str = "main", limit: int = 9, worker: str = "w") -> list[str]:
    """The flows that a worker of these queues gets now."""
    result = store.write(lambda tx: claims.claim(tx, worker, store._registry, names, limit=limit, ns=ns))
    return [leased.run.lease.flow_id for leased in result.leased]


def echoing(store: sync.Holdproof) -> Any:
    @store.flow(agent="trader", lease_s=10)
    def echo(flow: Flow, value: Any = None) -> Any:
        return flow.step("echo", lambda: value)

    return echo


class Behaviours(OnStore):
    # --- ids ------------------------------------------------------------------------------------------------------

    def test_an_id_is_for_one_call_and_an_empty_one_is_refused(self, store: sync.Holdproof) -> None:
        echo = echoing(store)
        with pytest.raises(errors.InvalidInputError):
            echo.with_id("")(1)
        assert store.flows.list().items == []
        assert (echo.with_id("a")(1), echo(2)) == (1, 2)
        assert len(store.flows.list().items) == 2
        with pytest.raises(errors.IdempotencyConflictError):
            echo.with_id("a")(3)

    def test_a_child_may_have_an_id_of_its_own_choice(self, store: sync.Holdproof) -> None:
        echo = echoing(store)

        @store.flow(agent="trader")
        def parent(flow: Flow) -> Any:
            return flow.run(echo.with_id("mine"), 1)

        assert parent.with_id("p")() == 1
        assert store.flows.get("mine").parent_flow_id == "p"

    # --- results --------------------------------------------------------------------------------------------------

    def test_none_is_a_result_also_after_recovery(self, store: sync.Holdproof, clock: FrozenClock) -> None:
        echo = echoing(store)
        assert echo.with_id("a")() is None
        store.run(runs.enter_call("trader", calls.call_of("echo", "1.0", [], {}), flow_id="b", lease_s=1))
        clock.advance(2)
        assert [rerun.error for rerun in store.flows.recover().reruns] == [None]
        assert (store.flows.result("a"), store.flows.result("b"), echo.with_id("b")()) == (None, None, None)

    def test_a_flow_that_nobody_awaits_ends_and_its_error_is_there_later(self, live: sync.Holdproof) -> None:
        @live.flow(agent="trader")
        def fail(flow: Flow) -> None:
            raise ValueError("no tea")

        with live.worker():
            handle = fail.enqueue()
            until(lambda: handle.status() == "FAILED")
        with pytest.raises(errors.FlowFailedError, match="no tea"):
            live.flows.result(handle.flow_id)

    def test_cancelling_the_task_that_awaits_a_flow_does_not_cancel_the_flow(self, live: sync.Holdproof) -> None:
        async def main() -> None:
            store = Holdproof(live.core)
            handle = await store.flow(name="later", agent="trader")(_later).enqueue(queue="nobody")
            waiting = asyncio.create_task(handle.result())
            await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            assert await handle.status() == "CREATED"

        asyncio.run(main())

    def test_many_at_once_from_threads_and_from_one_loop(self, live: sync.Holdproof) -> None:
        echo = echoing(live)
        with ThreadPoolExecutor(8) as pool:
            assert [*pool.map(echo, range(16))] == [*range(16)]

        async def main() -> None:
            store = Holdproof(live.core)

            @store.flow(name="async echo", agent="trader")
            async def echo(flow: Any, value: int) -> int:
                return int(await flow.step("echo", lambda: value))

            assert await asyncio.gather(*(echo(n) for n in range(16))) == [*range(16)]

        asyncio.run(main())

    # --- functions ------------------------------------------------------------------------------------------------

    def test_wrapped_functions_and_methods_of_classes_are_flows(self, store: sync.Holdproof) -> None:
        def doubled(fn: Callable[..., int]) -> Callable[..., int]:
            return functools.wraps(fn)(lambda *args, **kwargs: 2 * fn(*args, **kwargs))

        @store.flow(agent="trader")
        @doubled
        def wrapped(flow: Flow, n: int) -> int:
            return n

        class Shop:
            @staticmethod
            def static(flow: Flow, n: int) -> int:
                return n + 1

            @classmethod
            def of_class(cls, flow: Flow, n: int) -> str:
                return f"{cls.__name__} {n}"

        assert wrapped(2) == 4
        assert store.flow(agent="trader")(Shop.static)(1) == 2
        assert store.flow(agent="trader")(Shop.of_class)(n=1) == "Shop 1"

    # --- managing -------------------------------------------------------------------------------------------------

    def test_a_cancelled_flow_stops_before_its_next_step_and_never_completes(self, store: sync.Holdproof) -> None:
        done: list[str] = []

        @store.flow(agent="trader")
        def work(flow: Flow) -> None:
            flow.step("first", done.append, "first")
            store.flows.cancel(flow.flow_id, reason="enough")
            flow.step("second", done.append, "second")

        with pytest.raises(errors.HoldproofError):
            work.with_id("w")()
        assert (done, store.flows.get("w").status) == (["first"], "CANCELLED")

    def test_what_does_not_exist_is_not_found(self, store: sync.Holdproof) -> None:
        for call in (store.flows.fork, store.flows.rewind, store.flows.result, store.flows.get):
            with pytest.raises(errors.NotFoundError):
                call("none")
        with pytest.raises(errors.NotFoundError):
            store.flows.cancel("none", reason="?")

    def test_all_flows_before_a_time_are_cancelled(self, store: sync.Holdproof, clock: FrozenClock) -> None:
        echo = echoing(store)
        old = echo.enqueue(1, queue="q")
        clock.advance(60)
        limit = store.read(lambda tx: tx.now)
        clock.advance(60)
        new = echo.enqueue(2, queue="q")
        store.flows.cancel_many(reason="too old", until=limit, dry_run=False)
        assert (old.status(), new.status()) == ("CANCELLED", "CREATED")

    def test_a_fork_finds_the_children_of_its_origin(self, store: sync.Holdproof) -> None:
        ran: list[int] = []

        @store.flow(agent="trader", lease_s=10)
        def child(flow: Flow) -> int:
            flow.step("work", ran.append, 1)
            return 7

        @store.flow(agent="trader", lease_s=10)
        def parent(flow: Flow) -> list[Any]:
            return [flow.run(child), flow.step("after", lambda: 8)]

        assert parent.with_id("p")() == [7, 8]
        fork = store.flows.fork("p", at="after", effects="real")
        store.flows.recover()
        assert (store.flows.result(fork.flow_id), ran) == ([7, 8], [1])
        assert store.flows.tree(fork.flow_id).children == ()

    # --- steps ----------------------------------------------------------------------------------------------------

    def test_each_try_has_the_whole_time_limit(self, live: sync.Holdproof) -> None:
        stuck = threading.Event()
        tries: list[int] = []

        def slow_once() -> str:
            tries.append(1)
            if len(tries) == 1:
                stuck.wait(60)
            return "done"

        with live.flows.run("trader") as flow:
            with pytest.raises(errors.InvalidInputError):
                flow.step(slow_once, timeout_s=0)
            assert flow.step(slow_once, timeout_s=0.3, on_unknown="retry") == "done"
        stuck.set()
        assert len(tries) > 1

    def test_a_sleep_is_a_step_with_its_own_times(self, store: sync.Holdproof) -> None:
        with store.flows.run("trader") as flow:
            flow.sleep(0)
        [step] = store.flows.steps(flow.flow_id)
        assert (step.name, step.state) == ("flow.sleep", "DONE")
        assert step.started_at <= (step.finished_at or "")

    # --- queues ---------------------------------------------------------------------------------------------------

    def test_a_delayed_flow_is_taken_at_its_time(self, store: sync.Holdproof, clock: FrozenClock) -> None:
        handle = echoing(store).enqueue(1, queue="q", delay_s=60)
        assert claimed(store, "q") == []
        clock.advance(60)
        assert claimed(store, "q") == [handle.flow_id]

    def test_a_changed_limit_counts_at_once_and_a_cancelled_flow_frees_its_place(self, store: sync.Holdproof) -> None:
        echo = echoing(store)
        store.queues.create("q", concurrency=1)
        ids = [echo.enqueue(n, queue="q").flow_id for n in range(4)]
        assert (claimed(store, "q"), claimed(store, "q")) == (ids[:1], [])
        store.flows.cancel(ids[0], reason="enough")
        assert claimed(store, "q") == ids[1:2]
        store.queues.update("q", concurrency=2)
        assert claimed(store, "q") == ids[2:3]

    def test_a_worker_has_a_limit_of_its_own(self, store: sync.Holdproof) -> None:
        echo = echoing(store)
        store.queues.create("q", concurrency=3, worker_concurrency=2)
        ids = [echo.enqueue(n, queue="q").flow_id for n in range(4)]
        assert [claimed(store, "q", worker=name) for name in ("a", "a", "b")] == [ids[:2], [], ids[2:3]]

    def test_limits_that_contradict_each_other_are_refused(self, store: sync.Holdproof) -> None:
        with pytest.raises(errors.InvalidInputError):
            store.queues.create("q", rate_limit=3)
        with pytest.raises(errors.InvalidInputError):
            store.queues.create("q", concurrency=-1)
        assert store.queues.list().items == []

    def test_one_application_enqueues_for_another_by_name(self, store: sync.Holdproof) -> None:
        echoing(store)
        flow = store.flows.enqueue("trader", "echo", args=[1], queue="q", ns="other")
        assert (claimed(store, "q"), claimed(store, "q", ns="other")) == ([], [flow.flow_id])

    # --- published values, schedules ------------------------------------------------------------------------------

    def test_many_readers_wait_for_one_value(self, live: sync.Holdproof) -> None:
        async def main() -> None:
            store = Holdproof(live.core)
            async with store.flows.run("trader") as flow:
                readers = [
                    asyncio.ensure_future(store.flows.published(flow.flow_id, "progress", wait=True, timeout_s=60))
                    for _ in range(40)
                ]
                await asyncio.sleep(0)
                await flow.publish("progress", 7)
                assert {(await reader).value for reader in readers} == {7}

        asyncio.run(main())

    def test_a_schedule_goes_on_though_its_flow_failed(self, store: sync.Holdproof, clock: FrozenClock) -> None:
        store.schedules.create("hourly", "echo", cron="0 * * * *", agent_id="trader", args=["tea"], instant_as="value")
        for _ in range(2):
            clock.advance(3600)
            store.schedules.fire()
            [flow, *_] = store.flows.list().items
            store.flows.transition(flow.flow_id, "RUNNING")
            store.flows.transition(flow.flow_id, "FAILED", reason="no tea")
        assert len(store.flows.list(status="FAILED").items) == 2


async def _later(flow: Any) -> None:
    del flow


class TestInMemory(Behaviours, InMemory): ...


class TestPostgres(Behaviours, OnPostgres): ...
