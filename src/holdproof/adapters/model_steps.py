"""Model calls and tool calls as steps of a flow: what the adapters that make an agent's loop durable share.

Rules:
- A model call is one step, `model <name>`. It records the model, its parameters, the tools that were offered, the
  messages, what came back, tokens and cost; the row of the step has the times. Messages and tools are parts of the
  step's arguments, which are stored by content address: of a conversation that grows, each call adds what is new.
- A tool call is one step, `tool <name>`, with its arguments and its result.
- What has finished is never called again: its record is returned. A model call that was cut off is made again, since it
  changes nothing. A tool call that was cut off is put to a person, unless the tool is declared safe to repeat.
- Calls inside a tool (an agent that a tool runs) belong to that tool's step and are not recorded by themselves.
- A flow that is run again has to make the same calls: other messages than were recorded are NonDeterminismError.
- An approval asks for all calls that wait at once; the answer counts for each call by its id (approvals.py).
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field
from decimal import Decimal
from time import monotonic
from typing import Any, Final

from holdproof.adapters.approvals import CallDecision, RequestOptions, ToolCall, decisions
from holdproof.client import OpenFlow
from holdproof.errors import InvalidInputError


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCall:
    """A model call as it is recorded; all values are JSON, and equal whenever the same call is made again."""

    model: str
    messages: Sequence[Any]
    """The conversation, one item a message; without clocks and random ids, which differ the next time."""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    tools: Sequence[Any] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenUsage:
    """The tokens of a model call, as far as the provider counts them."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None

    def to_dict(self) -> dict[str, int]:
        """Return the counts that are known."""
        return {name: count for name, count in asdict(self).items() if count is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelReply:
    """What a model call gave: the framework's own output as JSON, and what it took."""

    output: Any
    model: str | None = None
    """The model that answered, where the provider names its version."""
    usage: TokenUsage = TokenUsage()
    cost_usd: Decimal | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the reply as its step records it; what is not known is left out."""
        cost = None if self.cost_usd is None else str(self.cost_usd)
        details = {"model": self.model, "usage": self.usage.to_dict() or None, "cost_usd": cost}
        return {"output": self.output, **{name: value for name, value in details.items() if value is not None}}


Price = Callable[[str, TokenUsage], Decimal | None]
"""What a call of a model cost in US dollars, given its name and its tokens; None where that is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolOptions:
    """How a tool call is run as a step."""

    safe: bool = False
    """Whether it only reads, or may be repeated: then a call that was cut off is made again without asking."""
    retries: int = 0
    timeout_s: float | None = None


_STUCK_S: Final = 60.0
"""How long tasks of a run that is repeated wait for one another while none of them reaches a step."""
_LOOP: Final[ContextVar["LoopSteps | None"]] = ContextVar("holdproof_loop", default=None)
_INSIDE: Final[ContextVar[bool]] = ContextVar("holdproof_inside_step", default=False)


@dataclass(slots=True, eq=False)
class _WaitingCall:
    """A call of a task that is not the next on record."""

    task: str
    name: str
    arguments: dict[str, Any]


class _Patience:
    """How long a call waits for others while none of them comes."""

    def __init__(self, run: Any) -> None:
        self._run = run
        self._position = run.position
        self._since = monotonic()

    def over(self) -> bool:
        """Return whether no step was reached for so long."""
        if self._run.position != self._position:
            self._position = self._run.position
            self._since = monotonic()
        return monotonic() - self._since > _STUCK_S


class LoopSteps:
    """An agent's loop in an open flow: its model calls, its tool calls, and what it asks people."""

    def __init__(self, flow: OpenFlow, *, price: Price | None = None) -> None:
        self.flow = flow
        self._price = price
        self.event_loop = asyncio.get_running_loop()
        self._one_at_a_time = asyncio.Condition()
        self._waiting: list[_WaitingCall] = []
        self.running_tasks: Callable[[], Set[str]] = frozenset
        """The tasks that run at once, in frameworks that have any: calls of each come in their order, not of all."""
        self._numbers: Counter[str] = Counter()
        self.changed_arguments: dict[str, Any] = {}
        """The arguments of tool calls, by id, that were approved with changes: for frameworks that cannot say so."""

    async def model(self, call: ModelCall, run: Callable[[], Awaitable[ModelReply]], *, task: str | None = None) -> Any:
        """Make a model call once, whatever happens, and return its output as JSON."""

        async def request(model: str, messages: Any, parameters: Any, tools: Any) -> dict[str, Any]:  # noqa: ARG001
            # Its parameters are what is recorded, and what policies see; the call itself is the framework's.
            reply = await _inside(run)
            return self._priced(model, reply).to_dict()

        arguments = {
            "model": call.model,
            "messages": list(call.messages),
            "parameters": dict(call.parameters),
            "tools": list(call.tools),
        }
        record = await self._step(f"model {call.model}", request, arguments, task, on_unknown="retry")
        return record["output"]

    def _priced(self, model: str, reply: ModelReply) -> ModelReply:
        if reply.cost_usd is not None or self._price is None:
            return reply
        cost = self._price(reply.model or model, reply.usage)
        return ModelReply(output=reply.output, model=reply.model, usage=reply.usage, cost_usd=cost)

    async def tool(
        self,
        name: str,
        arguments: Any,
        run: Callable[[], Awaitable[Any]],
        options: ToolOptions | None = None,
        *,
        task: str | None = None,
    ) -> Any:
        """Make a tool call once, whatever happens, and return its result; both are JSON."""
        chosen = options or ToolOptions()

        async def call(tool: str, arguments: Any) -> Any:  # noqa: ARG001 (recorded, and seen by policies)
            return await _inside(run)

        return await self._step(
            f"tool {name}",
            call,
            {"tool": name, "arguments": arguments},
            task,
            on_unknown="retry" if chosen.safe else "ask",
            retries=chosen.retries,
            timeout_s=chosen.timeout_s,
        )

    async def step(
        self,
        name: str,
        arguments: Mapping[str, Any],
        run: Callable[[], Awaitable[Any]],
        *,
        safe: bool = False,
        task: str | None = None,
    ) -> Any:
        """Do once whatever else a framework does besides calling models and tools, and return its result as JSON."""

        async def work(arguments: Any) -> Any:  # noqa: ARG001 (recorded, and seen by policies)
            return await _inside(run)

        on_unknown = "retry" if safe else "ask"
        return await self._step(name, work, {"arguments": dict(arguments)}, task, on_unknown=on_unknown)

    def number(self, kind: str) -> int:
        """Return how many of a kind this run of the flow has asked for: the same again when it is run again."""
        self._numbers[kind] += 1
        return self._numbers[kind]

    async def _step(
        self, name: str, fn: Callable[..., Any], arguments: dict[str, Any], task: str | None, **options: Any
    ) -> Any:
        # A flow that is run again may have several calls in doubt, and asks about one at a time: no other step begins
        # while it waits. The lock is fair, so steps are reached in the order in which they are called.
        if self.flow.held.unreached or self._one_at_a_time.locked():
            async with self._one_at_a_time:
                await self._turn(name, arguments, task)
                try:
                    return await self.flow.step(name, fn, **options, **arguments)
                finally:
                    self._one_at_a_time.notify_all()
        return await self.flow.step(name, fn, **options, **arguments)

    async def _turn(self, name: str, arguments: dict[str, Any], task: str | None) -> None:
        """Wait until the record comes to this call, where tasks of a graph run at once: others may have to come first.

        Where every task that runs waits, the record fits none of them, and the flow refuses the step.
        """
        if task is None:
            return
        call = _WaitingCall(task, name, arguments)
        self._waiting.append(call)
        # Of tasks in threads some may not have begun, since those that wait here have all the threads.
        patience = _Patience(self.flow.held)
        try:
            while not self._is_next(call) and (self._another_comes() and not patience.over()):
                # A task that ends says so to nobody here.
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._one_at_a_time.wait(), 0.02)
        finally:
            self._waiting.remove(call)

    def _another_comes(self) -> bool:
        if any(self._is_next(call) for call in self._waiting):
            return True
        return not self.running_tasks() <= {call.task for call in self._waiting}

    def _is_next(self, call: "_WaitingCall") -> bool:
        run = self.flow.held
        expected = run.unreached.get(run.position + 1)
        if expected is None:
            return not run.unreached
        if expected != call.name:
            return False
        recorded = run.journal[call.name, run.counts["step", call.name] + 1].value.arguments
        return recorded is None or recorded == {"args": [], "kwargs": call.arguments}

    async def approve(
        self, framework: str, calls: Sequence[ToolCall], options: RequestOptions | None = None
    ) -> dict[str, CallDecision]:
        """Ask for a decision on tool calls and wait for it; return the decision on each call, by its id.

        A rejection ends the flow (FlowEndedError). To refuse one call and let the agent go on, a person approves with
        changes: `{"calls": [{"id": …, "approved": false, "message": …}]}`.
        """
        if not calls:
            raise InvalidInputError("the run waits for no approval: it has no pending tool call")
        terms = options or RequestOptions()
        escalation = await self.flow.approve(
            terms.reason,
            proposal={"calls": [call.to_dict() for call in calls]},
            context={"framework": framework},
            impact=terms.impact,
            deadline_s=terms.deadline_s,
            on_deadline=terms.on_deadline,
        )
        return decisions(escalation)


async def _inside(run: Callable[[], Awaitable[Any]]) -> Any:
    token = _INSIDE.set(True)
    try:
        return await run()
    finally:
        _INSIDE.reset(token)


def current_loop() -> LoopSteps | None:
    """Return the loop that the caller's calls are steps of; None outside a flow, and inside a step."""
    return None if _INSIDE.get() else _LOOP.get()


@contextmanager
def durable_loop(flow: OpenFlow, *, price: Price | None = None) -> Iterator[LoopSteps]:
    """Make the model calls and tool calls of this block steps of a flow, where the framework's adapter is in place."""
    loop = LoopSteps(flow, price=price)
    token = _LOOP.set(loop)
    try:
        yield loop
    finally:
        _LOOP.reset(token)
