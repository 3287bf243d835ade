"""The rows of `escalation_requests`: asked once, answered once; every version is a leaf.

The rules of escalations are in escalations.py; here a row is written, settled, and withdrawn.
"""

from typing import Any, Final

from holdproof.db import Row, Tx, sql
from holdproof.evidence.leaves import Projection
from holdproof.model.coordination import Escalation
from holdproof.runtime import logged_rows

ESCALATIONS: Final = logged_rows.register(
    Projection(
        "escalation_requests",
        1,
        (
            *("id", "dfid", "root_dfid", "agent_id", "reason", "context_json", "proposal_json", "impact", "status"),
            *("human_decision", "created_at", "resolved_at", "deadline", "on_deadline", "opened_by", "resolved_by"),
            *("comment", "answer_json", "ns"),
        ),
    ),
    kind="escalation",
    key="id",
    first=-1,
)

_ADD = sql(
    "INSERT INTO escalation_requests (id, dfid, root_dfid, agent_id, reason, context_json, proposal_json, impact,"
    " status, human_decision, created_at, resolved_at, deadline, on_deadline, opened_by, resolved_by, comment,"
    " answer_json, ns, leaf_id, leaf_ver, leaf_salt) VALUES (:id, :dfid, :root_dfid, :agent_id, :reason,"
    " :context_json, :proposal_json, :impact, :status, :human_decision, :created_at, :resolved_at, :deadline,"
    " :on_deadline, :opened_by, :resolved_by, :comment, :answer_json, :ns, :leaf_id, :leaf_ver, :leaf_salt)"
)


def write(tx: Tx, row: dict[str, Any]) -> Escalation:
    """Write a question, or one that was refused at once; what is not in `row` is still open."""
    whole = dict.fromkeys(ESCALATIONS.columns) | row
    logged_rows.add(tx, _ADD, "escalation", ESCALATIONS, whole)
    return shown(tuple(whole.values()))


_SETTLE = sql(
    "UPDATE escalation_requests SET status = :status, human_decision = :human_decision, resolved_at = :resolved_at,"
    " resolved_by = :resolved_by, comment = :comment, answer_json = :answer_json, leaf_id = :leaf_id,"
    " leaf_ver = :leaf_ver, leaf_salt = :leaf_salt WHERE id = :id AND status = 'PENDING'"
)


def settle(tx: Tx, known: Row, answer: dict[str, Any]) -> Escalation:
    """Answer a pending question; `known` is its row as `FIND` gave it to the one that holds its flow."""
    whole = dict(zip(ESCALATIONS.columns, known, strict=False)) | {"resolved_at": tx.now} | answer
    logged_rows.change(tx, _SETTLE, "escalation", ESCALATIONS, whole, leaf_id=known[19], leaf_ver=known[20])
    tx.notify(f"escalation:{whole['id']}")
    return shown(tuple(whole.values()))


_PENDING = sql(
    "SELECT id, dfid, root_dfid, agent_id, reason, context_json, proposal_json, impact, status, human_decision,"
    " created_at, resolved_at, deadline, on_deadline, opened_by, resolved_by, comment, answer_json, ns, leaf_id,"
    " leaf_ver FROM escalation_requests WHERE dfid = :dfid AND status = 'PENDING'"
)


def withdraw(tx: Tx, flow_id: str, comment: str) -> None:
    """Nobody waits for the answer any more."""
    settle_all(tx, flow_id, {"status": "CANCELLED", "resolved_by": "kernel", "comment": comment})


def settle_all(tx: Tx, flow_id: str, answer: dict[str, Any]) -> int:
    """Answer every pending question of a flow alike; how many there were."""
    pending = tx.all(_PENDING, dfid=flow_id)
    for known in pending:
        settle(tx, known, answer)
    return len(pending)


def shown(row: Row) -> Escalation:
    """A row as a value."""
    context, proposal, answer = (logged_rows.load(row[at]) for at in (5, 6, 17))
    return Escalation(*(*row[:5], context, proposal, *row[7:17], answer, row[18]))
