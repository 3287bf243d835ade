"""A question with all that an operator needs to answer it, and the answer as it takes shape.

Rules:
- What is authorised is made of the parts on the page that were ticked, with the values that stand there.
- All parts as they were proposed is "approved as proposed", anything else "approved with changes". Nothing ticked is
  no answer.
- Every answer has a comment.
- Who saw another state than there is now is shown the new one first.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from holdproof.errors import InvalidInputError
from holdproof.model.agents import Agent
from holdproof.model.coordination import Budget, Escalation
from holdproof.model.flows import Flow
from holdproof.model.page import Page
from holdproof.model.records import Document, Feedback
from holdproof.server.console import diffs
from holdproof.server.console.desk import Desk, kindly
from holdproof.server.console.diffs import Part

OUTCOMES: Final = {"approve": "approved as proposed", "reject": "rejected", "cancel": "cancelled"}
_LONGEST: Final = 2000


@dataclass(frozen=True, slots=True)
class Case:
    """A question, what it is about, and the record of who asks."""

    asked: Escalation
    flow: Flow | None
    agent: Agent | None
    context: Document | None
    state: Document | None
    budget: Budget | None
    feedback: tuple[Feedback, ...]
    past: tuple[Escalation, ...]
    parts: list[Part]

    def authorised(self, part: Part) -> tuple[bool, Any]:
        """Whether the answer has a part of the proposal, and with which value."""
        return diffs.find(self.asked.answer, part.path)

    @property
    def seen(self) -> str:
        """Which state the proposal is compared with."""
        versions = (0 if each is None else each.version for each in (self.context, self.state))
        return ".".join(map(str, versions))


async def gather(desk: Desk, id: int) -> Case:
    """A question with all that belongs to it, as far as the caller may see that."""
    store = desk.store
    asked = await store.escalations.get(id)
    context = await kindly(store.contexts.get(asked.flow_id))
    state = await kindly(store.state.get(asked.agent_id))
    past = await store.escalations.list(agent_id=asked.agent_id, limit=12)
    known = [("context", context), ("agent state", state)]
    return Case(
        asked,
        await kindly(store.flows.get(asked.flow_id)),
        await kindly(store.agents.get(asked.agent_id)),
        context,
        state,
        await kindly(store.escalations.budget(asked.agent_id)),
        (await kindly(store.feedback.list(agent_id=asked.agent_id, limit=60), Page([]))).items,
        tuple(each for each in past.items if each.id != id),
        diffs.parts(asked.proposal, [(name, each.data) for name, each in known if each is not None]),
    )


@dataclass(frozen=True, slots=True)
class Line:
    """One part of an answer: whether it is authorised, and with which value."""

    part: Part
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
class Draft:
    """An answer that is not given yet."""

    choice: str
    comment: str
    lines: list[Line]

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


def draft(case: Case, fields: Sequence[tuple[str, str]]) -> Draft:
    """The answer that a form gives; InvalidInputError says what is missing."""
    given = dict(fields)
    choice, comment = given.get("choice", ""), given.get("comment", "").strip()
    if choice not in OUTCOMES:
        raise InvalidInputError("choose whether to authorise, to reject or to cancel")
    if not comment or len(comment) > _LONGEST:
        raise InvalidInputError(f"say why, in up to {_LONGEST} characters: the comment becomes part of the record")
    ticked = {value for name, value in fields if name == "part"}
    lines = [_line(part, str(part.number) in ticked, given) for part in case.parts]
    if choice == "approve" and not any(line.ticked for line in lines):
        raise InvalidInputError("tick what you authorise; to authorise nothing, reject")
    return Draft(choice, comment, lines)


def _line(part: Part, ticked: bool, given: dict[str, str]) -> Line:
    text = given.get(f"value-{part.number}")
    return Line(part, ticked, part.edited(text) if ticked and text is not None else part.proposed)
