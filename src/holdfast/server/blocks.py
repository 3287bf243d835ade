"""Blocks of code at a distance: `flows.run` and `relational.transaction`, held open for their caller.

    POST /v1/flows/run                 {"agent_id": …} or {"resume": …}, and what `flows.start` takes
    POST /v1/flows/take                {"name": …, "version": …}: an orphan that such a function runs, in hand; or null
    POST /v1/flows/left                {"known": […]}: the orphans that none of those functions runs
    POST /v1/relational/transaction    {}
    POST /v1/blocks/{block}/{verb}     a verb inside the block; answered line by line (exchange.py)
    POST /v1/blocks/{block}/leave      {} or {"error": "Kind: words"} or {"problem": …}

Rules:
- A block belongs to whoever opened it.
- What a block did is durable step by step, as in one process. A block whose server is gone is a worker that is gone:
  its flow is resumed, its transaction was rolled back.
"""

from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

from holdfast.errors import InvalidInputError, NotFoundError
from holdfast.faces import problems, wire, within
from holdfast.ops.block import Block, OpenFlow
from holdfast.ops.catalogue import entries
from holdfast.runtime import decisions
from holdfast.runtime.calls import Called
from holdfast.runtime.rows import MAIN
from holdfast.server import numbers
from holdfast.server.api import Granted, Guard, body, streaming
from holdfast.server.exchange import Exchange, Exchanges, caller_error
from holdfast.server.problems import told

_FLOW: Final = frozenset({"step", "lock", "ask", "heartbeat"})
_TRANSACTION: Final = frozenset({"execute", "executemany", "fetch_all", "fetch_one"})
_MOST: Final = 10_000
"""How many blocks are held; of more, those that were not used for the longest time are forgotten."""


@dataclass(frozen=True, slots=True)
class _Wanted:
    """Which orphan is wanted."""

    name: str
    version: str
    lease_s: float
    worker: str | None = None
    ns: str = MAIN


@dataclass(frozen=True, slots=True)
class _Left:
    """Which functions are known."""

    known: tuple[tuple[str, str], ...]
    limit: int = 100
    ns: str = MAIN


def _namespace(granted: Granted, ns: str) -> str:
    return str(within(granted.store, {} if ns == MAIN else {"ns": ns}).get("ns", MAIN))


class Held:
    """A block that is open for a caller."""

    def __init__(self, who: str, manager: Any, inside: Any, verbs: frozenset[str]) -> None:
        self.id, self.who = numbers.unguessable(16), who
        self.manager, self.inside, self.verbs = manager, inside, verbs
        self.exchange: Exchange | None = None

    def undoing(self, key: str) -> Callable[[Any], Awaitable[Any]]:
        """A function of the caller that undoes a step: called in whichever exchange the block is left by."""

        async def undo(result: Any) -> Any:
            assert self.exchange is not None, "a block is left in an exchange"
            return await self.exchange.caller(key)(result)

        return undo

    def call(self, verb: str, given: dict[str, Any], exchange: Exchange) -> Awaitable[Any]:
        """One verb inside the block."""
        if verb not in self.verbs:
            raise NotFoundError(f"a block has no {verb}", verb=verb)
        self.exchange = exchange
        if verb != "step":
            made: Awaitable[Any] = getattr(self.inside, verb)(**given)
            return made
        name, undo = given.pop("name", None), given.pop("compensate", None)
        if undo is not None:
            given["compensate"] = self.undoing(str(undo))
        return self.inside.step(name, exchange.caller("fn"), **given)  # type: ignore[no-any-return]

    async def leave(self, given: dict[str, Any], exchange: Exchange) -> None:
        """Leave the block, as it should be left or by an exception."""
        self.exchange = exchange
        error = _told(given)
        await self.manager.__aexit__(None if error is None else type(error), error, None)


def _told(given: dict[str, Any]) -> Exception | None:
    """The exception by which a block is left, if by one."""
    if "problem" in given:
        problem = given["problem"]
        if not isinstance(problem, dict):
            raise InvalidInputError("a problem is an object", parameter="problem")
        return problems.error(problem)
    return caller_error(given["error"]) if "error" in given else None


class Blocks:
    """The blocks that are open."""

    def __init__(self) -> None:
        self._open: OrderedDict[str, Held] = OrderedDict()

    def hold(self, held: Held) -> Held:
        """Keep a block open."""
        self._open[held.id] = held
        while len(self._open) > _MOST:
            self._open.popitem(last=False)
        return held

    def find(self, id: str, who: str) -> Held:
        """An open block, for its own caller only."""
        held = self._open.get(id)
        if held is None or held.who != who:
            raise NotFoundError("there is no such block here; resume its flow if it has one", block=id)
        self._open.move_to_end(id)
        return held

    def drop(self, held: Held) -> None:
        """It was left."""
        self._open.pop(held.id, None)


