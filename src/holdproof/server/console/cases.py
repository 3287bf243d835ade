"""An escalation with all that an operator needs to decide it, and the draft of the decision.

Rules:
- What is authorised is made of the parts on the page that were ticked, with the values that stand there.
- All parts as they were proposed is "approved as proposed", anything else "approved with changes". Nothing ticked is
  no answer.
- Every answer has a comment.
- A step in doubt (started, and never confirmed) is not approved here: to approve would run it again, which the words of
  an approval do not say. The page names the commands that say what is meant.
- Who saw another state than there is now is shown the new one first.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from holdproof.errors import InvalidInputError
from holdproof.model.agents import Agent
from holdproof.model.coordination import Budget, Escalation
from holdproof.model.flows import Flow, Step
from holdproof.model.page import Page
from holdproof.model.records import Document, Feedback
from holdproof.runtime.steps import asks_about
from holdproof.server.console import diffs
from holdproof.server.console.desk import Desk, or_default
from holdproof.server.console.diffs import ProposalPart

OUTCOMES: Final = {"approve": "approved as proposed", "reject": "rejected", "cancel": "cancelled"}
_LONGEST: Final = 2000


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
    parts: list[ProposalPart]
    step_in_doubt: Step | None = None
    """The step that the kernel asks about, if that is what the escalation is for."""

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
    past = await store.escalations.list(agent_id=escalation.agent_id, limit=12)
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
        tuple(each for each in past.items if each.id != id),
        diffs.parts(escalation.proposal, [(name, each.data) for name, each in sources if each is not None]),
        await _step_in_doubt(desk, escalation),
    )


async def _step_in_doubt(desk: Desk, escalation: Escalation) -> Step | None:
    if escalation.opened_by != "kernel":
        return None
    steps: tuple[Step, ...] = await or_default(desk.store.flows.steps(escalation.flow_id), ())
    return next((step for step in steps if asks_about(step, escalation.id)), None)


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
    if choice not in OUTCOMES:
        raise InvalidInputError("choose whether to authorise, to reject or to cancel")
    if choice == "approve" and case.step_in_doubt is not None:
        raise InvalidInputError(
            f"step {case.step_in_doubt.name} is in doubt: find out whether it happened, then use the commands on"
            " this page"
        )
    if not comment or len(comment) > _LONGEST:
        raise InvalidInputError(f"say why, in up to {_LONGEST} characters: the comment becomes part of the record")
    # A form repeats the field `part` for every tick; the dictionary above keeps only the last one.
    ticked = {value for name, value in fields if name == "part"}
    lines = [_line(part, str(part.number) in ticked, values) for part in case.parts]
    if choice == "approve" and not any(line.ticked for line in lines):
        raise InvalidInputError("tick what you authorise; to authorise nothing, reject")
    return AnswerDraft(choice, comment, lines)


def _line(part: ProposalPart, ticked: bool, values: dict[str, str]) -> AnswerLine:
    text = values.get(f"value-{part.number}")
    # Without a tick the typed value is ignored: it need not even be valid.
    return AnswerLine(part, ticked, part.edited(text) if ticked and text is not None else part.proposed)
