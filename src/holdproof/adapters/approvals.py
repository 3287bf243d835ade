"""Runs of agent frameworks that wait for a human decision: paused as an escalation, resumed once.

Rules:
- The state of the run is part of the escalation, and so of its leaf in the log: what is resumed is what was approved.
- A decision counts for each tool call by its id. An approval with changes lists calls with `approved`; a call that is
  not listed, and every call of an escalation that was not approved, is rejected.
- Of any number of callers that resume a run, one runs it. The others get its outcome; where the one that ran it died,
  that is UnknownOutcomeError and not another run.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from holdproof.adapters.shared_store import SharedStore, StoreAdapter, Where, shield_until_done
from holdproof.errors import ConflictError, InvalidInputError
from holdproof.kernel import Refused, Tx, autocreate, escalations, flows
from holdproof.model.coordination import Escalation

LEASE_S: Final = 900.0
_YEAR_S: Final = 365 * 86_400.0


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call that a run asks to make."""

    id: str
    tool: str
    arguments: Any = None

    def to_dict(self) -> dict[str, Any]:
        """Return the call as the inbox shows it."""
        return {"id": self.id, "tool": self.tool, "arguments": self.arguments}


@dataclass(frozen=True, slots=True)
class CallDecision:
    """The human decision on one call; `arguments` only where they were changed."""

    approved: bool
    message: str | None = None
    arguments: Any = None


@dataclass(frozen=True, slots=True)
class Resumed:
    """How a resumed run ended: its output, or the escalation it waits for now; `result` only where it ran here."""

    output: Any
    escalation: int | None
    result: Any = None


@dataclass(frozen=True, slots=True)
class RequestOptions:
    """Options of an escalation: see `escalations.request`."""

    reason: str = "tools need approval"
    impact: str = "HIGH_IMPACT"
    deadline_s: float | None = None
    on_deadline: str = "reject"


class ApprovalAdapter(StoreAdapter, ABC):
    """Base of the frameworks' `HoldproofApprovals`: the runs of one agent that wait for a human decision."""

    framework: ClassVar[str]
    """The name of the framework, as flows and escalations carry it."""

    def __init__(self, where: Where = None, *, agent_id: str, ns: str | None = None) -> None:
        self._shared = SharedStore(where, ns=ns)
        self._agent_id = agent_id

    async def pause(
        self,
        run: Any,
        *,
        reason: str = "tools need approval",
        impact: str = "HIGH_IMPACT",
        deadline_s: float | None = None,
        on_deadline: str = "reject",
        flow_id: str | None = None,
        **serializing: Any,
    ) -> Escalation:
        """Store a run that stopped at tool calls and request a human decision on them.

        With `flow_id` the escalation belongs to the flow of an earlier one. Other keywords go to the framework's own
        serialization of the run.
        """
        options = RequestOptions(reason, impact, deadline_s, on_deadline)
        return await self._pause(run, options, flow_id, serializing)

    @abstractmethod
    async def _pause(
        self, run: Any, options: RequestOptions, flow_id: str | None, serializing: dict[str, Any]
    ) -> Escalation:
        """Serialize a run, find its waiting calls, and call `_request`."""

    async def _request(
        self, state: str, calls: Sequence[ToolCall], options: RequestOptions, flow_id: str | None
    ) -> Escalation:
        """Write the state of a run and the request for a decision in one transaction."""
        if not calls:
            raise InvalidInputError("the run waits for no approval: it has no pending tool call")
        proposal = {"calls": [call.to_dict() for call in calls]}
        # A run that stops again asks with the same options, so they travel with the state.
        terms = {"deadline_s": options.deadline_s}
        context: dict[str, Any] = {"framework": self.framework, "state": state, "terms": terms}
        # A function of a transaction needs the namespace spelled out; the store's methods fill it in.
        within = self._within()

        def write(tx: Tx) -> Escalation | Refused:
            flow = self._start_flow(tx, within["ns"]) if flow_id is None else flow_id
            return escalations.request(
                tx,
                flow,
                reason=options.reason,
                context=context,
                proposal=proposal,
                impact=options.impact,
                deadline_s=options.deadline_s,
                on_deadline=options.on_deadline,
                **within,
            )

        store = await self._shared.store()
        return await shield_until_done(store.write(write))

    def _start_flow(self, tx: Tx, ns: str) -> str:
        autocreate.agent(tx, self._agent_id, ns=ns)
        flow = flows.start(tx, self._agent_id, flow_type=self.framework, ns=ns)
        flows.transition(tx, flow.flow_id, "RUNNING", ns=ns)
        return flow.flow_id

    async def _wait(self, id: int, timeout_s: float | None) -> tuple[Escalation, str]:
        """Wait for the decision; return the escalation with the state of the run."""
        store = await self._shared.store()
        escalation = await store.escalations.wait(id, timeout_s=timeout_s, **self._shared.within())
        context = escalation.context
        if not isinstance(context, Mapping) or context.get("framework") != self.framework:
            raise InvalidInputError(f"escalation {id} is not of a run of {self.framework}", id=id)
        # `wait` returns when its time is over, decided or not.
        if escalation.status == "PENDING":
            raise ConflictError(f"escalation {id} is not decided yet", id=id)
        return escalation, str(context["state"])

    async def _run_once(
        self, escalation: Escalation, run: Callable[[], Awaitable[Resumed]], *, lease_s: float, on_error: Any
    ) -> Resumed:
        """Run what was decided, unless another caller has; the flow ends with it."""
        store = await self._shared.store()
        ran: list[Resumed] = []

        async def call() -> dict[str, Any]:
            outcome = await run()
            ran.append(outcome)
            if outcome.escalation is None and escalation.approved:
                await store.flows.transition(
                    escalation.flow_id, "COMPLETED", causation_id=f"escalation:{escalation.id}", **self._shared.within()
                )
            return {"output": outcome.output, "escalation": outcome.escalation}

        # One key for each escalation: every caller in every process meets at the same record.
        key = f"{self.framework}:resume:{escalation.id}"
        result = await store.idempotency.once(
            key, escalation.id, call, ttl_s=_YEAR_S, lease_s=lease_s, on_error=on_error, **self._shared.within()
        )
        # Only the caller that ran it has the framework's own result; the others get what was stored of it.
        return ran[0] if ran else Resumed(result["output"], result["escalation"])


