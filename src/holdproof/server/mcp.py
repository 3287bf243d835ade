"""The store as tools for models: the Model Context Protocol, over stdio and over HTTP at `/mcp`.

Rules:
- A tool is a verb: `objects_put` is `store.objects.put`, its schema made from the operation. The seed's two have their
  own names: `checkpoint_memory` and `restore_memory`.
- Whoever calls may do what they may do at the server: the same decision, the same audit of refusals.
- Read-only offers what reads, and verifies without locking.
- What fails is a result that says so, with code and remedy: a model can read it and act. What fails in a way it should
  not is a defect here as everywhere: its words are for the server's log.
- Over HTTP nobody is answered whom the door does not know (tools.py).
"""

import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import Any, Final

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.types import ASGIApp

from holdproof.api import wire
from holdproof.api.catalogue import MethodSpec, entries
from holdproof.api.problems import problem
from holdproof.api.wire import Named, Schema
from holdproof.client import Holdproof
from holdproof.errors import HoldproofError, InvalidInputError, NotFoundError
from holdproof.server.api import loaded
from holdproof.server.permissions import Caller, may, permit, signed
from holdproof.server.problems import note, translated
from holdproof.server.state import Faces, caller_of, state_of
from holdproof.store.opening import VERSION

_log = logging.getLogger("holdproof.server")

USUAL: Final = frozenset(
    {
        *(("memory", verb) for verb in ("checkpoint_memory", "restore_memory")),
        *(("objects", verb) for verb in ("put", "get", "list", "search", "history", "children", "delete")),
        *(("snapshots", verb) for verb in ("create", "list", "diff")),
        *(("flows", verb) for verb in ("start", "transition", "get", "list", "timeline")),
        *(("contexts", verb) for verb in ("put", "get")),
        *(("state", verb) for verb in ("put", "get", "update")),
        *(("locks", verb) for verb in ("try_acquire", "release", "list")),
        *(("audit", verb) for verb in ("record", "list")),
        *(("ledger", verb) for verb in ("append", "get")),
        *(("escalations", verb) for verb in ("request", "wait", "get", "list")),
        *(("feedback", verb) for verb in ("record", "list")),
        *(("evaluations", verb) for verb in ("list", "get")),
        *(("verify", "run"), ("log", "head"), ("log", "prove"), ("bundle", "export")),
    }
)
"""What is offered unless more is asked for: enough to decide, remember, ask and prove; few enough to choose from."""
_PATIENCE_S: Final = 50.0
"""How long a tool waits for a person if it is not said: callers of tools give up after a minute or so."""
_INSTRUCTIONS: Final = (
    "Holdproof keeps what agents decide, know and owe. Open a flow before you decide, write down what you did, ask a"
    " person where it matters (escalations_request, then escalations_wait), and keep what you learn as objects."
)

Sees = Callable[[str], Holdproof]
"""The store as a caller may see it, for one noun."""
Refuses = Callable[[HoldproofError], Awaitable[None]]
"""Writes down that a caller was refused."""
Finds = Callable[[ServerRequestContext[Any, Any]], Awaitable[tuple[Caller, Sees, Refuses]]]
"""Who calls, what they see, and where it is written down what they may not."""


@dataclass(frozen=True, slots=True)
class Offer:
    """Which verbs are tools: the usual ones, or all of some nouns, or only those that read."""

    nouns: frozenset[str] | None = None
    read_only: bool = False

    def holds(self, entry: MethodSpec) -> bool:
        """Whether a verb is a tool."""
        chosen = (entry.noun, entry.verb) in USUAL if self.nouns is None else entry.noun in self.nouns
        calls_back = any(each.shape.callback and each.required for each in entry.parameters)
        looks = entry.reads or (entry.noun, entry.verb) == ("verify", "run")
        return chosen and not calls_back and not entry.streams and (looks or not self.read_only)

    def tools(self) -> Mapping[str, MethodSpec]:
        """The verbs that are tools, by the name of the tool."""
        found = {_name(entry): entry for entry in entries().values() if self.holds(entry)}
        if not found:
            raise InvalidInputError("no tool is left to offer", nouns=sorted(self.nouns or ()))
        return found


def _name(entry: MethodSpec) -> str:
    return entry.verb if entry.noun == "memory" else entry.name


