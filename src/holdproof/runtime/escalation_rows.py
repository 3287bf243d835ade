"""The rows of `escalation_requests`: opened once, resolved once; every version is a leaf.

The rules of escalations are in escalations.py. This module stands below flows.py, which withdraws the escalations of a
flow that goes on without their answers.

Of a person's flow the texts and values of an escalation are sealed. Rows are written and changed as they are stored;
whoever shows one opens it (`shown`).
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from holdproof.db import Tx, sql
from holdproof.evidence.tables import StoredRecord, Table, numbered
from holdproof.model import jsontext
from holdproof.model.coordination import Escalation
from holdproof.model.flows import Flow
from holdproof.runtime import recorded

_FIRST_LOGGED: Final = (
    *("id", "dfid", "root_dfid", "agent_id", "kind", "reason", "context_json", "proposal_json", "impact", "status"),
    *("human_decision", "created_at", "resolved_at", "deadline", "on_deadline", "opened_by", "resolved_by"),
    *("comment", "answer_json", "ns"),
)
ESCALATIONS: Final = Table(
    "escalation_requests",
    Escalation,
    kind="escalation",
    key="id",
    logged=(*_FIRST_LOGGED, "approvers"),
    version=2,
    # Entries that were written before escalations named their approvers.
    older=(_FIRST_LOGGED,),
    columns={"context": "context_json", "proposal": "proposal_json", "answer": "answer_json"},
    loads=dict.fromkeys(("context_json", "proposal_json", "answer_json"), jsontext.load),
)

_ADD = sql(ESCALATIONS.insert())


def write(tx: Tx, columns: Mapping[str, Any], subject: str | None) -> Escalation:
    """Write a new escalation, sealed for the person whose flow it is; columns that are not named are NULL."""
    row = {**dict.fromkeys(ESCALATIONS.columns), **_sealed(tx, columns, subject)}
    ESCALATIONS.add(tx, _ADD, row)
    return shown(tx, ESCALATIONS.from_columns(row))


_NEXT = numbered("SELECT {id}", "escalation_requests")


def open_request(tx: Tx, flow: Flow, columns: Mapping[str, Any]) -> Escalation:
    """Open an escalation, PENDING unless `columns` says otherwise; it may name another agent than the flow's."""
    numbers = tx.one(_NEXT)
    assert numbers is not None, "a SELECT without FROM has one row"
    (number,) = numbers
    row = {
        "id": number,
        "dfid": flow.flow_id,
        "root_dfid": flow.root_flow_id,
        "agent_id": flow.agent_id,
        "kind": "approval",
        "status": "PENDING",
        "created_at": tx.now,
        "on_deadline": "reject",
        "opened_by": "agent",
        **columns,
        "ns": flow.ns,
    }
    escalation = write(tx, row, flow.subject)
    # Wakes consoles and notifiers that show what is pending.
    tx.notify(f"escalations:{flow.ns}")
    return escalation


def _sealed(tx: Tx, columns: Mapping[str, Any], subject: str | None) -> dict[str, Any]:
    """Return columns as they are stored."""
    texts = {name: recorded.seal_text(tx, columns[name], subject) for name in ("reason", "comment") if name in columns}
    # Of a step in doubt the context is the kernel's own, and the arguments in it are sealed already.
    exempt = "context_json" if columns.get("kind") == "in_doubt" else None
    values = {
        name: recorded.seal_json(tx, columns[name], subject)
        for name in ("context_json", "proposal_json", "answer_json")
        if columns.get(name) is not None and name != exempt
    }
    return {**columns, **texts, **values}


def shown(tx: Tx, escalation: Escalation, *, whole: bool = True) -> Escalation:
    """Return an escalation as people read it: opened, or as erased; with `whole` large arguments in their place."""
    context = recorded.open_json(tx, escalation.context)
    if whole and escalation.kind == "in_doubt" and isinstance(context, dict):
        context = {**context, "arguments": recorded.resolve(tx, context.get("arguments"))}
    return replace(
        escalation,
        reason=recorded.open_text(tx, escalation.reason) or "",
        comment=recorded.open_text(tx, escalation.comment),
        context=context,
        proposal=recorded.open_json(tx, escalation.proposal),
        answer=recorded.open_json(tx, escalation.answer),
    )


# PENDING in the WHERE: of two resolvers of one escalation the second changes no row, and fails.
_SETTLE = sql(
    ESCALATIONS.update(
        *("status", "human_decision", "resolved_at", "resolved_by", "comment", "answer_json"),
        where="id = :id AND status = 'PENDING'",
    )
)


def settle(tx: Tx, record: StoredRecord[Escalation], answer: Mapping[str, Any]) -> Escalation:
    """Resolve a pending escalation; its flow is locked by the caller."""
    subject = recorded.subject_of(tx, record.value.flow_id, ns=record.value.ns)
    changes = _sealed(tx, {"resolved_at": tx.now, **answer}, subject)
    escalation = shown(tx, ESCALATIONS.change(tx, _SETTLE, record, changes))
    # Wakes whoever waits for this decision, once the transaction is committed.
    tx.notify(f"escalation:{escalation.id}")
    return escalation


_ASSIGN = sql(ESCALATIONS.update("approvers", where="id = :id AND status = 'PENDING'"))


def assign(tx: Tx, record: StoredRecord[Escalation], approvers: str) -> Escalation:
    """Write who has to answer a pending escalation from now on; its flow is locked by the caller."""
    return shown(tx, ESCALATIONS.change(tx, _ASSIGN, record, {"approvers": approvers}))


_PENDING = sql(ESCALATIONS.select("WHERE dfid = :dfid AND ns = :ns AND status = 'PENDING'", leaf=True))


def withdraw(tx: Tx, flow_id: str, comment: str, *, ns: str) -> None:
    """Cancel the pending escalations of a flow that no longer waits for their answers."""
    for record in _pending(tx, flow_id, ns):
        settle(tx, record, {"status": "CANCELLED", "resolved_by": "kernel", "comment": comment})


def approve_all(tx: Tx, flow_id: str, answer: Mapping[str, Any], *, ns: str) -> int:
    """Resolve every pending approval of a flow alike; return how many there were.

    A step in doubt is not among them: whether it happened is no approval.
    """
    records = [record for record in _pending(tx, flow_id, ns) if record.value.kind == "approval"]
    for record in records:
        settle(tx, record, answer)
    return len(records)


def _pending(tx: Tx, flow_id: str, ns: str) -> list[StoredRecord[Escalation]]:
    return [ESCALATIONS.record(row) for row in tx.all(_PENDING, dfid=flow_id, ns=ns)]