def router(guard: Guard, who: Callable[[Request], Awaitable[str]], exchanges: Exchanges) -> APIRouter:
    """The routes of blocks, and of answers to what exchanges ask."""
    made, routes = APIRouter(prefix="/v1", include_in_schema=False), _Routes(guard, who, exchanges)
    for path, endpoint in (
        ("/flows/run", routes.run),
        ("/flows/take", routes.take),
        ("/flows/left", routes.left),
        ("/relational/transaction", routes.transaction),
        ("/blocks/{block}/leave", routes.leave),
        ("/blocks/{block}/{verb}", routes.inside),
        ("/exchanges/{exchange}/{call}", routes.answer),
    ):
        made.add_api_route(path, endpoint, methods=["POST"], response_class=Response)
    return made


class _Routes:
    """What happens at each address; who calls is asked at every one."""

    def __init__(self, guard: Guard, who: Callable[[Request], Awaitable[str]], exchanges: Exchanges) -> None:
        self._guard, self._who, self._exchanges = guard, who, exchanges
        self._blocks, self._known = Blocks(), entries()

    async def _opened(self, granted: Granted, manager: Any, verbs: frozenset[str]) -> Response:
        held = self._blocks.hold(Held(granted.who, manager, await manager.__aenter__(), verbs))
        return JSONResponse({"block": held.id, "dfid": getattr(held.inside, "dfid", None)})

    async def run(self, request: Request) -> Response:
        """Open a flow as a block, or take up one to resume."""
        given: dict[str, Any] = wire.shape(dict[str, Any]).load(await body(request), "")
        if given.get("resume") is None:
            opening = {name: value for name, value in given.items() if name != "lease_s"}
            granted = await self._guard(request, self._known["flows", "start"], opening)
        else:
            about = {"dfid": given["resume"], "worker": "block"}
            granted = await self._guard(request, self._known["flows", "lease"], about)
        if "called" in given:
            given["called"] = wire.shape(Called).load(given["called"], "called")
        return await self._opened(granted, granted.store.flows.run(**given), _FLOW)

    async def take(self, request: Request) -> Response:
        """An orphan of a function, in hand."""
        given = wire.shape(_Wanted).load(await body(request), "")
        granted = await self._guard(request, self._known["flows", "recover"], {})
        ns, kind = _namespace(granted, given.ns), decisions.Kind(given.name, given.version, given.lease_s)
        taken = await granted.store.write(lambda tx: decisions.take(tx, kind, given.worker, ns))
        if taken is None:
            return JSONResponse(None)
        run, called = taken
        manager = Block.taken(granted.store, run)
        held = self._blocks.hold(Held(granted.who, manager, OpenFlow(granted.store, run), _FLOW))
        return JSONResponse({"block": held.id, "dfid": run.hand.dfid, "arguments": called.arguments})

    async def left(self, request: Request) -> Response:
        """Orphans that none of the functions runs which are known."""
        given = wire.shape(_Left).load(await body(request), "")
        granted = await self._guard(request, self._known["flows", "recover"], {})
        ns = _namespace(granted, given.ns)
        found = await granted.store.read(lambda tx: decisions.left(tx, set(given.known), given.limit, ns))
        return JSONResponse(wire.dump(found))

    async def transaction(self, request: Request) -> Response:
        """Several statements as one."""
        given: dict[str, Any] = wire.shape(dict[str, Any]).load(await body(request), "")
        granted = await self._guard(request, self._known["relational", "execute"], {"query": ""})
        return await self._opened(granted, granted.store.relational.transaction(**given), _TRANSACTION)

    async def leave(self, request: Request, block: str) -> Response:
        """Leave a block."""
        held, given = self._blocks.find(block, await self._who(request)), await body(request)
        exchange = self._exchanges.begin(held.who, partial(told, request.scope))
        self._blocks.drop(held)
        return streaming(self._exchanges, exchange, held.leave(given, exchange))

    async def inside(self, request: Request, block: str, verb: str) -> Response:
        """A verb inside a block."""
        held = self._blocks.find(block, await self._who(request))
        given: dict[str, Any] = wire.shape(dict[str, Any]).load(await body(request), "")
        if verb == "ask":  # what may not be asked outside a block may not be asked inside
            asked = {**given, "dfid": held.inside.dfid}
            await self._guard(request, self._known["escalations", "request"], asked)
        exchange = self._exchanges.begin(held.who, partial(told, request.scope))
        try:
            work = held.call(verb, given, exchange)
        except TypeError as error:
            raise InvalidInputError(f"{verb} was called with something it does not take: {error}") from error
        return streaming(self._exchanges, exchange, work)

    async def answer(self, request: Request, exchange: str, call: str) -> Response:
        """How a function of the caller ended."""
        self._exchanges.find(exchange, await self._who(request)).answer(call, await body(request))
        return Response(status_code=204)
