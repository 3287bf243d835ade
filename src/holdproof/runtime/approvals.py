"""Answers to escalations: who may give one, what they were shown, how many are needed, and what is asked back.

Rules:
- Every answer of a person is an entry: who, in whose place, what, and the hash of what was shown.
- Who is told of another state than there is now (`shown_hash`) answers nothing: they read it again first.
- Who was removed answers nothing, whether approvers are named or not.
- Where an escalation names its approvers, only they answer, or those they delegated to. A person counts once, whoever
  they answer for, and nobody's seat counts twice.
- Approvals are for one and the same thing; one rejection rejects, one cancellation cancels. `happened` and
  `did_not_happen` are approvals too, `undo` is a rejection.
- An approval counts while it fits: for what is shown now, of a seat and by a person that the approvers in force have,
  signed where they sign. Whose approval no longer fits may answer again: that is the next version of its entry.
- People, delegations, answers, messages and the escalation are compared with their entries before an answer counts.
- A question to the agent and its reply are entries; the flow keeps waiting, and both are part of what is shown next.
- A reminder is written once, when a quarter of the time is left, and at most a day before the deadline.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

from holdproof import validation
from holdproof.crypto import canonical
from holdproof.db import Tx, sql
from holdproof.errors import (
    AlreadyAnsweredError,
    AnswersDifferError,
    NotApproverError,
    PasskeyRequiredError,
    ShownChangedError,
    TamperedError,
    TooFewApproversError,
)
from holdproof.evidence import logged_tables
from holdproof.evidence.tables import StoredRecord, Table, numbered
from holdproof.model import jsontext
from holdproof.model.approvals import (
    Approvals,
    Approvers,
    EscalationAnswer,
    EscalationMessage,
    digest,
    parse_approvers,
    shown_document,
    statement_document,
)
from holdproof.model.coordination import Escalation
from holdproof.runtime import people, recorded
from holdproof.runtime.escalation_rows import ESCALATIONS

_APPROVALS: Final = frozenset({"approve", "happened", "did_not_happen"})
"""The words that so many have to say before the flow goes on; every other word ends it at once."""

ANSWERS: Final = Table(
    "escalation_answers",
    EscalationAnswer,
    kind="answer",
    key="id",
    logged=(
        *("id", "escalation_id", "dfid", "person", "seat", "answered_by", "decision", "answer_json", "comment"),
        *("shown_hash", "statement", "statement_hash", "passkey_json", "created_at", "ns"),
    ),
    columns={"answer": "answer_json", "passkey": "passkey_json"},
    loads=dict.fromkeys(("answer_json", "passkey_json"), jsontext.load),
)
MESSAGES: Final = Table(
    "escalation_messages",
    EscalationMessage,
    kind="message",
    key="id",
    logged=("id", "escalation_id", "dfid", "kind", "text", "said_by", "created_at", "ns"),
)

# --- who may answer ----------------------------------------------------------------------------------------------


def named(tx: Tx, line: str | None, *, ns: str) -> str | None:
    """Return a line of approvers as it is stored; TooFewApproversError where fewer people exist than have to answer."""
    if line is None:
        return None
    approvers = parse_approvers(line)
    eligible = people.members(tx, approvers.names, ns=ns)
    if len(eligible) < approvers.needed:
        raise TooFewApproversError(
            f"{approvers} have to answer, and {', '.join(approvers.names)} are {len(eligible)} people:"
            " add them with `people put NAME --groups GROUP`",
            field="approvers",
            needed=approvers.needed,
            people=sorted(eligible),
        )
    return str(approvers)


_CONFIRM = logged_tables.selecting(ESCALATIONS.logged, "id", "t.id = :id AND t.ns = :ns")


def confirmed(tx: Tx, id: int, *, ns: str) -> StoredRecord[Escalation]:
    """Return an escalation that is about to be answered, compared with its entry: who has to answer stands in it."""
    rows = logged_tables.confirm(tx, ESCALATIONS.logged, _CONFIRM, id=id, ns=ns)
    if not rows:
        raise TamperedError(f"escalation {id} was removed", table=ESCALATIONS.name, row=str(id))
    [columns] = rows
    return ESCALATIONS.stored(columns)


def _seat(tx: Tx, escalation: Escalation, approvers: Approvers, person: str, used: set[str]) -> str:
    """Return whom a person's answer counts for; NotApproverError where it counts for nobody."""
    eligible = people.members(tx, approvers.names, ns=escalation.ns)
    if person in eligible:
        return person
    delegators = [each for each in people.delegators(tx, person, ns=escalation.ns) if each in eligible]
    if free := [each for each in delegators if each not in used]:
        return free[0]
    if delegators:
        raise AlreadyAnsweredError(f"{delegators[0]} has answered already", id=escalation.id, person=delegators[0])
    raise NotApproverError(
        f"escalation {escalation.id} is for {approvers}, and {person} is none of them", id=escalation.id, person=person
    )


