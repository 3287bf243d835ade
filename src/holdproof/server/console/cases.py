"""An escalation with all that an operator needs to decide it, and the draft of the decision.

Rules:
- What is authorised is made of the parts on the page that were ticked, with the values that stand there.
- All parts as they were proposed is "approved as proposed", anything else "approved with changes". Nothing ticked is
  no answer.
- Every answer has a comment, but an approval of low impact exactly as it was proposed.
- A step in doubt (started, and never confirmed) has answers of its own: it happened, with its result; it did not
  happen, and is run; undo the flow. To approve says none of these, and is refused.
- Who saw another state than there is now is shown the new one first.
- A question with characters that cannot be seen, or words of mixed scripts, is answered by who says to have read them.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from holdproof.errors import InvalidInputError
from holdproof.model import differences as diffs
from holdproof.model.agents import Agent
from holdproof.model.approvals import Approvals
from holdproof.model.coordination import Budget, Escalation
from holdproof.model.differences import ProposalPart
from holdproof.model.flows import Flow
from holdproof.model.page import Page
from holdproof.model.records import Document, Feedback
from holdproof.model.visible_text import marks, visible_json
from holdproof.server.console import similar
from holdproof.server.console.desk import Desk, or_default
from holdproof.server.console.similar import PastOutcomes

OUTCOMES: Final = {
    "approve": "approved as proposed",
    "reject": "rejected",
    "cancel": "cancelled",
    "happened": "it happened",
    "did_not_happen": "it did not happen: run it",
    "undo": "undo the flow",
}
_CHOOSE: Final = {
    "approval": "choose whether to authorise, to reject or to cancel",
    "in_doubt": "a step in doubt is not approved: say whether it happened, or undo the flow",
}
_LONGEST: Final = 2000
_MOST_PAST: Final = 60
_MOST_TERMS: Final = 12


@dataclass(frozen=True, slots=True)
class Case:
    """An escalation, what it is about, and the record of the agent that asks."""

    escalation: Escalation
    flow: Flow | None
    agent: Agent | None
    context: Document | None
    state: Document | None
    budget: Budget | None
    feedback: tuple[Feedback, ...]
    past: tuple[Escalation, ...]
    alike: tuple[Escalation, ...]
    """Other escalations of the agent, pending or not, that differ in their numbers only."""
    parts: list[ProposalPart]
    approvals: Approvals

    @property
    def pending_alike(self) -> list[Escalation]:
        """What waits and could be answered together with this one."""
        return [each for each in self.alike if each.status == "PENDING"]

    @property
    def history(self) -> PastOutcomes:
        """How those that are alike ended."""
        return similar.history(self.alike)

    @property
    def asks_leave(self) -> bool:
        """Whether nothing is proposed: the agent only asks whether it may go on."""
        return self.escalation.proposal in (None, {})

    @property
    def contract(self) -> list[tuple[str, Any]]:
        """What the agent's contract says, place by place."""
        return [] if self.agent is None or not self.agent.contract else diffs.leaves(self.agent.contract)[:_MOST_TERMS]

    def limit_of(self, part: ProposalPart) -> Any:
        """The number in the agent's contract that bears the name of a part and is less than proposed; None without."""
        if part.input != "number" or not part.path:
            return None
        limits = [value for name, value in self.contract if name.rpartition(".")[2] == part.path[-1]]
        exceeded = (each for each in limits if isinstance(each, int | float) and each < part.proposed)
        return next(exceeded, None)

    @property
    def doubt(self) -> dict[str, Any] | None:
        """What is known of the step in doubt, if the escalation is about one."""
        context = self.escalation.context
        return context if self.escalation.kind == "in_doubt" and isinstance(context, dict) else None

    @property
    def marks(self) -> list[str]:
        """What of the question may not be what it looks like; who answers says to have read it."""
        return marks([self.escalation.reason, self.escalation.proposal, self.doubt])

    def authorised(self, part: ProposalPart) -> tuple[bool, Any]:
        """Whether the answer has a part of the proposal, and with which value."""
        return diffs.find(self.escalation.answer, part.path)

    @property
    def seen(self) -> str:
        """Which state the proposal is compared with."""
        # Absent counts as version 0, so that a document that appears meanwhile is noticed as well.
        versions = (0 if each is None else each.version for each in (self.context, self.state))
        return ".".join(map(str, versions))


