"""The connections of a connected store: kept, used again, and no more of them than there are calls under way."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from starlette.types import ASGIApp, Receive, Scope, Send

import holdproof
from holdproof.errors import ClosedError, ConnectionLostError, OutcomeUnknownError, UnreachableError
from holdproof.remote import connect, connect_sync, transport
from holdproof.store.opening import open_store
from tests.served import Stage, staged


class Counting:
    """Remembers from which ports callers came: each connection has its own."""

    ports: set[int]

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.ports.add(scope["client"][1])
        await self.app(scope, receive, send)


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with staged(Counting) as found:
        yield found


@pytest.fixture
def token(stage: Stage, tmp_path: Path) -> Iterator[str]:
    core = open_store(tmp_path)
    with stage.showing(core) as found:
        holdproof.sync.Holdproof(core).agents.register("bot", version="1.0")
        Counting.ports = set()
        yield found
    core.close()


def test_calls_after_one_another_share_a_connection(stage: Stage, token: str) -> None:
    with connect_sync(stage.url, token) as store:
        for _ in range(5):
            store.flows.start("bot")
    assert len(Counting.ports) == 1


def test_many_callers_have_a_connection_each_and_no_more(stage: Stage, token: str) -> None:
    async def work() -> None:
        async with connect(stage.url, token) as store:
            for _ in range(3):
                await asyncio.gather(*(store.flows.start("bot") for _ in range(16)))

    asyncio.run(work())
    assert len(Counting.ports) <= 16


def test_a_call_that_answers_line_by_line_gives_its_connection_back(stage: Stage, token: str) -> None:
    with connect_sync(stage.url, token) as store, store.flows.run("bot") as flow:
        for number in range(5):
            assert flow.step(f"step {number}", lambda: 1) == 1
    assert len(Counting.ports) == 2, "one for the lines, and one for what the function gave"


def test_more_callers_than_connections_wait_their_turn(stage: Stage, token: str) -> None:
    async def work() -> None:
        async with connect(stage.url, token, limits=httpx.Limits(max_connections=2)) as store:
            await asyncio.gather(*(store.flows.start("bot") for _ in range(12)))

    asyncio.run(work())
    assert len(Counting.ports) <= 2
    with connect_sync(stage.url, token, limits=httpx.Limits(max_connections=2)) as store:
        threads = [threading.Thread(target=store.flows.start, args=["bot"]) for _ in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(store.flows.list(limit=100).items) == 24
    assert len(Counting.ports) <= 4


def test_whoever_finds_no_connection_in_time_is_told(stage: Stage, token: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "TIMEOUT", httpx.Timeout(0.05))
    with connect_sync(stage.url, token, limits=httpx.Limits(max_connections=1)) as store:
        with store.flows.run("bot") as flow, pytest.raises(UnreachableError, match="all 1 connections are in use"):
            flow.step("one", lambda: store.flows.start("bot"))
        assert store.flows.list().items


def test_connections_above_those_that_are_kept_are_closed(stage: Stage, token: str) -> None:
    async def work() -> None:
        limits = httpx.Limits(max_connections=8, max_keepalive_connections=1)
        async with connect(stage.url, token, limits=limits) as store:
            await asyncio.gather(*(store.flows.start("bot") for _ in range(8)))
            assert len(store._wire.connections._open) == 1

    asyncio.run(work())


def test_a_caller_who_gives_up_leaves_the_connection_to_others(stage: Stage, token: str) -> None:
    async def work() -> None:
        async with connect(stage.url, token, limits=httpx.Limits(max_connections=1)) as store:
            flow_id = (await store.flows.start("bot")).flow_id
            await store.flows.transition(flow_id, "RUNNING")
            asked = await store.escalations.request(flow_id, reason="may I?")
            waiting = asyncio.ensure_future(store.escalations.wait(asked.id))
            await asyncio.sleep(0.05)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            assert (await store.flows.get(flow_id)).agent_id == "bot"

    asyncio.run(work())


def test_a_function_that_blocks_keeps_nobody_else_on_the_loop_waiting(stage: Stage, token: str) -> None:
    async def work() -> None:
        others = threading.Event()
        async with connect(stage.url, token) as store, store.flows.run("bot") as flow:
            asyncio.get_running_loop().call_later(0.1, others.set)
            assert await flow.step("block", others.wait, 10)
            assert await flow.step("do not", asyncio.sleep, 0, "done") == "done"

    asyncio.run(work())


def test_what_is_closed_is_not_used_again(stage: Stage, token: str) -> None:
    async def work() -> None:
        async with connect(stage.url, token) as store:
            await store.flows.start("bot")
        with pytest.raises(ClosedError):
            await store.flows.start("bot")

    asyncio.run(work())
    with connect_sync(stage.url, token) as store:
        store.close()
        with pytest.raises(ClosedError):
            store.flows.list()


def test_of_a_change_whose_answer_has_no_end_nobody_knows_whether_it_happened() -> None:
    broken = httpx.MockTransport(lambda _: httpx.Response(200, content=b'{"progress": []}\n'))
    with connect_sync("http://localhost", "token", transport=broken) as store:
        with pytest.raises(OutcomeUnknownError):
            store.retention.gc(progress=lambda *_: None)
        with pytest.raises(ConnectionLostError):
            store.log.audit(progress=lambda *_: None)