# --- what is shown, and what is answered -------------------------------------------------------------------------


class Shown(NamedTuple):
    """What a person is shown: the document, and the hash of its canonical text."""

    document: dict[str, Any]
    text: str
    hash: str


def shown(tx: Tx, escalation: Escalation) -> Shown:
    """Return what a person is shown of an escalation as it stands, given as people read it."""
    document = shown_document(escalation, messages(tx, escalation))
    text = canonical.dump_text(document)
    return Shown(document, text, digest(text))


class Answer(NamedTuple):
    """What a person answers: the word, the proposal or result that goes with it, and why."""

    word: str
    value: Any
    comment: str | None


class Tally(NamedTuple):
    """How an escalation stands after an answer: whether that settles it, and in whose names."""

    is_settled: bool
    names: str


_NEXT = numbered("SELECT {id}", "escalation_answers")
_ADD = sql(ANSWERS.insert())
_AGAIN = sql(
    ANSWERS.update(
        *("person", "seat", "answered_by", "decision", "answer_json", "comment", "shown_hash", "statement"),
        *("statement_hash", "passkey_json", "created_at"),
        where="id = :id AND leaf_ver = :leaf_ver - 1",
    )
)
_GIVEN = logged_tables.selecting(ANSWERS.logged, "id", "t.escalation_id = :id AND t.ns = :ns")


def give(
    tx: Tx, escalation: Escalation, answer: Answer, *, by: str, shown_hash: str | None, passkey: Any = None
) -> Tally:
    """Write a person's answer; its flow is locked by the caller. `shown_hash` is the hash of what they were shown."""
    person = people.person_of(by)
    if people.is_removed(tx, person, ns=escalation.ns):
        raise NotApproverError(
            f"{person} was removed and answers nothing: put them again first (`people put`)",
            id=escalation.id,
            person=person,
        )
    current = shown(tx, escalation)
    approvers = None if escalation.approvers is None else parse_approvers(escalation.approvers)
    responses = _records(tx, escalation)
    earlier = () if approvers is None else _fitting(tx, approvers, [each.value for each in responses], current)
    seat = person if approvers is None else _seat(tx, escalation, approvers, person, {each.seat for each in earlier})
    _refuse_second(escalation, earlier, person, seat)
    if approvers is not None and approvers.passkey and passkey is None:
        raise PasskeyRequiredError(
            f"escalation {escalation.id} is for {approvers}: sign the answer with a passkey", id=escalation.id
        )
    if shown_hash is not None and shown_hash != current.hash:
        raise ShownChangedError(
            f"escalation {escalation.id} is not what it was when it was shown: read it again, then answer",
            id=escalation.id,
            shown_hash=current.hash,
        )
    if answer.word in _APPROVALS:
        _refuse_other(escalation, earlier, answer)
    replaced = _replaced(escalation, responses, person, seat)
    columns = _columns(tx, escalation, answer, who=(person, seat, by), current=current, passkey=passkey)
    row = _write(tx, columns, replaced)
    if approvers is None:
        return Tally(True, by)
    if answer.word not in _APPROVALS:
        return Tally(True, _name(row))
    counted = (*earlier, row)
    return Tally(len(counted) >= approvers.needed, ", ".join(map(_name, counted)))


