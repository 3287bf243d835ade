"""Decision flows: the root of every life cycle.

Rules:
- Only the legal edges of model/flows.py, in our words or DIR's; any other is a typed error, and nothing is recorded.
- A transition writes the status, one row of `flow_transitions` and one leaf, or nothing.
- `started_at` is the first RUNNING, `completed_at` the end, `updated_at` the last transition.
- A flow belongs to an ACTIVE agent when it is opened; a child has its parent's root.
- An ended flow has no locks and no retries, unless something is still to be undone; a flow that goes on without its
  answer withdraws the question.
"""

from typing import Any, Final

from holdproof.db import Row, Tx, lock_exclusive, sql
from holdproof.errors import AgentInactiveError, AlreadyExistsError, IllegalTransitionError, NotFoundError
from holdproof.evidence.leaves import Projection
from holdproof.model.agents import OPENS_FLOWS
from holdproof.model.flows import DIR_WORDS, STATUSES, TERMINAL, UNDOABLE, WORDS, Flow, goes, legal, onward
from holdproof.model.value import by_attribute
from holdproof.runtime import escalation_rows, logged_rows
from holdproof.runtime.logged_rows import MAIN

FLOWS: Final = logged_rows.register(
    Projection(
        "decision_flows",
        1,
        (
            *("dfid", "root_dfid", "dfid_parent", "agent_id", "flow_type", "flow_version", "created_by_type"),
            *("created_by_id", "priority", "created_at", "ns"),
        ),
    ),
    kind="decision",
    key="dfid",
)
TRANSITIONS: Final = logged_rows.register(
    Projection(
        "flow_transitions",
        1,
        (
            *("id", "dfid", "root_dfid", "from_status", "to_status", "correlation_id", "causation_id"),
            *("created_at", "reason", "ns"),
        ),
    ),
    kind="transition",
    key="id",
    first=-1,
)

_AGENT = sql("SELECT status FROM agent_registry WHERE agent_id = :agent_id AND ns = :ns")
_ADD = sql(
    "INSERT INTO decision_flows (dfid, root_dfid, dfid_parent, agent_id, flow_type, flow_version, created_by_type,"
    " created_by_id, priority, created_at, updated_at, ns, leaf_id, leaf_ver, leaf_salt) VALUES (:dfid, :root_dfid,"
    " :dfid_parent, :agent_id, :flow_type, :flow_version, :created_by_type, :created_by_id, :priority, :created_at,"
    " :created_at, :ns, :leaf_id, :leaf_ver, :leaf_salt)"
)


def start(
    tx: Tx,
    agent_id: str,
    *,
    parent: str | None = None,
    flow_type: str = "DEFAULT",
    flow_version: str = "1.0",
    priority: int = 0,
    created_by: tuple[str, str] | None = None,
    flow_id: str | None = None,
    ns: str = MAIN,
) -> Flow:
    """Open a flow for an agent; `parent` makes it part of that flow's tree, `created_by` is a type and an id."""
    agent = tx.one(_AGENT, agent_id=agent_id, ns=ns)
    if agent is None:
        raise NotFoundError(f"there is no agent {agent_id}", agent_id=agent_id)
    if agent[0] not in OPENS_FLOWS:
        raise AgentInactiveError(
            f"agent {agent_id} is {agent[0]} and may not open flows", agent_id=agent_id, agent_status=agent[0]
        )
    if flow_id is not None:
        lock_exclusive(tx, f"flow:{logged_rows.name('flow_id', flow_id)}")
        if tx.one(_GET, dfid=flow_id) is not None:
            raise AlreadyExistsError(f"there is a flow {flow_id} already", flow_id=flow_id)
    by_type, by_id = created_by or (None, None)
    row: dict[str, Any] = {"flow_type": logged_rows.name("flow_type", flow_type), "flow_version": flow_version}
    row |= {"created_by_type": by_type, "created_by_id": by_id, "priority": priority}
    return enter(tx, agent_id, flow_id=flow_id or tx.new_id(), parent=parent, ns=ns, **row)


def enter(
    tx: Tx,
    agent_id: str,
    *,
    flow_id: str,
    parent: str | None = None,
    flow_type: str = "DEFAULT",
    flow_version: str = "1.0",
    created_by_type: str | None = None,
    created_by_id: str | None = None,
    priority: int = 0,
    ns: str,
) -> Flow:
    """Write a new flow; who may open one was asked before."""
    root = flow_id if parent is None else get(tx, parent, ns=ns).root_flow_id
    row: dict[str, Any] = {"dfid": flow_id, "root_dfid": root, "dfid_parent": parent, "agent_id": agent_id}
    row |= {"flow_type": flow_type, "flow_version": flow_version, "priority": priority, "created_at": tx.now, "ns": ns}
    row |= {"created_by_type": created_by_type, "created_by_id": created_by_id}
    logged_rows.add(tx, _ADD, "decision", FLOWS, row)
    return Flow(**by_attribute(row), status="CREATED", started_at=None, completed_at=None, updated_at=tx.now)


