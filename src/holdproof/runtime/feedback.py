"""Feedback: how decisions turned out, an agent's memory of its own judgement; rows are only added."""

from typing import Final

from holdproof.db import Row, Tx, sql
from holdproof.errors import NotFoundError
from holdproof.evidence.leaves import Projection
from holdproof.model.records import SOURCES, Feedback
from holdproof.model.value import by_attribute
from holdproof.runtime import logged_rows
from holdproof.runtime.logged_rows import BEGINNING, MAIN

FEEDBACK: Final = logged_rows.register(
    Projection(
        "decision_feedback_trajectory",
        1,
        ("id", "agent_id", "dfid", "status", "reason", "score", "source", "created_at", "ns"),
    ),
    kind="feedback",
    key="id",
    first=-1,
)

_BOTH = logged_rows.numbered(
    "SELECT a.agent_id, {id} FROM agent_registry a JOIN decision_flows f ON f.ns = a.ns"
    " WHERE a.agent_id = :agent_id AND f.dfid = :dfid AND a.ns = :ns",
    "decision_feedback_trajectory",
)
_ADD = sql(
    "INSERT INTO decision_feedback_trajectory (id, agent_id, dfid, status, reason, score, source, created_at, ns,"
    " leaf_id, leaf_ver, leaf_salt) VALUES (:id, :agent_id, :dfid, :status, :reason, :score, :source, :created_at, :ns,"
    " :leaf_id, :leaf_ver, :leaf_salt)"
)


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
    """Say how a decision of an agent turned out; `score` is any finite number."""
    logged_rows.name("status", status)
    logged_rows.one_of("source", source, SOURCES)
    value = None if score is None else logged_rows.number("score", score)
    found = tx.one(_BOTH, agent_id=agent_id, dfid=flow_id, ns=ns)
    if found is None:
        raise NotFoundError(f"there is no agent {agent_id} or no flow {flow_id}", agent_id=agent_id, flow_id=flow_id)
    row = {"id": found[1], "agent_id": agent_id, "dfid": flow_id, "status": status, "reason": reason}
    row |= {"score": value, "source": source, "created_at": tx.now, "ns": ns}
    logged_rows.add(tx, _ADD, "feedback", FEEDBACK, row)
    return Feedback(**by_attribute(row))


_TRAJECTORY = sql(
    "SELECT id, agent_id, dfid, status, reason, score, source, created_at, ns FROM decision_feedback_trajectory"
    " WHERE agent_id = :agent_id AND ns = :ns AND created_at >= :since AND id > :after ORDER BY id LIMIT :limit"
)


def trajectory(
    tx: Tx, agent_id: str, *, since: str = BEGINNING, ns: str = MAIN, after: int = 0, limit: int = 100
) -> tuple[Feedback, ...]:
    """What became of an agent's decisions, oldest first."""
    moment = logged_rows.moment("since", since)
    found = tx.all(_TRAJECTORY, agent_id=agent_id, since=moment, ns=ns, after=after, limit=logged_rows.limited(limit))
    return tuple(map(_shown, found))


_RECENT = sql(
    "SELECT id, agent_id, dfid, status, reason, score, source, created_at, ns FROM decision_feedback_trajectory"
    " WHERE agent_id = :agent_id AND ns = :ns AND id < :before ORDER BY id DESC LIMIT :limit"
)


def recent(
    tx: Tx, agent_id: str, *, before: int | None = None, limit: int = 100, ns: str = MAIN
) -> tuple[Feedback, ...]:
    """What became of an agent's decisions, newest first; `before` is the id of the last one of the page before."""
    until = logged_rows.LAST if before is None else logged_rows.position("before", before)
    found = tx.all(_RECENT, agent_id=agent_id, before=until, ns=ns, limit=logged_rows.limited(limit))
    return tuple(map(_shown, found))


def _shown(row: Row) -> Feedback:
    return Feedback(*(*row[:5], None if row[5] is None else float(row[5]), *row[6:]))
