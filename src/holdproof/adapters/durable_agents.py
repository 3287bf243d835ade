"""An agent of a framework as a durable function: each of its runs is a flow.

Rules:
- A run is a flow of a registered function: it has an id, its input and its output are recorded, and whoever calls it
  again with the same id gets the same run: its output, or the rest of it where its process died.
- Its model calls and tool calls are steps of the flow (model_steps.py).
- Tool calls that need approval are one escalation. The run waits for the answer and goes on, here or on another worker.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Final, Self

from holdproof.adapters.approvals import CallDecision, RequestOptions
from holdproof.adapters.model_steps import LoopSteps, Price, durable_loop
from holdproof.adapters.shared_store import SharedStore, StoreAdapter, Where
from holdproof.client import Holdproof, OpenFlow
from holdproof.errors import InvalidInputError
from holdproof.model.coordination import Escalation

LEASE_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class AgentRun:
    """How a run ended: its flow, and its output as it is recorded."""

    flow_id: str
    output: Any
    result: Any = None
    """The framework's own result, where the run ended in this call."""


_ENDED: Final[ContextVar["list[AgentRun] | None"]] = ContextVar("holdproof_agent_runs", default=None)
"""Where the call that is being served collects the run that it asked for."""


class DurableAgent(StoreAdapter, ABC):
    """Base of the frameworks' `HoldproofAgent`: an agent whose runs survive their process.

    `where` is a folder, a URL, `:memory:`, an open store, or nothing: where the environment says. On a store that is
    passed in open, its workers and `flows.recover` continue runs too.
    """

    framework: ClassVar[str]
    """The name of the framework, as flows and escalations carry it."""

    def __init__(
        self,
        agent: Any,
        where: Where = None,
        *,
        agent_id: str,
        name: str | None = None,
        version: str = "1.0",
        approvals: RequestOptions | None = None,
        price: Price | None = None,
        lease_s: float = LEASE_S,
        ns: str | None = None,
        **options: Any,
    ) -> None:
        """Wrap an agent; `options` go to every run of it, and are not recorded."""
        self.agent = agent
        self._agent_id = agent_id
        self._name = f"{self.framework} {agent_id}" if name is None else name
        self._version = version
        self._approvals = approvals or RequestOptions()
        self._price = price
        self._lease_s = lease_s
        self._options = options
        self._shared = SharedStore(where, ns=ns)
        self._function: Any = None
        if self._shared.opened is not None:
            # So that workers of this store can run it at once.
            self._register(self._shared.opened)

    @abstractmethod
    async def _drive(self, loop: LoopSteps, prompt: Any, options: dict[str, Any]) -> tuple[Any, Any]:
        """Run the agent to its end, with all approvals; return its output as JSON and the framework's own result."""

    def _answers(self, escalation: Escalation, answer: Any) -> Mapping[str, CallDecision]:  # noqa: ARG002 (for others)
        """Return what an answer says about each call of an escalation."""
        if not isinstance(answer, Mapping):
            raise InvalidInputError("an answer says True, False or why not for each call, by its id", field="answer")
        return {str(id): _decision(each) for id, each in answer.items()}

    def _register(self, store: Holdproof) -> Any:
        if self._function is None:

            async def run(flow: OpenFlow, prompt: Any, options: dict[str, Any]) -> Any:
                with durable_loop(flow, price=self._price) as loop:
                    output, result = await self._drive(loop, prompt, {**self._options, **options})
                ended = _ENDED.get()
                if ended is not None:
                    ended.append(AgentRun(flow.flow_id, output, result))
                return output

            declare = partial(store.flow, name=self._name, version=self._version)
            self._function = declare(agent=self._agent_id, lease_s=self._lease_s)(run)
        return self._function

    async def function(self) -> Any:
        """Return the registered function, for all that flows offer: `enqueue`, `with_id`, schedules."""
        return self._register(await self._shared.store())

    async def run(self, prompt: Any = None, *, flow_id: str | None = None, **options: Any) -> AgentRun:
        """Run the agent and return how it ended; it waits for approvals.

        With `flow_id` a second call is the same run: it returns its output, or continues it where its process died,
        once the lease of that process has expired (`lease_s`). `options` are recorded and go to the framework's `run`.
        """
        function = await self.function()
        chosen = function if flow_id is None else function.with_id(flow_id)
        ended: list[AgentRun] = []
        token = _ENDED.set(ended)
        try:
            output = await chosen(prompt, options)
        finally:
            _ENDED.reset(token)
        # Of a run that ended elsewhere there is what was recorded of it.
        return ended[0] if ended else AgentRun(str(flow_id), output)

    def run_sync(self, prompt: Any = None, *, flow_id: str | None = None, **options: Any) -> AgentRun:
        """Run the agent as `run` does, from code that is not async."""
        return asyncio.run(self.run(prompt, flow_id=flow_id, **options))

    async def recover(self) -> Any:
        """Continue the runs whose process died and those that were answered meanwhile; see `flows.recover`."""
        await self.function()
        store = await self._shared.store()
        return await store.flows.recover(**self._shared.within())

    async def answer(self, id: int, answer: Any, *, by: str, comment: str | None = None) -> Escalation:
        """Answer an escalation as `escalations resolve` does; the run goes on.

        `answer` is True, False or the reason why not for each call, by its id, or what the framework has for that.
        """
        store = await self._shared.store()
        escalation = await store.escalations.get(id, **self._shared.within())
        by_call = self._answers(escalation, answer)
        if unknown := sorted(by_call.keys() - {str(call["id"]) for call in escalation.proposal["calls"]}):
            raise InvalidInputError(f"escalation {id} asks about no call {unknown[0]}", id=id, call=unknown[0])
        return await store.escalations.resolve(
            id, "approve", by=by, comment=comment, proposal=_proposal(escalation, by_call), **self._shared.within()
        )

    async def __aenter__(self) -> Self:
        await self.function()
        return self


def _decision(answer: Any) -> CallDecision:
    if isinstance(answer, CallDecision):
        return answer
    # A reason is a refusal.
    return CallDecision(False, answer) if isinstance(answer, str) else CallDecision(answer is True)


def _proposal(escalation: Escalation, by_call: Mapping[str, CallDecision]) -> dict[str, Any] | None:
    """Return the changes of an approval; None where every call is approved as it was proposed."""
    calls: list[dict[str, Any]] = []
    for call in escalation.proposal["calls"]:
        # Silence is no approval.
        decision = by_call.get(str(call["id"]), CallDecision(False, "not among the calls that were approved"))
        fields = {"message": decision.message, "arguments": decision.arguments}
        details = {name: value for name, value in fields.items() if value is not None}
        calls.append({"id": call["id"], "approved": decision.approved, **details})
    if all(call["approved"] and "arguments" not in call for call in calls):
        return None
    return {"calls": calls}
