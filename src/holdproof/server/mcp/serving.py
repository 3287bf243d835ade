"""A server of the protocol over one open store, on standard input and output and over HTTP at `/mcp`.

Rules:
- A local client is an agent, the operator or the holder of a token; which, whoever starts it says (cli/serve.py).
- Over HTTP every caller is authenticated first (mcp_mount.py).
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from shlex import quote
from typing import Any, Final

import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.types import ASGIApp

from holdproof.client import Holdproof
from holdproof.errors import HoldproofError, InvalidInputError, NotFoundError
from holdproof.model.agents import Agent
from holdproof.server.api import loaded
from holdproof.server.mcp import tools
from holdproof.server.mcp.calls import Client, Exchange, Finds, perform, progress_of
from holdproof.server.mcp.offer import Offer
from holdproof.server.mcp.prompts import PromptOffer
from holdproof.server.mcp.resources import ResourceOffer, address
from holdproof.server.mcp.tasks import TaskOffer
from holdproof.server.permissions import Caller, may, require
from holdproof.server.problems import note
from holdproof.server.state import ScopedStores, caller_of, state_of
from holdproof.version import VERSION

_INSTRUCTIONS: Final = (
    "Holdproof records what agents do in a tamper-evident log. Start a flow before you decide (flows_start), record"
    " what you did (audit_record), ask a person where it matters (escalations_request, then escalations_wait), and keep"
    " what you learn as objects (objects_put)."
)

_FIRST_VERSION: Final = "1.0.0"  # of the range that a new store supports


def server(finds: Finds, offer: Offer) -> Server[Any]:
    """A server of tools, resources and prompts."""
    tasks = TaskOffer(finds, offer)
    handlers = _Handlers(finds, offer, tasks)
    tool_server = Server[Any](
        "holdproof",
        version=VERSION,
        instructions=_INSTRUCTIONS,
        on_list_tools=handlers.list_tools,
        on_call_tool=handlers.call_tool,
        on_list_resources=handlers.list_resources,
        on_list_resource_templates=handlers.list_templates,
        on_read_resource=handlers.read_resource,
        on_list_prompts=handlers.list_prompts,
        on_get_prompt=handlers.get_prompt,
    )
    tasks.add_to(tool_server)
    return tool_server


class _Handlers:
    """The requests of the protocol; each asks first who sent it."""

    def __init__(self, finds: Finds, offer: Offer, tasks: TaskOffer) -> None:
        self._finds = finds
        self._tasks = tasks
        self._tools = offer.tools()
        self._resources = ResourceOffer(offer)
        self._prompts = PromptOffer(offer, self._resources)

    async def list_tools(
        self,
        exchange: Exchange,
        params: types.PaginatedRequestParams | None,  # noqa: ARG002 (they fit one page)
    ) -> types.ListToolsResult:
        client = await self._finds(exchange)
        allowed = (each for each in self._tools.items() if may(client.caller, each[1].resource, each[1].method))
        return types.ListToolsResult(tools=[tools.describe(name, entry) for name, entry in allowed])

    async def call_tool(self, exchange: Exchange, params: types.CallToolRequestParams) -> Any:
        client = await self._finds(exchange)
        try:
            entry = self._tools.get(params.name)
            if entry is None:
                raise NotFoundError(f"there is no tool {params.name}", tool=params.name)
            # Before its arguments: whoever may not use it learns nothing of what it takes.
            require(client.caller, entry.resource, entry.method)
            values = loaded(entry, params.arguments or {})
            if (task := await self._tasks.begin(exchange, client, params.name, entry, values)) is not None:
                return task
            async with progress_of(exchange) as tell:
                value = await perform(client, entry, values, tell)
            return tools.result(entry, value, address(entry, values))
        except Exception as raised:
            _, facts = await client.failed(f"the tool {params.name}", raised)
            return tools.failure(facts)

    async def list_resources(
        self, exchange: Exchange, params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        client = await self._finds(exchange)
        async with client.answering("the list of resources"):
            return await self._resources.page(client, None if params is None else params.cursor)

    async def list_templates(
        self,
        exchange: Exchange,
        params: types.PaginatedRequestParams | None,  # noqa: ARG002 (they fit one page)
    ) -> types.ListResourceTemplatesResult:
        client = await self._finds(exchange)
        return types.ListResourceTemplatesResult(resource_templates=self._resources.templates(client))

    async def read_resource(
        self, exchange: Exchange, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        client = await self._finds(exchange)
        async with client.answering(f"the resource {params.uri}"), progress_of(exchange) as tell:
            return await self._resources.read(client, params.uri, tell)

    async def list_prompts(
        self,
        exchange: Exchange,
        params: types.PaginatedRequestParams | None,  # noqa: ARG002 (they fit one page)
    ) -> types.ListPromptsResult:
        client = await self._finds(exchange)
        return types.ListPromptsResult(prompts=self._prompts.list(client))

    async def get_prompt(self, exchange: Exchange, params: types.GetPromptRequestParams) -> types.GetPromptResult:
        client = await self._finds(exchange)
        async with client.answering(f"the prompt {params.name}"):
            return await self._prompts.get(client, params.name, params.arguments or {})


# --- over stdio --------------------------------------------------------------------------------------------------


async def over_stdio(store: Holdproof, caller: Caller, offer: Offer) -> None:
    """Serve one client on standard input and output, until it goes away."""

    scoped = ScopedStores(store)

    async def finds(_: Exchange) -> Client:
        return Client(caller, lambda resource: scoped.of(caller, resource), _ignore_refusal)

    if not any(may(caller, each.resource, each.method) for each in offer.tools().values()):
        raise InvalidInputError(
            f"no tool is left that the {caller.role} {caller.name} may use: name other resources with --resource, or"
            " act as somebody else with --operator, --agent or --token",
            resources=sorted(offer.resources or ()),
        )
    tool_server = server(finds, offer)
    async with stdio_server() as (reading, writing):
        await tool_server.run(reading, writing, tool_server.create_initialization_options())


async def _ignore_refusal(_: HoldproofError) -> None:
    """Record nothing: a local client has no access log."""


async def caller_for(
    store: Holdproof, token: str | None, agent_id: str | None, granted: Offer | None = None, *, operator: bool = False
) -> Caller:
    """Return the caller that a local client acts as: the holder of the token, the operator, or the agent.

    A token decides; an agent or the operator beside it must be who holds it, else InvalidInputError. An agent without a
    token gets the memory and storage of `granted`, which whoever started this named beside it.
    """
    if token is not None:
        caller = Caller.of_token(await store.tokens.authenticate(token))
        if (agent_id is not None and caller.agent_id != agent_id) or (operator and caller.role != "operator"):
            beside = "--operator" if agent_id is None else f"--agent {agent_id}"
            raise InvalidInputError(
                f"{beside} contradicts the token, which is that of the {caller.role} {caller.name}: leave out {beside},"
                " or --token and HOLDPROOF_TOKEN"
            )
        return caller
    if operator:
        return Caller("operator", "mcp")
    assert agent_id is not None, "nothing is opened before a caller is named"
    caller = Caller.of_agent(await _named_agent(store, agent_id))
    if granted is None:
        return caller
    return replace(caller, resources=frozenset(each.resource for each in granted.tools().values() if each.grantable))


async def _named_agent(store: Holdproof, agent_id: str) -> Agent:
    """Return the agent of that id; NotFoundError with the command that registers it."""
    try:
        return await store.agents.get(agent_id)
    except NotFoundError as error:
        command = f"holdproof agents register {quote(agent_id)} --version {_FIRST_VERSION}"
        raise NotFoundError(error.message, remedy=f"`{command}` registers it.", agent_id=agent_id) from error


# --- over HTTP ---------------------------------------------------------------------------------------------------


@asynccontextmanager
async def over_http() -> AsyncIterator[ASGIApp]:
    """Yield the application behind `/mcp` (mcp_mount.py): every request is one exchange of an authenticated caller."""

    async def finds(exchange: Exchange) -> Client:
        request: Any = exchange.request
        caller = caller_of(request)
        state = state_of(request)
        sees = partial(state.store_for, caller)
        return Client(caller, sees, partial(note, request.scope), state.stopping)

    # Answers are event streams, since progress is told in them; every request stands for itself.
    manager = StreamableHTTPSessionManager(server(finds, Offer()), stateless=True)
    async with manager.run():
        yield manager.handle_request
