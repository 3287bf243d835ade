"""Tasks of the protocol, by the official client: a call that waits for a person is answered by a handle."""

import time
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

import httpx
import pytest

from harness import filling
from holdproof import sync
from tests.mcp_sessions import talk_by_client, talk_over_http
from tests.web import Web, running

mcp = pytest.importorskip("mcp", reason="the extra mcp is not installed")

import mcp_types as types  # noqa: E402
from mcp.client.extension import ClaimContext, ClientExtension, ResultClaim  # noqa: E402

EXTENSION = "io.modelcontextprotocol/tasks"


class TaskHandle(types.Result):
    result_type: Literal["task"] = "task"
    taskId: str
    status: str


class TaskState(types.Result):
    taskId: str
    status: str
    result: dict[str, Any] | None = None


class TaskRequest(types.Request[types.RequestParams, str]):
    method: str
    params: Any


async def ask_about(session: Any, method: str, task_id: str) -> Any:
    request = TaskRequest(method=method, params={"taskId": task_id})
    return await session.send_request(request, TaskState if method == "tasks/get" else types.EmptyResult)


class Tasks(ClientExtension):
    """A client that knows tasks: it keeps the handle, has a person answer, and asks after it."""

    identifier = EXTENSION

    def __init__(self, answer: Any) -> None:
        self.handles: list[TaskHandle] = []
        self.states: list[str] = []
        self._answer = answer

    def claims(self) -> list[ResultClaim[TaskHandle]]:
        return [ResultClaim(result_type="task", model=TaskHandle, resolve=self._resolve)]

    async def _resolve(self, handle: TaskHandle, context: ClaimContext) -> types.CallToolResult:
        self.handles.append(handle)
        self.states.append((await ask_about(context.session, "tasks/get", handle.taskId)).status)
        await ask_about(context.session, "tasks/cancel", handle.taskId)
        self._answer()
        state = await ask_about(context.session, "tasks/get", handle.taskId)
        self.states.append(state.status)
        return types.CallToolResult.model_validate(state.result)


@pytest.fixture
def web(tmp_path: Path) -> Iterator[Web]:
    with running(tmp_path) as running_server:
        yield running_server


def _asked(web: Web) -> int:
    web.store.agents.register("bot", version="1.0.0")
    flow = web.store.flows.start("bot").flow_id
    web.store.flows.transition(flow, "RUNNING")
    return web.store.escalations.request(flow, reason="over the limit", proposal={"amount": 900}).id


def test_a_client_that_knows_tasks_does_not_hold_a_request_open_while_a_person_thinks(web: Web) -> None:
    number = _asked(web)
    token = web.store.tokens.create("bot", role="agent", agent_id="bot").secret
    extension = Tasks(lambda: web.store.escalations.resolve(number, "approve", by="ann", comment="it is due"))

    async def work(client: Any) -> None:
        assert EXTENSION in client.server_capabilities.extensions
        answered = await client.call_tool("escalations_wait", {"id": number})
        assert answered.structured_content["status"] == "APPROVED"
        assert answered.structured_content["resolved_by"] == "ann"
        # What is answered already is no task.
        again = await client.call_tool("escalations_wait", {"id": number})
        assert again.structured_content["resolved_by"] == "ann"

    talk_over_http(web.listening.address, token, then=work, extensions=[extension])
    assert extension.states == ["working", "completed"]
    assert len(extension.handles) == 1


def test_a_task_is_answered_after_a_new_connection_and_to_its_own_agent_only(web: Web) -> None:
    number = _asked(web)
    web.store.agents.register("other", version="1.0.0")
    own, other = (web.store.tokens.create(name, role="agent", agent_id=name).secret for name in ("bot", "other"))
    extension = Tasks(lambda: web.store.escalations.resolve(number, "reject", by="ann", comment="too much"))

    async def wait(client: Any) -> None:
        await client.call_tool("escalations_wait", {"id": number})

    talk_over_http(web.listening.address, own, then=wait, extensions=[extension])
    [handle] = extension.handles

    async def look(client: Any) -> None:
        state = await ask_about(client.session, "tasks/get", handle.taskId)
        assert state.result["structuredContent"]["status"] == "REJECTED"
        nested = urlsafe_b64encode(b"[" * 100_000).decode()
        for no_task in ("nothing", nested):
            with pytest.raises(mcp.MCPError, match="no such task"):
                await ask_about(client.session, "tasks/get", no_task)

    async def pry(client: Any) -> None:
        for method in ("tasks/get", "tasks/cancel"):
            with pytest.raises(mcp.MCPError) as refused:
                await ask_about(client.session, method, handle.taskId)
            assert refused.value.data["code"] == "access.forbidden"

    talk_over_http(web.listening.address, own, then=look, extensions=[extension])
    talk_over_http(web.listening.address, other, then=pry, extensions=[extension])


