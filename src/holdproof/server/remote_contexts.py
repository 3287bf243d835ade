"""Blocks of code at a distance: `flows.run` and `relational.transaction`, held open for their caller.

    POST /v1/flows/run                 {"agent_id": …} or {"resume": …}, and what `flows.start` takes
    POST /v1/flows/take                {"name": …, "version": …}: an orphan that such a function runs, in hand; or null
    POST /v1/flows/left                {"known": […]}: the orphans that none of those functions runs
    POST /v1/relational/transaction    {}
    POST /v1/blocks/{block}/{verb}     a verb inside the block; answered line by line (exchange.py)
    POST /v1/blocks/{block}/leave      {} or {"error": "Kind: words"} or {"problem": …}

Rules:
- A block belongs to whoever opened it.
- What it is opened and called with is read by its type, as at the address of a verb.
- A call of a registered function that an agent asks for carries that agent's name: only a function that is registered
  for the agent takes it up again (runtime/functions.py).
- A block is open until it is left. Of more than `_MOST`, whoever has the most of them loses the one that was not used
  for the longest time: as by a worker that is gone, a transaction is rolled back and a flow is left to be resumed.
- What a block did is durable step by step, as in one process. A block whose server is gone is a worker that is gone:
  its flow is resumed, its transaction was rolled back.
"""

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, Final

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

from holdproof.api import problems, wire
from holdproof.api.catalogue import entries
from holdproof.api.flow_block import FlowBlock, OpenFlow
from holdproof.errors import InvalidInputError, NotFoundError
from holdproof.executors import with_namespace
from holdproof.model.namespaces import MAIN
from holdproof.runtime import functions, leases
from holdproof.runtime.calls import FunctionCall
from holdproof.runtime.steps import OnUnknown
from holdproof.server import ids
from holdproof.server.api import Granted, Guard, body, complete, loaded, streaming
from holdproof.server.exchange import Exchange, Exchanges, caller_error
from holdproof.server.problems import told
from holdproof.storage.relational import IDLE_S

_FLOW: Final[Mapping[str, tuple[str, str] | None]] = {
    "step": None,
    "lock": ("locks", "acquire"),
    "approve": ("escalations", "request"),
    "heartbeat": None,
}
_TRANSACTION: Final[Mapping[str, tuple[str, str] | None]] = {
    verb: ("relational", verb) for verb in ("execute", "executemany", "fetch_all", "fetch_one")
}
"""The verbs of a block, and the verb of a store that takes the same."""
_OF_THE_BLOCK: Final = frozenset({"flow_id", "ns"})
"""What a verb of a store is told and a block knows."""
_MOST: Final = 10_000
"""How many blocks are held."""


@dataclass(frozen=True, slots=True)
class _Entered:
    """How a flow is taken in hand."""

    resume: str | None = None
    worker: str | None = None
    lease_s: float = leases.LEASE_S
    call: FunctionCall | None = None


@dataclass(frozen=True, slots=True)
class _Begun:
    """How a transaction begins."""

    idle_s: float = IDLE_S


@dataclass(frozen=True, slots=True)
class _Step:
    """A step of a flow; its functions stay with the caller."""

    name: str
    on_unknown: OnUnknown = "ask"
    compensate: str | None = None


@dataclass(frozen=True, slots=True)
class _Nothing:
    """A verb that takes nothing."""


@dataclass(frozen=True, slots=True)
class _Wanted:
    """Which orphan is wanted."""

    name: str
    version: str
    lease_s: float
    worker: str | None = None
    agent: str | None = None
    ns: str = MAIN


@dataclass(frozen=True, slots=True)
class _Left:
    """Which functions are known: by name, version, and the agent they are registered for."""

    known: tuple[tuple[str, str, str | None], ...]
    limit: int = 100
    ns: str = MAIN


def _namespace(granted: Granted, ns: str) -> str:
    return str(with_namespace(granted.store, {} if ns == MAIN else {"ns": ns}).get("ns", MAIN))