def options_of(escalation: Escalation) -> RequestOptions:
    """Return the options an escalation was requested with: a run that stops again asks in the same way."""
    terms = escalation.context.get("terms", {})
    return RequestOptions(
        escalation.reason,
        escalation.impact,
        terms.get("deadline_s"),
        escalation.on_deadline,
    )


def parse_arguments(arguments: Any) -> Any:
    """Return the arguments of a call as JSON, or the text they are where a model wrote something else."""
    try:
        return json.loads(arguments or "null", parse_constant=str) if isinstance(arguments, str | None) else arguments
    except ValueError:
        return arguments


def plain(output: Any) -> Any:
    """Return the output of a run as JSON can hold it."""
    dump = getattr(output, "model_dump", None)
    return dump(mode="json") if callable(dump) else json.loads(json.dumps(output, default=str))


def decisions(escalation: Escalation) -> dict[str, CallDecision]:
    """Return the decision on each call of an escalation, by the id of the call."""
    calls = {str(call["id"]): call for call in escalation.proposal["calls"]}
    if not escalation.approved:
        rejection = CallDecision(False, escalation.comment or f"{escalation.status} by {escalation.resolved_by}")
        return dict.fromkeys(calls, rejection)
    if escalation.human_decision != "MODIFY":
        return dict.fromkeys(calls, CallDecision(True))
    return {id: _changed(call, escalation) for id, call in calls.items()}


def _changed(call: Mapping[str, Any], escalation: Escalation) -> CallDecision:
    answers = escalation.answer.get("calls") if isinstance(escalation.answer, Mapping) else None
    for answer in answers if isinstance(answers, list) else ():
        if isinstance(answer, Mapping) and answer.get("id") == call["id"]:
            if answer.get("approved", True) is not True:
                return CallDecision(False, answer.get("message") or escalation.comment)
            arguments = answer.get("arguments", call["arguments"])
            return CallDecision(True, arguments=None if arguments == call["arguments"] else arguments)
    # Silence is no approval: an answer with changes lists the calls that may be made.
    return CallDecision(False, f"not among the calls that {escalation.resolved_by} approved")