def _tool(name: str, entry: MethodSpec) -> types.Tool:
    """A verb as a tool is described."""
    return types.Tool(
        name=name,
        description=entry.summary,
        input_schema=_whole(entry),
        annotations=types.ToolAnnotations(read_only_hint=entry.reads, open_world_hint=entry.noun == "memory"),
    )


def _whole(entry: MethodSpec) -> Schema:
    """The schema of what a tool takes, with all that it refers to."""
    named: Named = {}
    made = entry.schema(named)
    text = json.dumps({**made, "$defs": named} if named else made)
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
        allowed = (each for each in tools.items() if may(caller, each[1].noun, each[1].verb, reads=each[1].reads))
        return types.ListToolsResult(tools=[_tool(name, entry) for name, entry in allowed])

    async def call_tool(
        context: ServerRequestContext[Any, Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        caller, sees, refused = await finds(context)
        try:
            entry = tools.get(params.name)
            if entry is None:
                raise NotFoundError(f"there is no tool {params.name}", tool=params.name)
            return _said(await _called(sees(entry.noun), caller, entry, params.arguments or {}, offer))
        except Exception as raised:
            error = translated(raised)
            if error.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
                _log.exception("tool %s failed", params.name)
            await refused(error)
            return _said(problem(error, inside=caller.inside), failed=True)

    return Server(
        "holdproof", version=VERSION, instructions=_INSTRUCTIONS, on_list_tools=list_tools, on_call_tool=call_tool
    )


async def _called(
    store: Holdproof, caller: Caller, entry: MethodSpec, arguments: Mapping[str, Any], offer: Offer
) -> Any:
    given = loaded(entry, arguments)
    if offer.read_only and entry.noun == "verify":
        given["lock"] = False
    if (entry.noun, entry.verb) == ("escalations", "wait"):
        given.setdefault("timeout_s", _PATIENCE_S)
    await permit(store, caller, entry.noun, entry.verb, given, reads=entry.reads)
    args, kwargs = entry.arguments(given | signed(caller, entry, given))
    return wire.dump(await getattr(getattr(store, entry.noun), entry.verb)(*args, **kwargs))


def _said(answer: Any, *, failed: bool = False) -> types.CallToolResult:
    """An answer as a model reads it: a text as it is, anything else as JSON."""
    text = answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False)
    structured = answer if isinstance(answer, dict) else {"answer": answer}
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=text)], structured_content=structured, is_error=failed
    )


# --- over stdio --------------------------------------------------------------------------------------------------


async def over_stdio(store: Holdproof, caller: Caller, offer: Offer) -> None:
    """Serve one client on standard input and output, until it goes away."""

    faces = Faces(store)

    async def finds(_: ServerRequestContext[Any, Any]) -> tuple[Caller, Sees, Refuses]:
        return caller, lambda noun: faces.of(caller, noun), _untold

    made = server(finds, offer)
    async with stdio_server() as (reading, writing):
        await made.run(reading, writing, made.create_initialization_options())


async def _untold(_: HoldproofError) -> None:
    """Nobody stands at a door here."""


async def caller_for(store: Holdproof, token: str | None, agent_id: str | None, *, read_only: bool) -> Caller:
    """Who a local client is: whoever the token says, an agent, or the person whose store it is."""
    if token is not None:
        return Caller.of_token(await store.tokens.authenticate(token))
    if agent_id is not None:
        return Caller.of_agent(await store.agents.get(agent_id))
    return Caller("auditor" if read_only else "operator", "mcp")


# --- over HTTP ---------------------------------------------------------------------------------------------------


@asynccontextmanager
async def over_http() -> AsyncIterator[ASGIApp]:
    """What answers at `/mcp` (tools.py): every request is one exchange, made by whoever the door knows."""

    async def finds(context: ServerRequestContext[Any, Any]) -> tuple[Caller, Sees, Refuses]:
        request: Any = context.request
        caller, state = caller_of(request), state_of(request)
        return caller, lambda noun: state.face(caller, noun), partial(note, request.scope)

    manager = StreamableHTTPSessionManager(server(finds, Offer()), json_response=True, stateless=True)
    async with manager.run():
        yield manager.handle_request


def nouns(names: Sequence[str]) -> frozenset[str] | None:
    """The nouns to offer, if any were named."""
    known = {noun for noun, _ in entries()}
    if unknown := sorted(set(names) - known):
        raise InvalidInputError(f"there is no noun {unknown[0]}; there are {', '.join(sorted(known))}", noun=unknown[0])
    return frozenset(names) or None
