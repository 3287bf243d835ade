"""Steps and children that run at once: their order, their failures, and what a flow that runs again finds."""

import asyncio
import threading
from typing import Any

import pytest

from holdproof import errors, sync
from holdproof.api import OpenFlow
from holdproof.client import Holdproof
from holdproof.executors import AsyncExecutor, SyncExecutor
from holdproof.runtime import calls, runs
from holdproof.testing import FrozenClock
from tests.conformance.decisions import CrashError, InMemory, OnPostgres, OnSqlite, OnStore

Flow = OpenFlow[SyncExecutor]


def entered(store: sync.Holdproof, name: str, *args: Any) -> None:
    """A flow of a function, opened by a caller that died before the function began."""
    store.run(runs.enter_call("trader", calls.call_of(name, "1.0", args, {}), flow_id=name, lease_s=1))


class Gathers(OnStore):
    def test_children_and_steps_at_once_give_their_results_in_order(self, live: sync.Holdproof) -> None:
        @live.flow(agent="trader")
        def child(flow: Flow, n: int) -> int:
            return int(flow.step("double", int.__mul__, n, 2))

        @live.flow(agent="trader")
        def parent(flow: Flow) -> list[Any]:
            started = flow.start(child, 4, queue="q")
            mixed = flow.gather(
                flow.call(child, 1), flow.call(str.upper, "b"), flow.call(child, 3, queue="q"), started, concurrency=3
            )
            return [*mixed, *flow.map(child, [5, 6])]

        with live.worker(concurrency=2):
            here = parent.with_id("here")()
            queued = parent.with_id("queued").enqueue(queue="parents").result(timeout_s=60)
        assert here == queued == [2, "B", 6, 8, 10, 12]
        assert len(live.flows.tree("queued").children) == 5
        assert live.flows.replay("queued").equal

    def test_a_flow_that_runs_again_finds_the_same_children(self, store: sync.Holdproof, clock: FrozenClock) -> None:
        crashes = [True]
        ran: list[int] = []

        def work(n: int) -> int:
            ran.append(n)
            return n

        @store.flow(agent="trader", lease_s=10)
        def child(flow: Flow, n: int) -> int:
            return int(flow.step(work, n))

        @store.flow(agent="trader", lease_s=10)
        def parent(flow: Flow) -> list[int]:
            results = flow.gather(*(flow.call(child, n) for n in range(3)))
            if crashes:
                crashes.clear()
                raise CrashError
            return results

        with pytest.raises(CrashError):
            parent.with_id("p")()
        before = {each.flow.flow_id for each in store.flows.tree("p").children}
        clock.advance(11)
        [rerun] = store.flows.recover().reruns
        assert (rerun.flow.status, store.flows.result("p"), sorted(ran)) == ("COMPLETED", [0, 1, 2], [0, 1, 2])
        assert {each.flow.flow_id for each in store.flows.tree("p").children} == before
        assert store.flows.replay("p").differences == ()

    def test_a_child_that_waits_lets_the_others_end(self, store: sync.Holdproof, clock: FrozenClock) -> None:
        """The flow keeps its lease until all have ended or wait: no step is left in doubt."""
        slept = threading.Event()

        @store.flow(agent="trader", lease_s=10)
        def child(flow: Flow) -> str:
            slept.set()
            flow.sleep(60)
            return "slept"

        @store.flow(agent="trader", lease_s=10)
        def parent(flow: Flow) -> list[Any]:
            return flow.gather(flow.call(child), flow.call("work", slept.wait, 30))

        entered(store, "parent")
        clock.advance(2)
        [rerun] = store.flows.recover().reruns
        assert (rerun.waits_for or "").startswith("flow ")
        assert [step.state for step in store.flows.steps("parent")] == ["DONE", "DONE"]
        clock.advance(61)
        for _ in range(2):
            store.flows.recover()
        assert store.flows.result("parent", timeout_s=1) == ["slept", True]

    def test_what_waits_counts_for_the_concurrency(self, store: sync.Holdproof, clock: FrozenClock) -> None:
        @store.flow(agent="trader", lease_s=10)
        def child(flow: Flow, n: int) -> int:
            return n

        @store.flow(agent="trader", lease_s=10)
        def parent(flow: Flow) -> list[Any]:
            return flow.map(child, range(5), queue="nobody", concurrency=2)

        entered(store, "parent")
        clock.advance(2)
        store.flows.recover()
        assert len(store.flows.tree("parent").children) == 2
        store.flows.cancel(store.flows.tree("parent").children[0].flow.flow_id, reason="no")
        store.flows.recover()
        assert len(store.flows.tree("parent").children) == 3

    def test_the_first_failure_cancels_open_children(self, live: sync.Holdproof) -> None:
        """Also those that wait elsewhere; the failure is raised, not that the others were cancelled."""

        @live.flow(agent="trader")
        def child(flow: Flow, n: int) -> int:
            if n == 2:
                raise ValueError("two")
            flow.sleep(3600)
            return n

        @live.flow(agent="trader")
        def parent(flow: Flow) -> list[Any]:
            return flow.gather(flow.call(child, 1, queue="q"), flow.call(child, 2, queue="q"), on_error="cancel")

        with live.worker(concurrency=3):
            with pytest.raises(errors.FlowFailedError, match="two"):
                parent.with_id("here")()
            handle = parent.with_id("queued").enqueue()
            with pytest.raises(errors.FlowFailedError, match="two"):
                handle.result(timeout_s=60)
        for flow_id in ("here", "queued"):
            [one, two] = sorted(each.flow.status for each in live.flows.tree(flow_id).children)
            assert (one, two) == ("CANCELLED", "FAILED")
            assert live.flows.replay(flow_id).differences == ()

    def test_a_failure_cancels_no_flow_of_another_parent(self, live: sync.Holdproof) -> None:
        """It was deduplicated, or its handle passed on: its parent still wants it. It is waited for no longer."""

        @live.flow(agent="trader")
        def shared(flow: Flow) -> int:
            return 1

        @live.flow(agent="trader")
        def first(flow: Flow) -> str:
            return str(flow.start(shared, queue="nobody", deduplicate="k").flow_id)

        def fail() -> None:
            raise ValueError("mine")

        @live.flow(agent="trader")
        def second(flow: Flow, handle: bool) -> list[Any]:
            other: Any = live.flows.get(shared_id) if handle else None
            other = other or flow.call(shared, queue="nobody", deduplicate="k")
            return flow.gather(other, flow.call(fail), on_error="cancel")

        shared_id = first()
        with live.worker(queues=["q"]):
            for handle in (False, True):
                with pytest.raises(ValueError, match="mine"):
                    second(handle)
                queued = second.enqueue(handle, queue="q")
                with pytest.raises(errors.FlowFailedError, match="mine"):
                    queued.result(timeout_s=60)
        assert live.flows.get(shared_id).status == "CREATED"

    def test_a_suspended_flow_notices_the_end_of_a_flow_of_another_parent(
        self, store: sync.Holdproof, clock: FrozenClock
    ) -> None:
        """Its end wakes its own parent only: who else waits looks again after a while."""

        @store.flow(agent="trader", lease_s=10)
        def shared(flow: Flow) -> int:
            return 1

        @store.flow(agent="trader", lease_s=10)
        def first(flow: Flow) -> str:
            return str(flow.start(shared, queue="nobody", deduplicate="k").flow_id)

        @store.flow(agent="trader", lease_s=10)
        def parent(flow: Flow) -> str:
            try:
                flow.gather(flow.call(shared, queue="nobody", deduplicate="k"))
            except errors.FlowEndedError:
                return "ended"
            return "went on"

        shared_id = first()
        entered(store, "parent")
        clock.advance(2)
        [rerun] = store.flows.recover().reruns
        assert rerun.waits_for == f"flow {shared_id}"
        clock.advance(31)
        [rerun] = store.flows.recover().reruns
        assert rerun.waits_for == f"flow {shared_id}", "it looked, and waits again"
        store.flows.cancel(shared_id, reason="no")
        clock.advance(31)
        store.flows.recover()
        assert store.flows.result("parent", timeout_s=1) == "ended"

    def test_other_failures_wait_until_all_have_ended(self, live: sync.Holdproof) -> None:
        done: list[int] = []

        @live.flow(agent="trader")
        def child(flow: Flow, n: int) -> None:
            if n == 1:
                raise ValueError("one")
            flow.step("work", lambda: done.append(n))

        with pytest.raises(errors.FlowFailedError, match="one"), live.flows.run("trader") as flow:
            flow.map(child, [1, 2, 3])
        assert sorted(done) == [2, 3]

    def test_another_child_than_was_recorded_stops_the_flow(self, store: sync.Holdproof, clock: FrozenClock) -> None:
        wanted = [1]

        @store.flow(agent="trader", lease_s=10)
        def child(flow: Flow, n: int) -> None:
            flow.sleep(60)

        @store.flow(agent="trader", lease_s=10)
        def parent(flow: Flow) -> None:
            flow.gather(flow.call(child, 0), flow.call(child, wanted[0]))

        entered(store, "parent")
        clock.advance(2)
        store.flows.recover()
        wanted[0] = 2
        clock.advance(61)
        problems = [rerun.error for _ in range(3) for rerun in store.flows.recover().reruns]
        assert any("starts another flow than was recorded" in str(error) for error in problems)
        assert len(store.flows.tree("parent").children) == 2

    def test_what_is_no_step_and_no_child_is_refused(self, store: sync.Holdproof) -> None:
        with pytest.raises(errors.InvalidInputError, match=r"flow\.call"), store.flows.run("trader") as flow:
            flow.gather(len)  # type: ignore[arg-type]

    def test_an_async_flow_gathers_children(self, live: sync.Holdproof) -> None:
        async def main() -> None:
            store = Holdproof(live.core)

            @store.flow(agent="trader")
            async def child(flow: OpenFlow[AsyncExecutor], n: int) -> int:
                await flow.sleep(1.1 if n == 1 else 0)
                return n

            @store.flow(agent="trader")
            async def parent(flow: OpenFlow[AsyncExecutor]) -> list[Any]:
                started = await flow.start(child, 4, queue="q")
                mixed = await flow.gather(flow.call(child, 1), flow.call(child, 2, queue="q"), started)
                return [*mixed, *await flow.map(child, [5, 6], concurrency=1)]

            async with store.worker(concurrency=2):
                handle = await parent.enqueue()
                assert await handle.result(timeout_s=60) == [1, 2, 4, 5, 6]
            assert (await store.flows.replay(handle.flow_id)).equal

        asyncio.run(main())


class TestGathersInMemory(Gathers, InMemory): ...


class TestGathersSqlite(Gathers, OnSqlite): ...


class TestGathersPostgres(Gathers, OnPostgres): ...