def test_a_client_without_the_extension_waits_in_the_call_and_may_ask_after_no_task(web: Web) -> None:
    number = _asked(web)
    token = web.store.tokens.create("bot", role="agent", agent_id="bot").secret

    async def work(client: Any) -> None:
        waited = await client.call_tool("escalations_wait", {"id": number, "timeout_s": 0.01})
        assert waited.structured_content["status"] == "PENDING"
        with pytest.raises(mcp.MCPError) as refused:
            await ask_about(client.session, "tasks/get", "x")
        assert refused.value.code == -32021

    talk_over_http(web.listening.address, token, then=work)


class _GoneError(Exception):
    pass


class Begun(Tasks):
    """A client that keeps the handle of its call, and goes away."""

    def __init__(self) -> None:
        super().__init__(lambda: None)
        self.number = 0

    async def _resolve(self, handle: TaskHandle, context: ClaimContext) -> types.CallToolResult:
        del context
        self.handles.append(handle)
        raise _GoneError

    async def begin(self, client: Any) -> Any:
        with pytest.raises(_GoneError):
            await client.call_tool("escalations_wait", {"id": self.number})

    async def look(self, client: Any) -> Any:
        return await ask_about(client.session, "tasks/get", self.handles[0].taskId)


def test_the_task_of_a_server_that_is_gone_is_answered_by_the_next(tmp_path: Path) -> None:
    client = Begun()
    with running(tmp_path) as web:
        client.number = _asked(web)
        token = web.store.tokens.create("bot", role="agent", agent_id="bot").secret
        talk_over_http(web.listening.address, token, then=client.begin, extensions=[client])
    assert [each.status for each in client.handles] == ["working"]
    with running(tmp_path) as web:
        web.store.escalations.resolve(client.number, "approve", by="ann", comment="it is due")
        state = talk_over_http(web.listening.address, token, then=client.look, extensions=[client])
    assert (state.status, state.result["structuredContent"]["status"]) == ("completed", "APPROVED")


def test_tasks_are_there_over_stdio_and_outlive_their_process(tmp_path: Path) -> None:
    client = Begun()
    with sync.open(tmp_path) as store:
        store.agents.register("bot", version="1.0.0")
        flow_id = filling.running(store, "bot")
        client.number = store.escalations.request(flow_id, reason="over the limit").id
    words = ("--agent", "bot")
    talk_by_client(tmp_path, *words, then=client.begin, extensions=[client])
    assert [each.status for each in client.handles] == ["working"]
    assert talk_by_client(tmp_path, *words, then=client.look, extensions=[client]).status == "working"
    with sync.open(tmp_path, create=False) as store:
        store.escalations.resolve(client.number, "reject", by="ann", comment="too much")
    state = talk_by_client(tmp_path, *words, then=client.look, extensions=[client])
    assert (state.status, state.result["structuredContent"]["status"]) == ("completed", "REJECTED")


def test_a_tool_that_waits_does_not_hold_the_end_of_its_server(tmp_path: Path) -> None:
    async def call(client: Any) -> Any:
        return await client.call_tool("escalations_wait", {"id": number})

    with ThreadPoolExecutor(1) as thread:
        with running(tmp_path) as web:
            number = _asked(web)
            token = web.store.tokens.create("bot", role="agent", agent_id="bot").secret
            headers = {"Authorization": f"Bearer {web.store.tokens.create('ann').secret}"}
            address = web.listening.address
            waiting = thread.submit(talk_over_http, address, token, then=call)
            # Beside the request that asks.
            while "holdproof_http_requests_under_way 2" not in httpx.get(f"{address}/metrics", headers=headers).text:
                assert not waiting.done(), waiting.result()
                time.sleep(0.02)
        answer = waiting.result()
    assert answer.is_error
    assert answer.structured_content["code"] == "request.stopping"
