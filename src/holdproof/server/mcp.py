"""The store as tools for models: the Model Context Protocol, over stdio and over HTTP at `/mcp`.

Rules:
- A tool is a method: `objects_put` is `store.objects.put`, its schema made from the operation. The seed's two have
  their own names: `checkpoint_memory` and `restore_memory`.
- Tools come in sets, by what a model does with them: decide, ask, remember, prove. Each is small enough to be chosen
  from; a client that needs one of them asks for that one.
- A caller may do what it may do over HTTP: the same decision, the same audit of refusals.
- A local client that names no caller is the agent `mcp`: a model that asked a person does not go on by itself.
- No tool takes a destination (`ADDRESSES`): text that a model read must not be able to send a store's content anywhere.
- Read-only offers what reads, and verifies without locking.
- What fails is a result that says so, with code and remedy: a model can read it and act. What fails in a way it should
  not is a defect here as everywhere: its words are for the server's log.
- Over HTTP every caller is authenticated first (mcp_mount.py).
"""

import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from http import HTTPStatus
from typing import Any, Final, get_args

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.types import ASGIApp

from holdproof.api import wire
from holdproof.api.catalogue import MethodSpec, entries
from holdproof.api.parameters import ADDRESSES, SIGNED_BY_CALLER
from holdproof.api.problems import problem
from holdproof.api.wire import Named, Schema
from holdproof.client import Holdproof
from holdproof.errors import HoldproofError, InvalidInputError, NotFoundError
from holdproof.executors.exposure import ToolSet
from holdproof.model.agents import Agent
from holdproof.server.api import complete, loaded
from holdproof.server.permissions import Caller, may, permit, require, signed
from holdproof.server.problems import note, translated
from holdproof.server.state import ScopedStores, caller_of, state_of
from holdproof.version import VERSION

_log = logging.getLogger("holdproof.server")

_INSTRUCTIONS: Final = (
    "Holdproof records what agents do in a tamper-evident log. Start a flow before you decide (flows_start), record"
    " what you did (audit_record), ask a person where it matters (escalations_request, then escalations_wait), and keep"
    " what you learn as objects (objects_put)."
)

_PAGE: Final = 10
"""How many of a list a model gets unless it asks for more: it reads all of it, and pays for all of it."""
_DEFAULT_AGENT: Final = "mcp"
_DEFAULT_VERSION: Final = "1.0.0"  # of the range that a new store supports

TOOL_SETS: Final = frozenset[str](get_args(ToolSet))

Sees = Callable[[str], Holdproof]
"""Return the store as a caller may see it, for one resource."""
Refuses = Callable[[HoldproofError], Awaitable[None]]
"""Writes down that a caller was refused."""
Finds = Callable[[ServerRequestContext[Any, Any]], Awaitable[tuple[Caller, Sees, Refuses]]]
"""Who calls, what they see, and where it is written down what they may not."""


@dataclass(frozen=True, slots=True)
class Offer:
    """Which methods are tools: those of some sets, or all of some resources, or only those that read."""

    resources: frozenset[str] | None = None
    read_only: bool = False
    sets: frozenset[str] = TOOL_SETS

    def holds(self, entry: MethodSpec) -> bool:
        """Say whether a method is a tool."""
        chosen = entry.exposure.tool in self.sets if self.resources is None else entry.resource in self.resources
        calls_back = any(each.shape.callback and each.required for each in entry.parameters)
        looks = entry.reads or bool(entry.exposure.read_only_with)
        if any(each.required and each.name in ADDRESSES for each in entry.parameters):
            return False
        return chosen and not calls_back and not entry.streams and (looks or not self.read_only)

    def tools(self) -> Mapping[str, MethodSpec]:
        """Return the methods that are tools, by the name of the tool."""
        tools = {_name(entry): entry for entry in entries().values() if self.holds(entry)}
        if not tools:
            message = "no tool is left to offer: name other sets or resources, or leave out --read-only"
            raise InvalidInputError(message, resources=sorted(self.resources or ()))
        return tools


def _name(entry: MethodSpec) -> str:
    return entry.exposure.tool_name(entry.resource, entry.method)


def _tool(name: str, entry: MethodSpec) -> types.Tool:
    """Describe a method as a tool."""
    return types.Tool(
        name=name,
        description=entry.summary,
        input_schema=_whole(entry),
        annotations=types.ToolAnnotations(read_only_hint=entry.reads, open_world_hint=False),
    )


def _whole(entry: MethodSpec) -> Schema:
    """The schema of what a tool takes, with all that it refers to."""
    named: Named = {}
    schema = entry.schema(named)
    # Who does it is whoever calls: a model that is asked for a name would make one up.
    unasked = ADDRESSES | SIGNED_BY_CALLER
    schema["properties"] = {name: each for name, each in schema.get("properties", {}).items() if name not in unasked}
    schema["required"] = [name for name in schema["required"] if name not in unasked]
    text = json.dumps({**schema, "$defs": named} if named else schema)
    whole: Schema = json.loads(text.replace("#/components/schemas/", "#/$defs/"))
    return whole


