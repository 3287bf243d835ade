"""Remote context managers: `flows.run` and `relational.transaction`, kept open for their caller.

    POST /v1/flows/run                 {"agent_id": …} or {"resume": …}, and what `flows.start` takes
    POST /v1/flows/take                {"name": …, "version": …}: lease an orphan that such a function runs; or null
    POST /v1/flows/left                {"functions": […]}: the orphans that none of those functions runs
    POST /v1/relational/transaction    {}
    POST /v1/blocks/{block}/reach      {"calls": […]}: number steps and children that will run at once
    POST /v1/blocks/{block}/child      what `flows.enqueue` takes: open a child of the flow, in a queue or as a block
    POST /v1/blocks/{block}/{method}     a method inside the block; answered line by line (exchange.py)
    POST /v1/blocks/{block}/leave      {} or {"error": "Kind: words"} or {"problem": …}

Rules:
- A block belongs to the caller that opened it.
- What it is opened and called with is read by its type, as at the path of a method.
- A call of a registered function that an agent asks for carries that agent's name: only a function that is registered
  for the agent takes it up again (runtime/functions.py).
- A block is open until it is left. Of more than `_MOST`, the caller with the most of them loses the one that was not
  used for the longest time: as by a worker that is gone, a transaction is rolled back and a flow is left to be resumed.
- What waits in a block ends with the server, and its caller is told so: the flow is not left, and is resumed later.
- What a block did is durable step by step, as in one process. A block whose server is gone is a worker that is gone:
  its flow is resumed, its transaction was rolled back.
"""

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, Final

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

from holdproof.api import problems, wire
from holdproof.api.catalogue import BlockName, block_methods, entries
from holdproof.api.flow_block import FlowBlock, OpenFlow
from holdproof.errors import InvalidInputError, NotFoundError
from holdproof.executors import with_namespace
from holdproof.model.defaults import IDLE_S, LEASE_S, TOTAL_S
from holdproof.model.flows import Rerun
from holdproof.model.namespaces import MAIN
from holdproof.runtime import calls, flow_run, functions, runs
from holdproof.runtime.calls import CallSpec
from holdproof.runtime.flow_steps import StepCall, StepOptions
from holdproof.runtime.steps import OnUnknown
from holdproof.server import ids
from holdproof.server.api import Granted, Guard, complete, loaded, streaming, until_the_end
from holdproof.server.bodies import read_as, read_object
from holdproof.server.exchange import Exchange, Exchanges, RepeatableError, caller_error
from holdproof.server.problems import problem_details
from holdproof.server.remote_children import CHILD_METHODS, ChildRequest, ReachedSteps, agent_of, open_child
from holdproof.server.state import state_of

_WAITING: Final = frozenset({"approve", "child_outcome", "receive", "sleep", "sleep_until", "wait_for"})
"""What waits for others inside a block, or for a time: it ends with the server."""
_MOST: Final = 10_000
"""How many blocks are open at most."""


@dataclass(frozen=True, slots=True)
class _RunOptions:
    """How a flow is leased."""

    resume: str | None = None
    worker: str | None = None
    lease_s: float = LEASE_S
    call: CallSpec | None = None


@dataclass(frozen=True, slots=True)
class _TransactionOptions:
    """How a transaction begins."""

    idle_s: float = IDLE_S
    total_s: float = TOTAL_S


@dataclass(frozen=True, slots=True)
class _Step:
    """A step of a flow; its functions stay with the caller, who encodes what they take and give."""

    name: str
    on_unknown: OnUnknown = "ask"
    compensate: str | None = None
    arguments: str | None = None
    """The text of what the function is called with."""
    record_args: bool = True
    retries: int = 0
    backoff_s: float = 1.0
    timeout_s: float | None = None
    reached: int | None = None
    """Its position, where it was numbered before (`reach`)."""


@dataclass(frozen=True, slots=True)
class _OrphanRequest:
    """Which orphan is wanted."""

    name: str
    version: str
    lease_s: float
    worker: str | None = None
    agent: str | None = None
    compatible: tuple[str, ...] = ()
    ns: str = MAIN


@dataclass(frozen=True, slots=True)
class _OrphanQuery:
    """Which functions are known: by name, version, and the agent they are registered for."""

    functions: tuple[tuple[str, str, str | None], ...]
    limit: int = 100
    ns: str = MAIN


def _namespace(granted: Granted, ns: str) -> str:
    return str(with_namespace(granted.store, {} if ns == MAIN else {"ns": ns}).get("ns", MAIN))


