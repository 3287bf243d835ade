"""Approvals that name people: who may answer an escalation, what they were shown, and what they said.

Rules:
- Who has to answer is one line: `finance`, `2 of finance`, `2 of ann, bob, carol`, `2 of finance with passkey`; each
  name is that of a person or of a group.
- What a person was shown is a document, and its hash stands in the answer.
- What a person signs is the statement: the document that was shown and the answer, in canonical JSON.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

from holdproof.errors import InvalidInputError
from holdproof.model.coordination import Escalation
from holdproof.model.value import Value

_LINE: Final = re.compile(r"(?:(?P<needed>[1-9]\d{0,2}) of )?(?P<names>.+?)(?P<passkey> with passkey)?")
_LONGEST: Final = 500
STATEMENT: Final = "holdproof.answer.v1"
"""The type of the statement that a person agrees to."""


@dataclass(frozen=True, slots=True)
class Approvers(Value):
    """Who has to answer: how many, of which people and groups, and whether each signs with a passkey."""

    needed: int
    names: tuple[str, ...]
    passkey: bool = False

    def __str__(self) -> str:
        return f"{self.needed} of {', '.join(self.names)}{' with passkey' if self.passkey else ''}"


def parse_approvers(line: Any) -> Approvers:
    """Return who has to answer, as a line says it; InvalidInputError for a line that says nothing."""
    match = _LINE.fullmatch(line.strip()) if isinstance(line, str) and len(line) <= _LONGEST else None
    names = tuple(dict.fromkeys(each.strip() for each in match["names"].split(","))) if match else ()
    if match is None or not all(each and each.isprintable() for each in names):
        raise InvalidInputError(
            "approvers is a line such as `finance`, `2 of finance` or `2 of ann, bob with passkey`",
            field="approvers",
            value=str(line)[:100],
        )
    return Approvers(int(match["needed"] or 1), names, match["passkey"] is not None)


@dataclass(frozen=True, slots=True)
class Person(Value):
    """Somebody who approves, and the groups they belong to."""

    name: str
    groups: tuple[str, ...]
    email: str | None
    created_at: str
    updated_at: str
    updated_by: str
    removed_at: str | None
    ns: str


@dataclass(frozen=True, slots=True)
class Delegation(Value):
    """Who answers in the place of whom, and until when."""

    id: int
    from_person: str
    to_person: str
    until: str
    created_at: str
    created_by: str
    ended_at: str | None
    ended_by: str | None
    ns: str


@dataclass(frozen=True, slots=True)
class EscalationAnswer(Value):
    """What a person answered to an escalation, and the bytes they were shown.

    `seat` is whom the answer counts for: the person, or whoever delegated to them. `passkey` is the assertion that
    signs the statement, where there is one.
    """

    id: int
    escalation_id: int
    flow_id: str
    person: str
    seat: str
    answered_by: str
    decision: str
    answer: Any
    comment: str | None
    shown_hash: str
    statement: str
    statement_hash: str
    passkey: Any
    created_at: str
    ns: str


@dataclass(frozen=True, slots=True)
class EscalationMessage(Value):
    """What was said about an escalation before it was answered: `question`, `reply`, `reassigned` or `reminder`."""

    id: int
    escalation_id: int
    flow_id: str
    kind: str
    text: str
    said_by: str
    created_at: str
    ns: str


@dataclass(frozen=True, slots=True)
class Approvals(Value):
    """How an escalation stands: who has to answer and who has, what was said, and what a person is shown."""

    id: int
    approvers: str | None
    needed: int
    approved_by: tuple[str, ...]
    waiting_for: tuple[str, ...]
    answers: tuple[EscalationAnswer, ...]
    messages: tuple[EscalationMessage, ...]
    document: str
    shown_hash: str

    @property
    def question(self) -> EscalationMessage | None:
        """The newest question to the agent, while it has no reply."""
        talk = [each for each in self.messages if each.kind in ("question", "reply")]
        return talk[-1] if talk and talk[-1].kind == "question" else None


def shown_document(escalation: Escalation, messages: Iterable[EscalationMessage]) -> dict[str, Any]:
    """Return what a person is shown: the request, and what was asked and replied since."""
    talk = [
        {"kind": each.kind, "by": each.said_by, "at": each.created_at, "text": each.text}
        for each in messages
        if each.kind in ("question", "reply")
    ]
    return {
        "escalation": escalation.id,
        "ns": escalation.ns,
        "flow_id": escalation.flow_id,
        "agent_id": escalation.agent_id,
        "kind": escalation.kind,
        "reason": escalation.reason,
        "context": escalation.context,
        "proposal": escalation.proposal,
        "impact": escalation.impact,
        "created_at": escalation.created_at,
        "deadline": escalation.deadline,
        "on_deadline": escalation.on_deadline,
        "messages": talk,
    }


def statement_document(
    document: Any, *, person: str, decision: str, answer: Any, comment: str | None
) -> dict[str, Any]:
    """Return what a person agrees to: the document that was shown, and the answer."""
    content = {"person": person, "decision": decision, "answer": answer, "comment": comment}
    return {"type": STATEMENT, "request": document, "answer": content}


def digest(text: str) -> str:
    """Return the SHA-256 of a text, in hex."""
    return sha256(text.encode()).hexdigest()
