"""A run of an agent framework that stops to ask a person: kept as an escalation, answered in the inbox, resumed once.

Rules:
- The state of the run is part of the question, and so of its leaf in the log: what goes on is what was approved.
- An answer counts for each tool call by its id. MODIFY lists calls with `approved`; a call that is not listed, and
  every call of a question that was not approved, is rejected.
- Of any number of callers that resume an answered run, one runs it. The others get its outcome; where the one that
  ran it died, that is UnknownOutcomeError and not another run.
"""

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from holdproof import Refused, Tx
from holdproof.adapters.shared_store import SharedStore, settled
from holdproof.errors import ConflictError, InvalidInputError
from holdproof.model.coordination import Escalation
from holdproof.runtime import autocreate, escalations, flows

BUDGET: Final = 60
LEASE_S: Final = 900.0
_YEAR_S: Final = 365 * 86_400.0


@dataclass(frozen=True, slots=True)
class ToolCall:
    """What a run asks to do."""

    id: str
    tool: str
    arguments: Any = None

    def to_dict(self) -> dict[str, Any]:
        """As the inbox shows it."""
        return {"id": self.id, "tool": self.tool, "arguments": self.arguments}


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a person said of one call; `arguments` only where they were changed."""

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
class Terms:
    """How a question is asked: see `escalations.request`."""

    reason: str = "tools need approval"
    impact: str = "HIGH_IMPACT"
    deadline_s: float | None = None
    on_deadline: str = "reject"
    budget: int = BUDGET


class Pauses:
    """The runs of one agent that wait for a person."""

    def __init__(self, place: SharedStore, framework: str, agent_id: str) -> None:
        self.place, self._framework, self._agent_id = place, framework, agent_id

    async def ask(self, state: str, calls: Sequence[ToolCall], terms: Terms, flow_id: str | None = None) -> Escalation:
        """Keep the state of a run and ask about its calls, as one; with `dfid` in the flow of an earlier question."""
        if not calls:
            raise InvalidInputError("the run waits for nobody: there is no call to ask about")
        shown = {"calls": [call.to_dict() for call in calls]}
        about: dict[str, Any] = {"framework": self._framework, "state": state}
        about["terms"] = {"deadline_s": terms.deadline_s, "budget": terms.budget}
        within: dict[str, Any] = {"ns": self.place.ns or "main"}

        def write(tx: Tx) -> Escalation | Refused:
            flow = self._flow(tx, within["ns"]) if flow_id is None else flow_id
            return escalations.request(
                tx,
                flow,
                reason=terms.reason,
                context=about,
                proposal=shown,
                impact=terms.impact,
                deadline_s=terms.deadline_s,
                on_deadline=terms.on_deadline,
                budget=terms.budget,
                **within,
            )

        store = await self.place.store()
        return await settled(store.write(write))

    def _flow(self, tx: Tx, ns: str) -> str:
        autocreate.agent(tx, self._agent_id, ns=ns)
        flow = flows.start(tx, self._agent_id, flow_type=self._framework, ns=ns)
        flows.transition(tx, flow.flow_id, "RUNNING", ns=ns)
        return flow.flow_id

    async def answered(self, id: int, *, timeout_s: float | None = None) -> tuple[Escalation, str]:
        """Wait for the answer to a question; with it the state of the run."""
        store = await self.place.store()
        asked = await store.escalations.wait(id, timeout_s=timeout_s, **self.place.within())
        about = asked.context
        if not isinstance(about, Mapping) or about.get("framework") != self._framework:
            raise InvalidInputError(f"escalation {id} is not of a run of {self._framework}", id=id)
        if asked.status == "PENDING":
            raise ConflictError(f"escalation {id} is not answered yet", id=id)
        return asked, str(about["state"])

    async def once(
        self, asked: Escalation, run: Callable[[], Awaitable[Resumed]], *, lease_s: float, on_error: Any
    ) -> Resumed:
        """Run what was answered, unless somebody has; the flow ends with it."""
        store = await self.place.store()
        ran: list[Resumed] = []

        async def call() -> dict[str, Any]:
            done = await run()
            ran.append(done)
            if done.escalation is None and asked.approved:
                await store.flows.transition(
                    asked.flow_id, "COMPLETED", causation_id=f"escalation:{asked.id}", **self.place.within()
                )
            return {"output": done.output, "escalation": done.escalation}

        key = f"{self._framework}:resume:{asked.id}"
        told = await store.idempotency.once(
            key, asked.id, call, ttl_s=_YEAR_S, lease_s=lease_s, on_error=on_error, **self.place.within()
        )
        return ran[0] if ran else Resumed(told["output"], told["escalation"])


def terms_of(asked: Escalation) -> Terms:
    """How a question was asked: a run that stops again asks in the same way."""
    kept = asked.context.get("terms", {})
    return Terms(asked.reason, asked.impact, kept.get("deadline_s"), asked.on_deadline, kept.get("budget", BUDGET))


def arguments(given: Any) -> Any:
    """The arguments of a call as a person can read them, or the text that they are."""
    try:
        return json.loads(given or "null", parse_constant=str) if isinstance(given, str | None) else given
    except ValueError:
        return given


def plain(output: Any) -> Any:
    """The output of a run as JSON can keep it."""
    dump = getattr(output, "model_dump", None)
    return dump(mode="json") if callable(dump) else json.loads(json.dumps(output, default=str))


def verdicts(asked: Escalation) -> dict[str, Verdict]:
    """What was said of each call of a question, by the id of the call."""
    shown = {str(call["id"]): call for call in asked.proposal["calls"]}
    if not asked.approved:
        said = Verdict(False, asked.comment or f"{asked.status} by {asked.resolved_by}")
        return dict.fromkeys(shown, said)
    if asked.human_decision != "MODIFY":
        return dict.fromkeys(shown, Verdict(True))
    return {id: _modified(call, asked) for id, call in shown.items()}


def _modified(call: Mapping[str, Any], asked: Escalation) -> Verdict:
    given = asked.answer.get("calls") if isinstance(asked.answer, Mapping) else None
    for said in given if isinstance(given, list) else ():
        if isinstance(said, Mapping) and said.get("id") == call["id"]:
            if said.get("approved", True) is not True:
                return Verdict(False, said.get("message") or asked.comment)
            changed = said.get("arguments", call["arguments"])
            return Verdict(True, arguments=None if changed == call["arguments"] else changed)
    return Verdict(False, f"not among the calls that {asked.resolved_by} approved")