class OpenBlock:
    """A block that is open for a caller."""

    def __init__(self, who: str, manager: Any, inside: Any, block: BlockName) -> None:
        self.id = ids.random_token(16)
        self.who = who
        self.manager = manager
        self.inside = inside
        self.methods = block_methods(block)
        self.exchange: Exchange | None = None
        self.reached = ReachedSteps()
        self.children: set[str] = set()
        """The flows that were opened as children here."""

    def undoing(self, key: str) -> Callable[[Any], Awaitable[Any]]:
        """A function of the caller that undoes a step: called in whichever exchange the block is left by."""

        async def undo(result: Any) -> Any:
            assert self.exchange is not None, "a block is left in an exchange"
            return await self.exchange.caller(key)(result)

        return undo

    def loaded(self, method: str, values: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments of a method of the block, by their types; NotFoundError for no such method."""
        if method == "step" and isinstance(self.inside, OpenFlow):
            step = wire.shape(_Step).load(values, "")
            return {each.name: getattr(step, each.name) for each in fields(step)}
        if method in CHILD_METHODS and isinstance(self.inside, OpenFlow):
            return {"flow_id": wire.shape(str).load(values.get("flow_id"), "flow_id")}
        spec = self.methods.get(method)
        if spec is None:
            raise NotFoundError(f"a block has no {method}", method=method)
        arguments = loaded(spec, values)
        complete(spec, arguments)
        return arguments

    def like(self, method: str) -> tuple[str, str] | None:
        """Return the method of the store, if there is one, that does outside a block what this one does inside."""
        spec = self.methods.get(method)
        return None if spec is None else spec.exposure.like

    def call(self, method: str, arguments: dict[str, Any], exchange: Exchange) -> Awaitable[Any]:
        """Call one method inside the block."""
        self.exchange = exchange
        if method in CHILD_METHODS:
            flow_id = arguments["flow_id"]
            work = CHILD_METHODS[method](self.inside.held, flow_id, flow_id in self.children)
            return self.inside.drive(work)  # type: ignore[no-any-return]
        if method != "step":
            answer: Awaitable[Any] = getattr(self.inside, method)(**arguments)
            return answer
        name = arguments.pop("name")
        text = arguments.pop("arguments")
        text = None if text is None else calls.checked_text(text)
        undo = arguments.pop("compensate")
        reached = arguments.pop("reached")
        options = StepOptions(
            **arguments, compensate=None if undo is None else self.undoing(undo), retry_on=RepeatableError
        )
        step = StepCall(name, exchange.caller("fn"), text, options)
        step.check()
        return self.inside.drive(self.reached.perform(self.inside.held, step, reached))  # type: ignore[no-any-return]

    async def leave(self, error: BaseException | None, exchange: Exchange | None, *, result: str | None = None) -> None:
        """Leave the block, as it should be left or by an exception."""
        self.exchange = exchange
        if isinstance(self.manager, FlowBlock) and error is None:
            self.manager.result = result
        await self.manager.__aexit__(None if error is None else type(error), error, None)


def _leaving_error(values: dict[str, Any]) -> Exception | None:
    """The exception by which a block is left, if by one."""
    if "problem" in values:
        problem = values["problem"]
        if not isinstance(problem, dict):
            raise InvalidInputError("a problem is an object", parameter="problem")
        return problems.error(problem)
    return caller_error(values["error"]) if "error" in values else None


class OpenBlocks:
    """The blocks that are open."""

    def __init__(self) -> None:
        self._open: OrderedDict[str, OpenBlock] = OrderedDict()
        self._many: Counter[str] = Counter()

    async def hold(self, block: OpenBlock) -> OpenBlock:
        """Keep a block open, and leave one that is too many."""
        self._open[block.id] = block
        self._many[block.who] += 1
        while len(self._open) > _MOST:
            most, _ = self._many.most_common(1)[0]
            forgotten = self.drop(next(each for each in self._open.values() if each.who == most))
            # As if the worker was stopped: steps are not compensated, and the flow can be resumed.
            await forgotten.leave(asyncio.CancelledError(), None)
        return block

    def find(self, id: str, who: str) -> OpenBlock:
        """An open block, for its own caller only."""
        block = self._open.get(id)
        if block is None or block.who != who:
            raise NotFoundError("there is no such block here; resume its flow if it has one", block=id)
        # Every use makes a block the most recent one; the eviction above takes the oldest.
        self._open.move_to_end(id)
        return block

    def drop(self, block: OpenBlock) -> OpenBlock:
        """It is being left; NotFoundError if it is already."""
        if self._open.pop(block.id, None) is None:
            raise NotFoundError("this block is being left already", block=block.id)
        self._many[block.who] -= 1
        if not self._many[block.who]:
            del self._many[block.who]
        return block


def router(guard: Guard, who: Callable[[Request], Awaitable[str]], exchanges: Exchanges) -> APIRouter:
    """The routes of blocks, and of answers to what exchanges ask."""
    api_router = APIRouter(prefix="/v1", include_in_schema=False)
    routes = _Routes(guard, who, exchanges)
    for path, endpoint in (
        ("/flows/run", routes.run),
        ("/flows/take", routes.take),
        ("/flows/left", routes.left),
        ("/relational/transaction", routes.transaction),
        ("/blocks/{block}/leave", routes.leave),
        ("/blocks/{block}/reach", routes.reach),
        ("/blocks/{block}/child", routes.child),
        ("/blocks/{block}/{method}", routes.inside),
        ("/exchanges/{exchange}/{call}", routes.answer),
    ):
        api_router.add_api_route(path, endpoint, methods=["POST"], response_class=Response)
    return api_router


class _Routes:
    """What happens at each address; who calls is asked at every one."""

    def __init__(self, guard: Guard, who: Callable[[Request], Awaitable[str]], exchanges: Exchanges) -> None:
        self._guard = guard
        self._who = who
        self._exchanges = exchanges
        self._blocks = OpenBlocks()
        self._specs = entries()

    async def _opened(self, granted: Granted, manager: Any, block: BlockName) -> Response:
        inside = await manager.__aenter__()
        if isinstance(inside, OpenFlow):
            # The caller encodes and decodes what the flow records: the server need not have its classes.
            inside.held.raw = True
        opened = await self._blocks.hold(OpenBlock(granted.who, manager, inside, block))
        return JSONResponse({"block": opened.id, "flow_id": getattr(opened.inside, "flow_id", None)})

    async def run(self, request: Request) -> Response:
        """Open a flow as a block, or take up one to resume."""
        await self._who(request)
        values = {name: value for name, value in (await read_object(request)).items() if value is not None}
        own = {each.name: values.pop(each.name) for each in fields(_RunOptions) if each.name in values}
        entered = wire.shape(_RunOptions).load(own, "")
        opening = loaded(self._specs["flows", "start"], values)
        if entered.resume is None:
            granted = await self._guard(request, self._specs["flows", "start"], opening)
            opening |= granted.signed
        else:
            about = {"flow_id": entered.resume, "worker": "block"}
            granted = await self._guard(request, self._specs["flows", "lease"], about)
        opening |= {"resume": entered.resume, "worker": entered.worker, "lease_s": entered.lease_s}
        if entered.call is None:
            block = granted.store.flows.run(**opening)
            # Its caller is elsewhere, and may be gone: only what it does here extends the lease.
            block.keeps = False
            return await self._opened(granted, block, "flow")
        # The agent is taken from the caller's credentials, never from the body; and no caller makes a flow the fork of
        # another, whose record it would read then.
        own = {"forked_from": None, "forked_at": None, "effects": None, "answers": None}
        text = calls.checked_text(entered.call.arguments)
        call = replace(entered.call, arguments=text, agent_id=granted.agent_id, **own)
        return await self._call(granted, call, opening)

    async def _call(self, granted: Granted, call: CallSpec, opening: dict[str, Any]) -> Response:
        """Open the flow of a function that runs at the caller's; or name the flow that has this id already."""
        del opening["resume"]
        agent_id = opening.pop("agent_id", None)
        scoped = with_namespace(granted.store, {**opening})
        for derived in ("flow_type", "flow_version"):
            scoped.pop(derived, None)
        strict = granted.store.context.settings.strict_agents
        run = await granted.store.run(runs.enter_call(agent_id, call, strict=strict, **scoped))
        if isinstance(run, runs.EarlierFlow):
            return JSONResponse({"block": None, "flow_id": run.flow.flow_id})
        return await self._held(granted, run)

    async def _held(self, granted: Granted, run: flow_run.FlowRun, **facts: Any) -> Response:
        """Keep a leased flow open as a block, whose functions run at the caller's."""
        run.raw = True
        manager = FlowBlock.around(granted.store, run)
        block = await self._blocks.hold(OpenBlock(granted.who, manager, OpenFlow(granted.store, run), "flow"))
        return JSONResponse({"block": block.id, "flow_id": run.lease.flow_id, **facts})

    async def reach(self, request: Request, block: str) -> Response:
        """Number steps and children before the first of them starts."""
        open_block = self._flow_block(block, await self._who(request))
        return JSONResponse(open_block.reached.reach(open_block.inside.held, await read_object(request)))

    async def child(self, request: Request, block: str) -> Response:
        """Open a child of a flow, or find it; without a queue it is leased for the caller, and opened as a block."""
        open_block = self._flow_block(block, await self._who(request))
        run = open_block.inside.held
        values = await read_object(request)
        child = ChildRequest.read(values, self._specs["flows", "enqueue"])
        child.fill((await open_block.inside.drive(agent_of(run))), run.lease.ns)
        granted = await self._guard(request, self._specs["flows", "enqueue"], child.arguments)
        prepared = child.prepared(granted.agent_id)
        opened = await open_block.inside.drive(open_child(run, prepared, open_block.reached.take(run, prepared, child)))
        open_block.children.add(opened.flow_id)
        if opened.leased is None:
            return JSONResponse({"block": None, "flow_id": opened.flow_id, "ns": run.lease.ns})
        leased = opened.leased
        return await self._held(granted, leased.run, arguments=leased.call.arguments, ns=run.lease.ns)

    def _flow_block(self, block: str, who: str) -> OpenBlock:
        open_block = self._blocks.find(block, who)
        if not isinstance(open_block.inside, OpenFlow):
            raise NotFoundError("that block is no flow", block=block)
        return open_block

    async def take(self, request: Request) -> Response:
        """Lease an orphaned flow of a function, and open it as a block."""
        granted = await self._guard(request, self._specs["flows", "recover"], {})
        query = wire.shape(_OrphanRequest).load(await read_object(request), "")
        ns = _namespace(granted, query.ns)
        kind = functions.FunctionSpec(query.name, query.version, query.lease_s, query.agent, query.compatible)
        orphan = await granted.store.write(
            lambda tx: functions.lease_orphan(tx, kind, query.worker, ns, suspends=False)
        )
        if orphan is None:
            return JSONResponse(None)
        if isinstance(orphan, Rerun):
            return JSONResponse({"stopped": wire.dump(orphan)})
        return await self._held(granted, orphan.run, arguments=orphan.call.arguments)

    async def left(self, request: Request) -> Response:
        """Orphans that none of the functions runs which are known."""
        granted = await self._guard(request, self._specs["flows", "recover"], {})
        query = wire.shape(_OrphanQuery).load(await read_object(request), "")
        ns = _namespace(granted, query.ns)
        orphans = await granted.store.read(
            lambda tx: functions.orphans_except(tx, set(query.functions), query.limit, ns)
        )
        return JSONResponse(wire.dump(orphans))

    async def transaction(self, request: Request) -> Response:
        """Several statements as one."""
        granted = await self._guard(request, self._specs["relational", "execute"], {"query": ""})
        options = wire.shape(_TransactionOptions).load(await read_object(request), "")
        block = granted.store.relational.transaction(idle_s=options.idle_s, total_s=options.total_s)
        return await self._opened(granted, block, "transaction")

    async def leave(self, request: Request, block: str) -> Response:
        """Leave a block; it stays open until that has begun."""
        open_block = self._blocks.find(block, await self._who(request))
        values = await read_object(request)
        error = _leaving_error(values)

        result = values.get("result")
        if result is not None and not isinstance(result, str):
            raise InvalidInputError("the result is the JSON text of tagged JSON", parameter="result")
        text = None if result is None else calls.checked_text(result)

        async def leaving(exchange: Exchange) -> None:
            await self._blocks.drop(open_block).leave(error, exchange, result=text)

        with self._exchanges.opened(open_block.who, partial(problem_details, request.scope)) as exchange:
            return streaming(self._exchanges, exchange, leaving(exchange))

    async def inside(self, request: Request, block: str, method: str) -> Response:
        """Call a method inside a block."""
        open_block = self._blocks.find(block, await self._who(request))
        arguments = await read_as(request, partial(open_block.loaded, method))
        if like := open_block.like(method):  # what may not be done outside a block may not be done inside
            # The block's own flow, unless the method is about another one, as `send` is; a transaction has none.
            inside = open_block.inside
            own = {"flow_id": inside.flow_id} if isinstance(inside, OpenFlow) else {}
            await self._guard(request, self._specs[like], {**own, **arguments})
        with self._exchanges.opened(open_block.who, partial(problem_details, request.scope)) as exchange:
            work = open_block.call(method, arguments, exchange)
            if method in _WAITING:
                work = until_the_end(state_of(request).stopping, work)
            return streaming(self._exchanges, exchange, work)

    async def answer(self, request: Request, exchange: str, call: str) -> Response:
        """How a function of the caller ended."""
        self._exchanges.find(exchange, await self._who(request)).answer(call, await read_object(request))
        return Response(status_code=204)
