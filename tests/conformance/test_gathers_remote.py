"""Children, and several steps at once, of flows whose code runs at the other end of a wire."""

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from holdproof import errors, sync
from holdproof.remote import connect, connect_sync
from tests.conformance.decisions import InMemory, OnPostgres, OnStore
from tests.served import Stage, staged


class RemoteGathers(OnStore):
    @pytest.fixture
    def stage(self, live: sync.Holdproof) -> Iterator[tuple[Stage, str]]:
        with staged() as stage, stage.showing(live.core) as token:
            yield stage, token

    def test_steps_at_once_run_here_and_are_recorded_in_order(
        self, live: sync.Holdproof, stage: tuple[Stage, str]
    ) -> None:
        both = threading.Barrier(2, timeout=30)

        def meet(what: str) -> str:
            both.wait()
            return what

        server, token = stage
        with connect_sync(server.url, token) as far, far.flows.run("trader") as flow:
            assert flow.gather(flow.call(meet, "a"), flow.call("m", meet, "b"), concurrency=2) == ["a", "b"]
            assert flow.map(str.upper, ["x", "y", "z"], concurrency=1) == ["X", "Y", "Z"]
            with pytest.raises(errors.InvalidInputError, match="inside a step"):
                flow.step("nested", lambda: flow.gather())
        steps = sorted(live.flows.steps(str(flow.flow_id)), key=lambda step: step.position)
        assert [(step.name, step.n) for step in steps[:5]] == [
            *(("meet", 1), ("m", 1)),
            *(("upper", 1), ("upper", 2), ("upper", 3)),
        ]

    def test_only_what_is_to_be_retried_is(self, live: sync.Holdproof, stage: tuple[Stage, str]) -> None:
        tries: list[str] = []

        def fail(error: str) -> None:
            tries.append(error)
            raise {"os": ConnectionError, "key": KeyError}[error](error)

        server, token = stage
        with connect_sync(server.url, token) as far, far.flows.run("trader") as flow:
            with pytest.raises(ConnectionError):
                flow.step(fail, "os", retries=2, backoff_s=0.01, retry_on=OSError)
            with pytest.raises(KeyError):
                flow.step(fail, "key", retries=2, backoff_s=0.01, retry_on=(OSError, TypeError))
        assert tries == ["os", "os", "os", "key"]
        assert [step.attempts for step in live.flows.steps(str(flow.flow_id))] == [3, 1]

    def test_children_run_here_or_by_a_worker_and_are_found_again(
        self, live: sync.Holdproof, stage: tuple[Stage, str]
    ) -> None:
        ran: list[int] = []
        crashes = [True]

        def work(n: int) -> int:
            ran.append(n)
            return n * 2

        def child(flow: Any, n: int) -> int:
            return int(flow.step("work", work, n))

        live.flow(agent="trader")(child)
        server, token = stage
        with connect_sync(server.url, token) as far, live.worker():
            kid = far.flow(agent="trader")(child)

            @far.flow(agent="trader", lease_s=0.2)
            def parent(flow: Any) -> list[Any]:
                started = flow.start(kid, 1, queue="q")
                mixed = flow.gather(flow.call(kid, 2), flow.call(str.upper, "b"), flow.call(kid, 3, queue="q"), started)
                if crashes:
                    crashes.clear()
                    raise KeyboardInterrupt
                return [flow.run(kid, 4), flow.result(started), *mixed]

            with pytest.raises(KeyboardInterrupt):
                parent.with_id("p")()
            before = {each.flow.flow_id for each in live.flows.tree("p").children}
            reruns: Any = ()
            while not reruns:
                reruns = far.flows.recover().reruns
            assert [rerun.error for rerun in reruns] == [None]
            assert far.flows.result("p") == [8, 2, 4, "B", 6, 2]
        children = {each.flow.flow_id for each in live.flows.tree("p").children}
        assert (len(before), before < children, len(children), sorted(ran)) == (3, True, 4, [1, 2, 3, 4])

    def test_the_first_failure_cancels_open_children(self, live: sync.Holdproof, stage: tuple[Stage, str]) -> None:
        server, token = stage
        with connect_sync(server.url, token) as far:

            @far.flow(agent="trader")
            def child(flow: Any) -> None:
                raise ValueError("no")

            with pytest.raises(errors.FlowFailedError, match="no"), far.flows.run("trader") as flow:
                flow.gather(flow.call(child, queue="nobody"), flow.call(child), on_error="cancel")
            assert flow.flow_id is not None
            assert sorted(each.flow.status for each in live.flows.tree(flow.flow_id).children) == [
                *("CANCELLED", "FAILED")
            ]

    def test_a_flow_waits_for_no_other_flow_than_its_own(self, live: sync.Holdproof, stage: tuple[Stage, str]) -> None:
        server, token = stage
        other = live.flows.start("trader")
        with (
            connect_sync(server.url, token) as far,
            pytest.raises(errors.NotFoundError),
            far.flows.run("trader") as flow,
        ):
            flow.result(other)

    def test_an_async_flow_gathers_children(self, stage: tuple[Stage, str]) -> None:
        server, token = stage

        async def main() -> None:
            async with connect(server.url, token) as far:

                @far.flow(agent="trader")
                async def child(flow: Any, n: int) -> int:
                    return n

                async with far.flows.run("trader") as flow:
                    assert await flow.gather(flow.call(child, 1), flow.call(abs, -2)) == [1, 2]
                    assert await flow.map(child, [3, 4], concurrency=1) == [3, 4]
                    assert await flow.run(child, 5) == 5

        asyncio.run(main())

    def test_a_worker_belongs_where_the_store_is(self, stage: tuple[Stage, str]) -> None:
        server, token = stage
        with connect_sync(server.url, token) as far, pytest.raises(errors.RemoteError, match="holdproof worker"):
            far.worker(concurrency=2)


class TestRemoteGathersInMemory(RemoteGathers, InMemory): ...


class TestRemoteGathersPostgres(RemoteGathers, OnPostgres): ...