_GET = sql(
    "SELECT dfid, root_dfid, dfid_parent, agent_id, flow_type, flow_version, status, created_by_type, created_by_id,"
    " priority, started_at, completed_at, created_at, updated_at, ns FROM decision_flows WHERE dfid = :dfid"
)


def get(tx: Tx, flow_id: str, *, ns: str = MAIN) -> Flow:
    """One flow as it stands."""
    return Flow(*_known(tx.one(_GET, dfid=flow_id), flow_id, ns))


def _known(row: Row | None, flow_id: str, ns: str) -> Row:
    if row is None or row[14] != ns:
        raise NotFoundError(f"there is no flow {flow_id}", flow_id=flow_id)
    return row


def hold(tx: Tx, flow_id: str, *, ns: str = MAIN) -> Flow:
    """One flow, and nobody else changes it before this transaction ends."""
    lock_exclusive(tx, f"flow:{flow_id}")
    return get(tx, flow_id, ns=ns)


# --- transitions -------------------------------------------------------------------------------------------------

_HOLD = logged_rows.numbered(
    "SELECT dfid, root_dfid, dfid_parent, agent_id, flow_type, flow_version, status, created_by_type, created_by_id,"
    " priority, started_at, completed_at, created_at, updated_at, ns, {id} FROM decision_flows WHERE dfid = :dfid",
    "flow_transitions",
)
_MOVE = sql(
    "UPDATE decision_flows SET status = :to_status, started_at = :started_at, completed_at = :completed_at,"
    " updated_at = :now WHERE dfid = :dfid AND status = :from_status"
)
_RECORD = sql(
    "INSERT INTO flow_transitions (id, dfid, root_dfid, from_status, to_status, correlation_id, causation_id,"
    " created_at, reason, ns, leaf_id, leaf_ver, leaf_salt) VALUES (:id, :dfid, :root_dfid, :from_status, :to_status,"
    " :correlation_id, :causation_id, :created_at, :reason, :ns, :leaf_id, :leaf_ver, :leaf_salt)"
)


def transition(
    tx: Tx,
    flow_id: str,
    to: str,
    *,
    expected_status: str | None = None,
    correlation_id: str | None = None,
    causation_id: str | None = None,
    reason: str | None = None,
    ns: str = MAIN,
) -> Flow:
    """Move a flow along a legal edge; with `expected_status` only from there."""
    logged_rows.one_of("status", to, STATUSES)
    held = _held(tx, flow_id, ns)
    status = held[6]
    before = status if expected_status is None else logged_rows.one_of("expected_status", expected_status, STATUSES)
    if not legal(status, to) or status != before:
        raise _illegal(flow_id, before, to, at=status)
    said = {"from_status": status, "to_status": to, "correlation_id": correlation_id, "causation_id": causation_id}
    return _move(tx, held, to, said | {"root_dfid": held[1], "reason": reason})


_LAST = sql("SELECT to_status FROM flow_transitions WHERE dfid = :dfid ORDER BY id DESC LIMIT 1")


def record(tx: Tx, flow_id: str, before: str, word: str, *, root: str | None = None, ns: str = MAIN) -> Flow:
    """Move a flow in DIR's words, recorded as given; the first may say that the flow was under way before it came here.

    `before` is where the flow stands, or IllegalTransitionError; a label moves nothing, wherever it comes from.
    """
    held = _held(tx, flow_id, ns)
    last = tx.one(_LAST, dfid=flow_id)
    status: str = held[6] if last is not None else DIR_WORDS.get(before) or held[6]
    elsewhere = last is not None and last[0] in DIR_WORDS and last[0] != before
    if before in WORDS and (elsewhere or WORDS[before] != status):
        raise _illegal(flow_id, before, word, at=last[0] if last else status)
    if not goes(status, word):
        raise _illegal(flow_id, before, word, at=status)
    said = {"from_status": before, "to_status": word, "root_dfid": root or held[1]}
    said |= dict.fromkeys(("correlation_id", "causation_id", "reason"))
    return _move(tx, held, onward(status, word) or held[6], said)


def _held(tx: Tx, flow_id: str, ns: str) -> Row:
    """A flow that nobody else changes before this transaction ends, and the number of its next transition."""
    lock_exclusive(tx, f"flow:{flow_id}")
    return _known(tx.one(_HOLD, dfid=flow_id), flow_id, ns)