def _fitting(
    tx: Tx, approvers: Approvers, responses: Sequence[EscalationAnswer], current: Shown
) -> tuple[EscalationAnswer, ...]:
    """Return the approvals that count under the approvers in force, for what is shown now; the first one first."""
    if not responses:
        return ()
    ns = responses[0].ns
    eligible = people.members(tx, approvers.names, ns=ns)
    # A delegate need not be an approver, and still has to be one of the people.
    present = people.members(tx, {each.person for each in responses}, ns=ns)
    return tuple(
        each
        for each in responses
        if each.decision in _APPROVALS
        and each.shown_hash == current.hash
        and each.seat in eligible
        and each.person in present
        and (each.passkey is not None or not approvers.passkey)
    )


def _name(answer: EscalationAnswer) -> str:
    return answer.person if answer.person == answer.seat else f"{answer.person} for {answer.seat}"


def _refuse_second(escalation: Escalation, earlier: Sequence[EscalationAnswer], person: str, seat: str) -> None:
    for each in earlier:
        if person == each.person or seat == each.seat:
            raise AlreadyAnsweredError(
                f"{_name(each)} answered escalation {escalation.id} at {each.created_at}: {each.decision}",
                id=escalation.id,
                person=each.person,
                decision=each.decision,
            )


def _replaced(
    escalation: Escalation, responses: Sequence[StoredRecord[EscalationAnswer]], person: str, seat: str
) -> StoredRecord[EscalationAnswer] | None:
    """Return the answer that another one takes the place of: that of this person or seat, which no longer fits."""
    old = [each for each in responses if person == each.value.person or seat == each.value.seat]
    # A person has one answer, and so has a seat: one answer does not take the place of two.
    _refuse_second(escalation, [each.value for each in old[1:]], person, seat)
    return old[0] if old else None


def _refuse_other(escalation: Escalation, earlier: Sequence[EscalationAnswer], answer: Answer) -> None:
    for each in earlier:
        # Compared as texts: in Python True is 1.
        if (each.decision, _text(each.answer)) != (answer.word, _text(answer.value)):
            how = "as proposed" if each.answer is None else "with a value of their own"
            raise AnswersDifferError(
                f"{_name(each)} answered escalation {escalation.id} {each.decision}, {how}: answer the same, or"
                f" {escalation.answers[-1] if escalation.kind == 'in_doubt' else 'reject'}",
                id=escalation.id,
                person=each.person,
            )


def _text(value: Any) -> str | None:
    return None if value is None else canonical.dump_text(value)


def statement(current: Shown, answer: Answer, *, person: str) -> str:
    """Return the text that a person agrees to by this answer; a passkey signs its hash."""
    document = statement_document(
        current.document, person=person, decision=answer.word, answer=answer.value, comment=answer.comment
    )
    return canonical.dump_text(document)


def _columns(
    tx: Tx, escalation: Escalation, answer: Answer, *, who: tuple[str, str, str], current: Shown, passkey: Any
) -> dict[str, Any]:
    """Return the columns of an answer, without its number."""
    person, seat, by = who
    subject = recorded.subject_of(tx, escalation.flow_id, ns=escalation.ns)
    agreed = statement(current, answer, person=person)
    value = _text(answer.value)
    return {
        "escalation_id": escalation.id,
        "dfid": escalation.flow_id,
        "person": person,
        "seat": seat,
        "answered_by": by,
        "decision": answer.word,
        "answer_json": None if value is None else recorded.seal_json(tx, value, subject),
        "comment": recorded.seal_text(tx, answer.comment, subject),
        "shown_hash": current.hash,
        "statement": recorded.seal_text(tx, agreed, subject),
        "statement_hash": digest(agreed),
        "passkey_json": None if passkey is None else canonical.dump_text(passkey),
        "created_at": tx.now,
        "ns": escalation.ns,
    }


def _write(tx: Tx, columns: dict[str, Any], replaced: StoredRecord[EscalationAnswer] | None) -> EscalationAnswer:
    # Wakes consoles that show who still has to answer.
    tx.notify(f"escalations:{columns['ns']}")
    if replaced is not None:
        return _opened(tx, ANSWERS.change(tx, _AGAIN, replaced, columns))
    numbers = tx.one(_NEXT)
    assert numbers is not None, "a SELECT without FROM has one row"
    (number,) = numbers
    row = {"id": number, **columns}
    ANSWERS.add(tx, _ADD, row)
    return _opened(tx, ANSWERS.from_columns(row))


