"""Tasks: calls that wait for a person, answered at once by a handle that the client asks after.

The extension `io.modelcontextprotocol/tasks` of the protocol of 2026-07-28.

Rules:
- A method that waits for a person says so (`Exposure.task`); its call by a client that declares the extension is a
  task, unless the answer is there already. Every other client waits in the call itself.
- A task is no record of its own. Its id names the tool and its arguments, so any server of the store answers for it,
  after a restart too; and every request about it is decided as the call of that tool is.
- It is `working` until there is an answer, then `completed` with the result of the tool. It does not expire: the
  deadline of an escalation is an answer too.
- Cancelling one is acknowledged and changes nothing: the person's decision is not the client's to withdraw.
"""

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from typing import Any, Final

import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from pydantic import Field

from holdproof.api.catalogue import MethodSpec
from holdproof.errors import HoldproofError
from holdproof.server.api import loaded
from holdproof.server.mcp import tools
from holdproof.server.mcp.calls import Client, Exchange, Finds, perform
from holdproof.server.mcp.offer import Offer

EXTENSION: Final = "io.modelcontextprotocol/tasks"
PROTOCOL: Final = "2026-07-28"
_POLL_MS: Final = 2_000


class TaskParams(types.RequestParams):
    """What a request about a task says."""

    task_id: str = Field(alias="taskId")


class TaskOffer:
    """The tasks of one server."""

    def __init__(self, finds: Finds, offer: Offer) -> None:
        self._finds = finds
        self._tools = offer.tools()

    def add_to(self, server: Server[Any]) -> None:
        """Serve the extension's methods, and declare it."""
        server.extensions[EXTENSION] = {}
        server.add_request_handler("tasks/get", TaskParams, self._get)
        server.add_request_handler("tasks/update", TaskParams, self._acknowledge)
        server.add_request_handler("tasks/cancel", TaskParams, self._acknowledge)

    async def begin(
        self, exchange: Exchange, client: Client, name: str, entry: MethodSpec, values: Mapping[str, Any]
    ) -> dict[str, Any] | None:
        """Return the task that a call becomes; None where it is answered by a result."""
        if not entry.exposure.task or not declared(exchange):
            return None
        task = await self._task(client, name, entry, values)
        return None if task["status"] == "completed" else {**task, "resultType": "task"}

    async def _get(self, exchange: Exchange, params: TaskParams) -> dict[str, Any]:
        client = await self._client(exchange)
        name, entry, values = self._named(params.task_id)
        async with client.answering("the task"):
            return await self._task(client, name, entry, values)

    async def _acknowledge(self, exchange: Exchange, params: TaskParams) -> dict[str, Any]:
        await self._get(exchange, params)
        return {"resultType": "complete"}

    async def _client(self, exchange: Exchange) -> Client:
        """Return who asks about a task; MCPError for one that did not declare the extension."""
        if not declared(exchange):
            needed: dict[str, Any] = {"requiredCapabilities": {"extensions": {EXTENSION: {}}}}
            raise MCPError(types.MISSING_REQUIRED_CLIENT_CAPABILITY, "Missing required client capability", needed)
        return await self._finds(exchange)

    def _named(self, task_id: str) -> tuple[str, MethodSpec, dict[str, Any]]:
        """Return what a task waits for, by its id."""
        try:
            name, arguments = json.loads(urlsafe_b64decode(task_id.encode()))
            entry = self._tools[name]
            if entry.exposure.task:
                return name, entry, loaded(entry, arguments)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, HoldproofError):
            pass
        raise MCPError(types.INVALID_PARAMS, "there is no such task", {"taskId": task_id})

    async def _task(self, client: Client, name: str, entry: MethodSpec, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return a task as it stands: the tool is called without waiting, under the caller's own rights."""
        value = await perform(client, entry, {**values, "timeout_s": 0.0})
        pending = value.status == "PENDING"
        arguments = {key: each for key, each in values.items() if key != "timeout_s"}
        task: dict[str, Any] = {
            "taskId": urlsafe_b64encode(json.dumps([name, arguments]).encode()).decode(),
            "status": "working" if pending else "completed",
            "statusMessage": "a person has to answer" if pending else "answered",
            "createdAt": value.created_at,
            "lastUpdatedAt": value.resolved_at or value.created_at,
            "ttlMs": None,
            "pollIntervalMs": _POLL_MS,
            "resultType": "complete",
        }
        if not pending:
            answer = tools.result(entry, value, "")
            task["result"] = answer.model_dump(by_alias=True, mode="json", exclude_none=True)
        return task


def declared(exchange: Exchange) -> bool:
    """Say whether the client of a request declared the extension."""
    capabilities = exchange.session.client_capabilities
    extensions = None if capabilities is None else capabilities.extensions
    return exchange.protocol_version == PROTOCOL and EXTENSION in (extensions or {})