async def gather(desk: Desk, id: int) -> Case:
    """Gather an escalation with all that belongs to it, as far as the caller may see that."""
    store = desk.store
    escalation = await store.escalations.get(id)
    context = await or_default(store.contexts.get(escalation.flow_id))
    state = await or_default(store.state.get(escalation.agent_id))
    past = (await store.escalations.list(agent_id=escalation.agent_id, limit=_MOST_PAST)).items
    # The flow's own context comes first: where both have a place, it is the nearer one.
    sources = [("context", context), ("agent state", state)]
    return Case(
        escalation,
        await or_default(store.flows.get(escalation.flow_id)),
        await or_default(store.agents.get(escalation.agent_id)),
        context,
        state,
        await or_default(store.escalations.budget(escalation.agent_id)),
        (await or_default(store.feedback.list(agent_id=escalation.agent_id, limit=60), Page([]))).items,
        tuple(each for each in past if each.id < id),
        tuple(similar.alike(escalation, past)),
        diffs.parts(escalation.proposal, [(name, each.data) for name, each in sources if each is not None]),
        await store.escalations.approvals(id),
    )


@dataclass(frozen=True, slots=True)
class AnswerLine:
    """One part of an answer: whether it is authorised, and with which value."""

    part: ProposalPart
    ticked: bool
    value: Any

    @property
    def text(self) -> str:
        """The value as a form carries it."""
        return diffs.written(self.value)

    @property
    def kind(self) -> str:
        """`left out`, `edited`, or `as proposed`."""
        if not self.ticked:
            return "left out"
        return "as proposed" if diffs.equal(self.value, self.part.proposed) else "edited"


@dataclass(frozen=True, slots=True)
class AnswerDraft:
    """An answer that is not given yet."""

    choice: str
    comment: str
    lines: list[AnswerLine]
    result: Any = None
    """What the step returned, where it happened."""

    @property
    def result_text(self) -> str:
        """The result as a form carries it."""
        return visible_json(json.dumps(self.result, ensure_ascii=False))

    @property
    def changes(self) -> bool:
        """Whether it approves something else than was proposed."""
        return self.choice == "approve" and any(line.kind != "as proposed" for line in self.lines)

    @property
    def outcome(self) -> str:
        """What it leads to, in plain words."""
        return "approved with changes" if self.changes else OUTCOMES[self.choice]

    @property
    def proposal(self) -> Any:
        """What is authorised instead of the proposal; None where that is authorised as it is."""
        if not self.changes:
            return None
        return diffs.assembled([(line.part, line.value) for line in self.lines if line.ticked])


def draft(case: Case, fields: Sequence[tuple[str, str]]) -> AnswerDraft:
    """The answer that a form gives; InvalidInputError says what is missing."""
    values = dict(fields)
    choice = values.get("choice", "")
    comment = values.get("comment", "").strip()
    if choice not in case.escalation.answers:
        raise InvalidInputError(_CHOOSE[case.escalation.kind])
    if len(comment) > _LONGEST:
        raise InvalidInputError(f"say why in up to {_LONGEST} characters")
    if case.marks and values.get("marks") != "read":
        raise InvalidInputError("tick that you have read which characters of the question cannot be seen")
    if case.escalation.kind == "in_doubt":
        return _reasoned(case, AnswerDraft(choice, comment, [], _result(values) if choice == "happened" else None))
    # A form repeats the field `part` for every tick; the dictionary above keeps only the last one.
    ticked = {value for name, value in fields if name == "part"}
    lines = [_line(part, str(part.number) in ticked, values) for part in case.parts]
    if choice == "approve" and not any(line.ticked for line in lines):
        raise InvalidInputError("tick what you authorise; to authorise nothing, reject")
    return _reasoned(case, AnswerDraft(choice, comment, lines))


def _reasoned(case: Case, answer: AnswerDraft) -> AnswerDraft:
    """Return an answer that says why, where it has to."""
    is_plain = answer.choice == "approve" and not answer.changes and case.escalation.impact != "HIGH_IMPACT"
    if not answer.comment and not is_plain:
        raise InvalidInputError("say why: the comment becomes part of the record")
    return answer


def _result(values: dict[str, str]) -> Any:
    """The result of a step that happened, as it was typed."""
    text = values.get("result", "").strip()
    try:
        return json.loads(text) if text else None
    except ValueError as error:
        raise InvalidInputError(f"the result is not JSON ({error}); a text stands in quotation marks") from error


def _line(part: ProposalPart, ticked: bool, values: dict[str, str]) -> AnswerLine:
    text = values.get(f"value-{part.number}")
    # Without a tick the typed value is ignored: it need not even be valid.
    return AnswerLine(part, ticked, part.edited(text) if ticked and text is not None else part.proposed)