def _opened(tx: Tx, answer: EscalationAnswer) -> EscalationAnswer:
    return replace(
        answer,
        answer=recorded.open_json(tx, answer.answer),
        comment=recorded.open_text(tx, answer.comment),
        statement=recorded.open_text(tx, answer.statement) or "",
    )


def _records(tx: Tx, escalation: Escalation) -> tuple[StoredRecord[EscalationAnswer], ...]:
    rows = logged_tables.confirm(tx, ANSWERS.logged, _GIVEN, id=escalation.id, ns=escalation.ns)
    records = map(ANSWERS.stored, rows)
    return tuple(replace(each, value=_opened(tx, each.value)) for each in records)


def answers(tx: Tx, escalation: Escalation) -> tuple[EscalationAnswer, ...]:
    """Return the answers that were given so far, the first one first, compared with their entries in the log."""
    return tuple(each.value for each in _records(tx, escalation))


def is_sealed(tx: Tx, escalation: Escalation) -> bool:
    """Whether the words of an escalation belong to a person: they leave the store through no channel."""
    return recorded.subject_of(tx, escalation.flow_id, ns=escalation.ns) is not None


def standing(tx: Tx, escalation: Escalation) -> Approvals:
    """Return how an escalation stands, given as people read it."""
    responses = answers(tx, escalation)
    approvers = None if escalation.approvers is None else parse_approvers(escalation.approvers)
    current = shown(tx, escalation)
    if approvers is None or escalation.status != "PENDING":
        # People leave and groups change afterwards: who resolved it stands in its entry.
        names = (escalation.resolved_by or "").split(", ")
        counted = tuple(each for each in responses if each.decision in _APPROVALS and _is_of(each, names))
        waiting_for: tuple[str, ...] = ()
    else:
        counted = _fitting(tx, approvers, responses, current)
        responders = {name for each in counted for name in (each.person, each.seat)}
        waiting_for = tuple(sorted(people.members(tx, approvers.names, ns=escalation.ns).keys() - responders))
    return Approvals(
        id=escalation.id,
        approvers=escalation.approvers,
        needed=1 if approvers is None else approvers.needed,
        approved_by=tuple(dict.fromkeys(map(_name, counted))),
        waiting_for=waiting_for,
        answers=responses,
        messages=messages(tx, escalation),
        document=current.text,
        shown_hash=current.hash,
    )


def _is_of(answer: EscalationAnswer, names: Sequence[str]) -> bool:
    return _name(answer) in names or answer.answered_by in names


# --- what is said before the answer ------------------------------------------------------------------------------

_NEXT_MESSAGE = numbered("SELECT {id}", "escalation_messages")
_SAY = sql(MESSAGES.insert())
_SAID = logged_tables.selecting(MESSAGES.logged, "id", "t.escalation_id = :id AND t.ns = :ns")


def say(tx: Tx, escalation: Escalation, kind: str, text: str, *, by: str) -> EscalationMessage:
    """Write what somebody says about an escalation; its flow is locked by the caller."""
    numbers = tx.one(_NEXT_MESSAGE)
    assert numbers is not None, "a SELECT without FROM has one row"
    (number,) = numbers
    subject = recorded.subject_of(tx, escalation.flow_id, ns=escalation.ns)
    row = {
        "id": number,
        "escalation_id": escalation.id,
        "dfid": escalation.flow_id,
        "kind": kind,
        "text": recorded.seal_text(tx, validation.words("text", text, least=1, most=10_000), subject),
        "said_by": validation.name("by", by),
        "created_at": tx.now,
        "ns": escalation.ns,
    }
    MESSAGES.add(tx, _SAY, row)
    # The first wakes whoever waits for this escalation, the second whoever shows what is pending.
    tx.notify(f"escalation:{escalation.id}", f"escalations:{escalation.ns}")
    return replace(MESSAGES.from_columns(row), text=text)


def messages(tx: Tx, escalation: Escalation) -> tuple[EscalationMessage, ...]:
    """Return what was said about an escalation, the oldest first, compared with the entries in the log."""
    rows = logged_tables.confirm(tx, MESSAGES.logged, _SAID, id=escalation.id, ns=escalation.ns)
    texts = map(MESSAGES.from_columns, rows)
    return tuple(replace(each, text=recorded.open_text(tx, each.text) or "") for each in texts)
