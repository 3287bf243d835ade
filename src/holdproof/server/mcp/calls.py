"""One call of a method for a client of the protocol, whether as a tool, a resource or a part of a prompt.

Rules:
- A caller may do what it may do over HTTP: the same decision, the same audit of refusals.
- No call takes a destination (`DESTINATIONS`), and none a function: progress is asked for by the protocol's own token.
- What can be called so that it only reads is called so (`Exposure.read_only_with`): a model does not lock a store.
- What fails in a way it should not is a defect here as everywhere: its words are for the server's log.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError

from holdproof.api.catalogue import MethodSpec
from holdproof.api.parameters import DESTINATIONS
from holdproof.api.problems import problem
from holdproof.client import Holdproof
from holdproof.errors import HoldproofError, InvalidInputError, StoppingError
from holdproof.model.progress import Progress
from holdproof.server.api import complete, until_the_end
from holdproof.server.permissions import Caller, permit, require, signed
from holdproof.server.problems import translated

_log = logging.getLogger("holdproof.server")

Exchange = ServerRequestContext[Any, Any]
"""One request of a client, as the library hands it on."""

_PAGE: Final = 10
"""How many of a list a model gets unless it asks for more: it reads all of it, and pays for all of it."""
_TELL_EVERY_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class Client:
    """Who calls, what they see, and where it is written down what they may not."""

    caller: Caller
    sees: Callable[[str], Holdproof]
    """Return the store as the caller may see it, for one resource."""
    refused: Callable[[HoldproofError], Awaitable[None]]
    """Writes down that the caller was refused."""
    stopping: asyncio.Event | None = None
    """Set once the server stops; a client with a process of its own has none."""

    async def failed(self, what: str, raised: Exception) -> tuple[HoldproofError, dict[str, Any]]:
        """Record what went wrong; return it as an error of ours, and as the caller may read it."""
        error = translated(raised)
        # The model gets a neutral text for a defect; the traceback belongs to the log.
        if error.status >= HTTPStatus.INTERNAL_SERVER_ERROR and not isinstance(error, StoppingError):
            _log.error("%s failed", what, exc_info=raised)
        await self.refused(error)
        return error, problem(error, inside=self.caller.inside)

    @asynccontextmanager
    async def answering(self, what: str) -> AsyncIterator[None]:
        """Raise what goes wrong inside as an error of the protocol: for requests that are no calls of tools."""
        try:
            yield
        except Exception as raised:
            error, facts = await self.failed(what, raised)
            inside = error.status >= HTTPStatus.INTERNAL_SERVER_ERROR
            code = types.INTERNAL_ERROR if inside else types.INVALID_PARAMS
            raise MCPError(code, facts["detail"], facts) from raised


Finds = Callable[[Exchange], Awaitable[Client]]
"""Says who sent a request."""


async def perform(client: Client, entry: MethodSpec, values: Mapping[str, Any], tell: Progress | None = None) -> Any:
    """Call a method for a client and return its answer; `values` are by name, and of the types of its parameters."""
    caller = client.caller
    require(caller, entry.resource, entry.method)
    if unasked := sorted((DESTINATIONS | set(entry.callbacks) | entry.exposure.read_only_with.keys()) & values.keys()):
        why = ": whoever runs the store says where it is" if unasked[0] in DESTINATIONS else ""
        raise InvalidInputError(f"a tool takes no {unasked[0]}{why}", parameter=unasked[0])
    # A model may override a tool's defaults, but verifies without locking, whoever it acts as.
    values = {**_defaults(entry), **values, **entry.exposure.read_only_with}
    # What the server sets itself is no fault of the model's if it is missing.
    complete(entry, values | signed(caller, entry, values))
    store = client.sees(entry.resource)
    await permit(store, caller, entry.resource, entry.method, values)
    args, kwargs = entry.arguments(values | signed(caller, entry, values))
    if tell is not None and entry.parameter("progress") is not None:
        kwargs["progress"] = tell
    work = getattr(getattr(store, entry.resource), entry.method)(*args, **kwargs)
    # The end of a server waits for its requests, and for a person it would wait in vain.
    return await (until_the_end(client.stopping, work) if entry.waits and client.stopping is not None else work)


def _defaults(entry: MethodSpec) -> Mapping[str, Any]:
    """Return the arguments of a tool where its defaults differ from those of the method."""
    pages = any(each.name == "limit" for each in entry.parameters)
    return {**({"limit": _PAGE} if pages else {}), **entry.exposure.tool_defaults}


@asynccontextmanager
async def progress_of(exchange: Exchange) -> AsyncIterator[Progress | None]:
    """Yield what long work reports its progress to; None where the client asked for none.

    The protocol wants one number that grows, and work of ours has stages that each count from zero: the number is the
    sum of what was done in all of them, and the message names the stage. Reports come from any thread, and more often
    than anybody reads them: the newest is sent, ten times a second at most.
    """
    if exchange.meta is None or exchange.meta.get("progress_token") is None:
        yield None
        return
    reports = _Reports(exchange)
    try:
        yield reports.tell
    finally:
        await reports.end()


class _Reports:
    """The progress of one call, on its way to the client."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._loop = asyncio.get_running_loop()
        self._stage = ""
        self._before = 0
        """What was done in earlier stages."""
        self._done = 0
        self._total = 0
        self._sent = -1
        self._sending: asyncio.Task[None] | None = None
        self._ended = False

    def tell(self, stage: str, done: int, total: int) -> None:
        """Hear how far the work is; from any thread."""
        self._loop.call_soon_threadsafe(self._note, stage, done, total)

    def _note(self, stage: str, done: int, total: int) -> None:
        # Work that its client gave up goes on in its thread, and still tells.
        if self._ended:
            return
        if stage != self._stage:
            self._before += self._done
            self._stage = stage
        self._done = done
        self._total = total
        if self._sending is None or self._sending.done():
            self._sending = self._loop.create_task(self._send())

    async def _send(self) -> None:
        await self._report()
        await asyncio.sleep(_TELL_EVERY_S)
        await self._report()

    async def _report(self) -> None:
        reached = self._before + self._done
        if reached <= self._sent:
            return
        self._sent = reached
        of_all = f" of {self._total}" if self._total else ""
        await self._exchange.session.report_progress(reached, None, f"{self._stage}: {self._done}{of_all}")

    async def end(self) -> None:
        """Send nothing more: a report after the answer would belong to no request."""
        self._ended = True
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.gather(self._sending, return_exceptions=True)