class Held:
    """A block that is open for a caller."""

    def __init__(self, who: str, manager: Any, inside: Any, verbs: Mapping[str, tuple[str, str] | None]) -> None:
        self.id, self.who = ids.random_token(16), who
        self.manager, self.inside, self.verbs = manager, inside, verbs
        self.exchange: Exchange | None = None

    def undoing(self, key: str) -> Callable[[Any], Awaitable[Any]]:
        """A function of the caller that undoes a step: called in whichever exchange the block is left by."""

        async def undo(result: Any) -> Any:
            assert self.exchange is not None, "a block is left in an exchange"
            return await self.exchange.caller(key)(result)

        return undo

    def loaded(self, verb: str, given: dict[str, Any]) -> dict[str, Any]:
        """What a verb of the block is called with, by its type; NotFoundError where there is none."""
        if verb not in self.verbs:
            raise NotFoundError(f"a block has no {verb}", verb=verb)
        like = self.verbs[verb]
        if like is None:
            taken = wire.shape(_Step if verb == "step" else _Nothing).load(given, "")
            return {each.name: getattr(taken, each.name) for each in fields(taken)}
        if known := sorted(_OF_THE_BLOCK & given.keys()):
            raise InvalidInputError(f"{verb} takes no {known[0]}", parameter=known[0])
        found = loaded(entries()[like], given)
        complete(entries()[like], found, known=_OF_THE_BLOCK)
        return found

    def call(self, verb: str, given: dict[str, Any], exchange: Exchange) -> Awaitable[Any]:
        """One verb inside the block."""
        self.exchange = exchange
        if verb != "step":
            made: Awaitable[Any] = getattr(self.inside, verb)(**given)
            return made
        name, undo = given.pop("name"), given.pop("compensate")
        if undo is not None:
            given["compensate"] = self.undoing(undo)
        return self.inside.step(name, exchange.caller("fn"), **given)  # type: ignore[no-any-return]

    async def leave(self, error: BaseException | None, exchange: Exchange | None) -> None:
        """Leave the block, as it should be left or by an exception."""
        self.exchange = exchange
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
        self._many: Counter[str] = Counter()

    async def hold(self, held: Held) -> Held:
        """Keep a block open, and leave one that is too many."""
        self._open[held.id] = held
        self._many[held.who] += 1
        while len(self._open) > _MOST:
            most, _ = self._many.most_common(1)[0]
            forgotten = self.drop(next(each for each in self._open.values() if each.who == most))
            await forgotten.leave(asyncio.CancelledError(), None)
        return held

    def find(self, id: str, who: str) -> Held:
        """An open block, for its own caller only."""
        held = self._open.get(id)
        if held is None or held.who != who:
            raise NotFoundError("there is no such block here; resume its flow if it has one", block=id)
        self._open.move_to_end(id)
        return held

    def drop(self, held: Held) -> Held:
        """It is being left; NotFoundError if it is already."""
        if self._open.pop(held.id, None) is None:
            raise NotFoundError("this block is being left already", block=held.id)
        self._many[held.who] -= 1
        if not self._many[held.who]:
            del self._many[held.who]
        return held


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

    async def _opened(self, granted: Granted, manager: Any, verbs: Mapping[str, tuple[str, str] | None]) -> Response:
        held = await self._blocks.hold(Held(granted.who, manager, await manager.__aenter__(), verbs))
        return JSONResponse({"block": held.id, "flow_id": getattr(held.inside, "flow_id", None)})

    async def run(self, request: Request) -> Response:
        """Open a flow as a block, or take up one to resume."""
        given = {name: value for name, value in (await body(request)).items() if value is not None}
        own = {each.name: given.pop(each.name) for each in fields(_Entered) if each.name in given}
        entered, opening = wire.shape(_Entered).load(own, ""), loaded(self._known["flows", "start"], given)
        if entered.resume is None:
            granted = await self._guard(request, self._known["flows", "start"], opening)
            opening |= granted.signed
        else:
            about = {"flow_id": entered.resume, "worker": "block"}
            granted = await self._guard(request, self._known["flows", "lease"], about)
        opening |= {"resume": entered.resume, "worker": entered.worker, "lease_s": entered.lease_s}
        if entered.call is not None:
            opening["call"] = replace(entered.call, agent_id=granted.agent_id)
        return await self._opened(granted, granted.store.flows.run(**opening), _FLOW)

    async def take(self, request: Request) -> Response:
        """An orphan of a function, in hand."""
        given = wire.shape(_Wanted).load(await body(request), "")
        granted = await self._guard(request, self._known["flows", "recover"], {})
        ns = _namespace(granted, given.ns)
        kind = functions.FunctionSpec(given.name, given.version, given.lease_s, given.agent)
        taken = await granted.store.write(lambda tx: functions.lease_orphan(tx, kind, given.worker, ns))
        if taken is None:
            return JSONResponse(None)
        run, called = taken
        manager = FlowBlock.around(granted.store, run)
        held = await self._blocks.hold(Held(granted.who, manager, OpenFlow(granted.store, run), _FLOW))
        return JSONResponse({"block": held.id, "flow_id": run.lease.flow_id, "arguments": called.arguments})

    async def left(self, request: Request) -> Response:
        """Orphans that none of the functions runs which are known."""
        given = wire.shape(_Left).load(await body(request), "")
        granted = await self._guard(request, self._known["flows", "recover"], {})
        ns = _namespace(granted, given.ns)
        found = await granted.store.read(lambda tx: functions.orphans_except(tx, set(given.known), given.limit, ns))
        return JSONResponse(wire.dump(found))

    async def transaction(self, request: Request) -> Response:
        """Several statements as one."""
        given = wire.shape(_Begun).load(await body(request), "")
        granted = await self._guard(request, self._known["relational", "execute"], {"query": ""})
        begun = granted.store.relational.transaction(idle_s=given.idle_s)
        return await self._opened(granted, begun, _TRANSACTION)

    async def leave(self, request: Request, block: str) -> Response:
        """Leave a block; it stays open until that has begun."""
        held, given = self._blocks.find(block, await self._who(request)), await body(request)
        error = _told(given)

        async def leaving(exchange: Exchange) -> None:
            await self._blocks.drop(held).leave(error, exchange)

        with self._exchanges.begun(held.who, partial(told, request.scope)) as exchange:
            return streaming(self._exchanges, exchange, leaving(exchange))

    async def inside(self, request: Request, block: str, verb: str) -> Response:
        """A verb inside a block."""
        held = self._blocks.find(block, await self._who(request))
        given = held.loaded(verb, await body(request))
        if verb == "approve":  # what may not be asked outside a block may not be asked inside
            asked = {**given, "flow_id": held.inside.flow_id}
            await self._guard(request, self._known["escalations", "request"], asked)
        with self._exchanges.begun(held.who, partial(told, request.scope)) as exchange:
            return streaming(self._exchanges, exchange, held.call(verb, given, exchange))

    async def answer(self, request: Request, exchange: str, call: str) -> Response:
        """How a function of the caller ended."""
        self._exchanges.find(exchange, await self._who(request)).answer(call, await body(request))
        return Response(status_code=204)