def server(finds: Finds, offer: Offer) -> Server[Any]:
    """A server of tools."""
    tools = offer.tools()

    async def list_tools(
        context: ServerRequestContext[Any, Any],
        params: types.PaginatedRequestParams | None,  # noqa: ARG001 (they fit one page)
    ) -> types.ListToolsResult:
        caller, _, _ = await finds(context)
        allowed = (each for each in tools.items() if may(caller, each[1].resource, each[1].method))
        return types.ListToolsResult(tools=[_tool(name, entry) for name, entry in allowed])

    async def call_tool(
        context: ServerRequestContext[Any, Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        caller, sees, refused = await finds(context)
        try:
            entry = tools.get(params.name)
            if entry is None:
                raise NotFoundError(f"there is no tool {params.name}", tool=params.name)
            # Before its arguments: whoever may not use it learns nothing of what it takes.
            require(caller, entry.resource, entry.method)
            return _result(await _called(sees(entry.resource), caller, entry, params.arguments or {}, offer))
        except Exception as raised:
            error = translated(raised)
            # The model gets a neutral text for a defect; the traceback belongs to the log.
            if error.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
                _log.exception("tool %s failed", params.name)
            await refused(error)
            return _result(problem(error, inside=caller.inside), failed=True)

    return Server(
        "holdproof", version=VERSION, instructions=_INSTRUCTIONS, on_list_tools=list_tools, on_call_tool=call_tool
    )


async def _called(
    store: Holdproof, caller: Caller, entry: MethodSpec, arguments: Mapping[str, Any], offer: Offer
) -> Any:
    if addresses := sorted(ADDRESSES & arguments.keys()):
        message = f"a tool takes no {addresses[0]}: whoever runs the store says where it is"
        raise InvalidInputError(message, parameter=addresses[0])
    values = loaded(entry, arguments)
    # A model may override a tool's defaults, but not what read-only mode sets below.
    values = {**_defaults(entry), **values}
    if offer.read_only:
        values |= entry.exposure.read_only_with
    # What the server sets itself is no fault of the model's if it is missing.
    complete(entry, values | signed(caller, entry, values))
    await permit(store, caller, entry.resource, entry.method, values)
    args, kwargs = entry.arguments(values | signed(caller, entry, values))
    return wire.dump(await getattr(getattr(store, entry.resource), entry.method)(*args, **kwargs))


def _defaults(entry: MethodSpec) -> Mapping[str, Any]:
    """Return the arguments of a tool where its defaults differ from those of the method."""
    pages = any(each.name == "limit" for each in entry.parameters)
    return {**({"limit": _PAGE} if pages else {}), **entry.exposure.tool_defaults}


def _result(answer: Any, *, failed: bool = False) -> types.CallToolResult:
    """An answer as a model reads it: a text as it is, anything else as JSON."""
    text = answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False)
    # Structured content has to be an object; other values are wrapped.
    structured = answer if isinstance(answer, dict) else {"answer": answer}
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=text)], structured_content=structured, is_error=failed
    )


# --- over stdio --------------------------------------------------------------------------------------------------


async def over_stdio(store: Holdproof, caller: Caller, offer: Offer) -> None:
    """Serve one client on standard input and output, until it goes away."""

    scoped = ScopedStores(store)

    async def finds(_: ServerRequestContext[Any, Any]) -> tuple[Caller, Sees, Refuses]:
        return caller, lambda resource: scoped.of(caller, resource), _ignore_refusal

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
    store: Holdproof, token: str | None, agent_id: str | None, offer: Offer, *, operator: bool = False
) -> Caller:
    """Return the caller that a local client acts as: the holder of the token, an agent, or the operator.

    A token decides; an agent or the operator beside it must be who holds it, else InvalidInputError.
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
    if agent_id is not None:
        return Caller.of_agent(await store.agents.get(agent_id))
    if operator:
        return Caller("operator", _DEFAULT_AGENT)
    if offer.read_only:
        return Caller("auditor", _DEFAULT_AGENT)
    # The usual agent remembers too: it has the memory and storage that whoever started this chose to offer.
    granted = frozenset(each.resource for each in offer.tools().values() if each.grantable)
    return replace(Caller.of_agent(await _default_agent(store)), resources=granted)


async def _default_agent(store: Holdproof) -> Agent:
    """Return the agent of clients that name none, registered at its first use."""
    try:
        return await store.agents.get(_DEFAULT_AGENT)
    except NotFoundError:
        await store.agents.register(_DEFAULT_AGENT, version=_DEFAULT_VERSION)
        return await store.agents.get(_DEFAULT_AGENT)


# --- over HTTP ---------------------------------------------------------------------------------------------------


@asynccontextmanager
async def over_http() -> AsyncIterator[ASGIApp]:
    """Yield the application behind `/mcp` (mcp_mount.py): every request is one exchange of an authenticated caller."""

    async def finds(context: ServerRequestContext[Any, Any]) -> tuple[Caller, Sees, Refuses]:
        request: Any = context.request
        caller = caller_of(request)
        state = state_of(request)
        return caller, lambda resource: state.store_for(caller, resource), partial(note, request.scope)

    manager = StreamableHTTPSessionManager(server(finds, Offer()), json_response=True, stateless=True)
    async with manager.run():
        yield manager.handle_request


def tool_sets(names: Sequence[str]) -> frozenset[str]:
    """The sets to offer: all of them if none was named."""
    if unknown := sorted(set(names) - TOOL_SETS):
        sets = ", ".join(sorted(TOOL_SETS))
        raise InvalidInputError(f"there is no set of tools {unknown[0]}; there are {sets}", tools=unknown[0])
    return frozenset(names) or TOOL_SETS


def resources(names: Sequence[str]) -> frozenset[str] | None:
    """The resources to offer, if any were named."""
    existing = {resource for resource, _ in entries()}
    if unknown := sorted(set(names) - existing):
        raise InvalidInputError(
            f"there is no resource {unknown[0]}; there are {', '.join(sorted(existing))}", resource=unknown[0]
        )
    return frozenset(names) or None
