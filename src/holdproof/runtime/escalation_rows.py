"""The rows of `escalation_requests`: opened once, resolved once; every version is a leaf.

The rules of escalations are in escalations.py. This module stands below flows.py, which withdraws the escalations of a
flow that goes on without their answers.
"""

from collections.abc import Mapping
from typing import Any, Final

from holdproof.db import Tx, sql
from holdproof.evidence.tables import StoredRecord, Table
from holdproof.model import jsontext
from holdproof.model.coordination import Escalation

ESCALATIONS: Final = Table(
    "escalation_requests",
    Escalation,
    kind="escalation",
    key="id",
    logged=(
        *("id", "dfid", "root_dfid", "agent_id", "reason", "context_json", "proposal_json", "impact", "status"),
        *("human_decision", "created_at", "resolved_at", "deadline", "on_deadline", "opened_by", "resolved_by"),
        *("comment", "answer_json", "ns"),
    ),
    columns={"context": "context_json", "proposal": "proposal_json", "answer": "answer_json"},
    loads=dict.fromkeys(("context_json", "proposal_json", "answer_json"), jsontext.load),
)

_ADD = sql(ESCALATIONS.insert())


def write(tx: Tx, columns: Mapping[str, Any]) -> Escalation:
    """Write a new escalation; columns that are not named are NULL."""
    row = {**dict.fromkeys(ESCALATIONS.columns), **columns}
    ESCALATIONS.add(tx, _ADD, row)
    return ESCALATIONS.from_columns(row)


# PENDING in the WHERE: of two resolvers of one escalation the second changes no row, and fails.
_SETTLE = sql(
    ESCALATIONS.update(
        *("status", "human_decision", "resolved_at", "resolved_by", "comment", "answer_json"),
        where="id = :id AND status = 'PENDING'",
    )
)


def settle(tx: Tx, record: StoredRecord[Escalation], answer: Mapping[str, Any]) -> Escalation:
    """Resolve a pending escalation; its flow is locked by the caller."""
    escalation = ESCALATIONS.change(tx, _SETTLE, record, {"resolved_at": tx.now, **answer})
    # Wakes whoever waits for this decision, once the transaction is committed.
    tx.notify(f"escalation:{escalation.id}")
    return escalation


_PENDING = sql(ESCALATIONS.select("WHERE dfid = :dfid AND ns = :ns AND status = 'PENDING'", leaf=True))


def withdraw(tx: Tx, flow_id: str, comment: str, *, ns: str) -> None:
    """Cancel the pending escalations of a flow that no longer waits for their answers."""
    settle_all(tx, flow_id, {"status": "CANCELLED", "resolved_by": "kernel", "comment": comment}, ns=ns)


def settle_all(tx: Tx, flow_id: str, answer: Mapping[str, Any], *, ns: str) -> int:
    """Resolve every pending escalation of a flow alike; return how many there were."""
    rows = tx.all(_PENDING, dfid=flow_id, ns=ns)
    for row in rows:
        settle(tx, ESCALATIONS.record(row), answer)
    return len(rows)
