"""Feedback: how the work of agents turned out; rows are only added.

Of a person's flow the reason is sealed, and read as erased once that person was.
"""

from dataclasses import replace
from typing import Final

from holdproof import validation
from holdproof.db import Tx, sql
from holdproof.errors import NotFoundError
from holdproof.evidence.tables import Table, numbered
from holdproof.model.namespaces import MAIN
from holdproof.model.page import Page
from holdproof.model.records import SOURCES, Feedback
from holdproof.model.times import BEGINNING
from holdproof.runtime import recorded

FEEDBACK: Final = Table(
    "decision_feedback_trajectory",
    Feedback,
    kind="feedback",
    key="id",
    logged=("id", "agent_id", "dfid", "status", "reason", "score", "source", "created_at", "ns"),
    # SQLite gives a REAL column that holds a whole number back as an integer from some statements.
    loads={"score": float},
)

_NEXT = numbered(
    "SELECT f.subject, {id} FROM agent_registry a JOIN decision_flows f ON f.ns = a.ns"
    " WHERE a.agent_id = :agent_id AND f.dfid = :dfid AND a.ns = :ns",
    "decision_feedback_trajectory",
)
_ADD = sql(FEEDBACK.insert())


def record(
    tx: Tx,
    agent_id: str,
    flow_id: str,
    *,
    status: str,
    reason: str | None = None,
    score: float | None = None,
    source: str = "KERNEL",
    ns: str = MAIN,
) -> Feedback:
    """Record how a flow of an agent turned out; `score` is any finite number."""
    validation.name("status", status)
    validation.one_of("source", source, SOURCES)
    value = None if score is None else validation.number("score", score)
    numbers = tx.one(_NEXT, agent_id=agent_id, dfid=flow_id, ns=ns)
    if numbers is None:
        raise NotFoundError(
            f"there is no agent {agent_id} or no flow {flow_id}",
            listed_by="agents list",
            agent_id=agent_id,
            flow_id=flow_id,
        )
    subject, number = numbers
    row = {
        "id": number,
        "agent_id": agent_id,
        "dfid": flow_id,
        "status": status,
        "reason": recorded.seal_text(tx, reason, subject),
        "score": value,
        "source": source,
        "created_at": tx.now,
        "ns": ns,
    }
    FEEDBACK.add(tx, _ADD, row)
    return _shown(tx, FEEDBACK.from_columns(row))


def _shown(tx: Tx, feedback: Feedback) -> Feedback:
    return replace(feedback, reason=recorded.open_text(tx, feedback.reason))


_NEWEST: Final = (
    "ns = :ns AND id < :before AND created_at >= :since AND (CAST(:dfid AS TEXT) IS NULL OR dfid = :dfid)"
    " ORDER BY id DESC LIMIT :limit"
)
# Two texts, so that the listing of one agent can use its index.
_LIST = sql(FEEDBACK.select(f"WHERE {_NEWEST}"))
_LIST_OF_AGENT = sql(FEEDBACK.select(f"WHERE agent_id = :agent_id AND {_NEWEST}"))


def list(
    tx: Tx,
    *,
    agent_id: str | None = None,
    flow_id: str | None = None,
    since: str = BEGINNING,
    cursor: str | None = None,
    limit: int = 100,
    ns: str = MAIN,
) -> Page[Feedback]:
    """List feedback of one agent, on one flow, or all of it; newest first."""
    query = _LIST if agent_id is None else _LIST_OF_AGENT
    filters = {"agent_id": agent_id, "dfid": flow_id, "since": validation.moment("since", since)}
    page = FEEDBACK.page(tx, query, cursor, limit, **filters, ns=ns)
    return Page([_shown(tx, each) for each in page.items], page.next_cursor)