def _illegal(flow_id: str, before: str, after: str, *, at: str) -> IllegalTransitionError:
    told = "" if at == before else f", and it is {at}"
    return IllegalTransitionError(
        f"a flow does not go from {before} to {after}{told}", flow_id=flow_id, from_status=before, to_status=after
    )


def _move(tx: Tx, held: Row, to: str, said: dict[str, Any]) -> Flow:
    """Write the status, and one transition in the words that were `said`; a label changes no status."""
    flow_id, status, started, ended, ns = held[0], held[6], held[10], held[11], held[14]
    moved = to != status
    if to == "RUNNING" and started is None:
        started = tx.now
    if moved:
        ended = tx.now if to in TERMINAL else None
    times = {"started_at": started, "completed_at": ended, "now": tx.now}
    tx.execute(_MOVE, dfid=flow_id, from_status=status, to_status=to, **times, expect=1)
    row = {"id": held[15], "dfid": flow_id, **said, "created_at": tx.now, "ns": ns}
    logged_rows.add(tx, _RECORD, "transition", TRANSITIONS, row)
    if moved and status == "WAITING_ESCALATION":
        escalation_rows.withdraw(tx, flow_id, f"the flow went on to {to}")
    if moved and ended:
        close(tx, flow_id, ns=ns, locks=to not in UNDOABLE or not to_undo(tx, flow_id))
    return Flow(*(*held[:6], to, *held[7:10], started, ended, held[12], tx.now, ns))


def fail(tx: Tx, flow_id: str, *, reason: str, ns: str = MAIN) -> Flow:
    """Fail a flow for a reason: one that was never started is started first, one with steps to undo goes on to that."""
    if get(tx, flow_id, ns=ns).status == "CREATED":
        transition(tx, flow_id, "RUNNING", reason=reason, ns=ns)
    flow = transition(tx, flow_id, "FAILED", reason=reason, ns=ns)
    return transition(tx, flow_id, "COMPENSATING", reason=reason, ns=ns) if to_undo(tx, flow_id) else flow


def cancel(tx: Tx, flow_id: str, *, reason: str, ns: str = MAIN) -> Flow:
    """Cancel a flow for a reason; one with steps to undo goes on to that."""
    flow = transition(tx, flow_id, "CANCELLED", reason=reason, ns=ns)
    return transition(tx, flow_id, "COMPENSATING", reason=reason, ns=ns) if to_undo(tx, flow_id) else flow


_RELEASE = sql(
    "DELETE FROM resource_locks WHERE dfid = :dfid"
    " AND NOT EXISTS (SELECT 1 FROM saga_dirty_state s WHERE s.dfid = :dfid) RETURNING resource_id"
)
_CLOSE_RETRY = sql("UPDATE intent_retry SET next_retry_at = NULL, backoff_until = NULL WHERE dfid = :dfid")
_END_LEASE = sql("UPDATE flow_leases SET expires_at = :now, worker = '', token = token + 1 WHERE dfid = :dfid")


def close(tx: Tx, flow_id: str, *, ns: str, locks: bool = True) -> None:
    """What a flow leaves behind at its end: retries, its lease, and its locks unless something is to be undone."""
    tx.execute(_CLOSE_RETRY, dfid=flow_id)
    tx.execute(_END_LEASE, dfid=flow_id, now=tx.now)
    for (resource,) in tx.all(_RELEASE, dfid=flow_id) if locks else ():
        tx.notify(f"lock:{ns}:{resource}")


_TO_UNDO = sql(
    "SELECT s.name, s.n FROM flow_steps s WHERE s.dfid = :dfid AND s.undo = 1 AND s.state = 'DONE' AND NOT EXISTS"
    " (SELECT 1 FROM flow_steps u WHERE u.dfid = s.dfid AND u.compensates = s.name || ' ' || CAST(s.n AS TEXT)"
    " AND u.state = 'DONE') ORDER BY s.step_id"
)


def to_undo(tx: Tx, flow_id: str) -> list[tuple[str, int]]:
    """The steps of a flow that were done, can be undone and are not: name and number, in the order they were begun."""
    return [(name, n) for name, n in tx.all(_TO_UNDO, dfid=flow_id)]


_UNFINISHED = sql(
    "SELECT name, n FROM flow_steps WHERE dfid = :dfid AND undo >= :undo AND state IN ('STARTED', 'UNKNOWN')"
    " ORDER BY step_id"
)


def unfinished(tx: Tx, flow_id: str, *, undo: bool = False) -> list[tuple[str, int]]:
    """The steps of a flow that nobody knows the end of; with `undo` only those that would have to be undone."""
    return [(name, n) for name, n in tx.all(_UNFINISHED, dfid=flow_id, undo=int(undo))]
