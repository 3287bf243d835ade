"""Flows: durable workflow runs, and the only ways their status may change.

Rules:
- Only the legal transitions of model/flows.py, in our words or DIR's; any other is a typed error, and nothing is
  recorded.
- A transition writes the status, one row of `flow_transitions` and one leaf, or nothing.
- `started_at` is the first RUNNING, `completed_at` the end, `updated_at` the last transition.
- A flow belongs to an agent that is ACTIVE when the flow is opened; a child has its parent's root. Active policies
  decide whether it is opened, or waits for a person first (policy_gate.py).
- An ended flow has no worker, no locks and no retries, unless something is still to be undone; a flow that leaves
  WAITING_ESCALATION without an answer withdraws its escalation.
- Locks are taken in the order flow, agent, resources (`lock_exclusive`): no two transactions wait for each other.
- Ids belong to a namespace: every query names both. The names of locks do not, so that flows of two namespaces with one
  id wait for each other, and never more than that.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple

from holdproof import validation
from holdproof.content import encryption
from holdproof.db import Row, Tx, lock_exclusive, sql
from holdproof.errors import AgentInactiveError, AlreadyExistsError, IllegalTransitionError, NotFoundError
from holdproof.evidence.tables import Table, numbered
from holdproof.model.agents import OPENS_FLOWS
from holdproof.model.coverage import Cover, columns
from holdproof.model.flows import (
    DIR_WORDS,
    STATUSES,
    TERMINAL,
    UNDOABLE,
    WORDS,
    WORKED_ON,
    Flow,
    Transition,
    is_legal,
    may_say,
    status_after,
)
from holdproof.model.namespaces import MAIN
from holdproof.model.times import END
from holdproof.policy.policies import HAS_POLICIES, set_handle
from holdproof.runtime import attributes as flow_attributes
from holdproof.runtime import escalation_rows, policy_gate, recorded
from holdproof.runtime.undoable import to_undo

FLOWS: Final = Table(
    "decision_flows",
    Flow,
    kind="decision",
    key="dfid",
    per_namespace=True,
    # What changes of a flow (status, times) follows from its transitions, which are logged themselves.
    logged=(
        *("dfid", "root_dfid", "dfid_parent", "agent_id", "flow_type", "flow_version", "created_by_type"),
        *("created_by_id", "priority", "subject", "attributes", "created_at", "ns"),
    ),
    further=columns("status started_at completed_at updated_at", Cover.REBUILT, "the flow's transitions"),
)
TRANSITIONS: Final = Table(
    "flow_transitions",
    Transition,
    kind="transition",
    key="id",
    logged=(
        *("id", "dfid", "root_dfid", "from_status", "to_status", "correlation_id", "causation_id"),
        *("created_at", "reason", "result", "ns"),
    ),
)

_ADD = sql(FLOWS.insert("updated_at"))


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
    subject: str | None = None,
    attributes: Mapping[str, str] | None = None,
    ns: str = MAIN,
) -> Flow:
    """Open a flow for an agent; `parent` makes it part of that flow's tree, `created_by` is a type and an id.

    `subject` names the person whose flow it is: what the flow records is sealed, and erased with that person.
    `attributes` are what `flows.list` finds it by; a flow of a subject takes none. Raises AgentInactiveError unless the
    agent is ACTIVE, and AlreadyExistsError where `flow_id` is taken.
    """
    return open_flow(
        tx,
        agent_id,
        parent=parent,
        flow_type=flow_type,
        flow_version=flow_version,
        priority=priority,
        created_by=created_by,
        flow_id=flow_id,
        subject=subject,
        attributes=attributes,
        ns=ns,
    )


def open_flow(
    tx: Tx,
    agent_id: str,
    *,
    flow_type: str = "DEFAULT",
    created_by: tuple[str, str] | None = None,
    flow_id: str | None = None,
    subject: str | None = None,
    subject_handle: str | None = None,
    inputs: str | None = None,
    function: Callable[..., Any] | None = None,
    governed: bool = True,
    ns: str = MAIN,
    **columns: Any,
) -> Flow:
    """Do what `start` does; a child is given the handle of the person whose flow its parent is.

    `inputs` and `function` are what policies decide on. The kernel's own flows are not `governed` by policies.
    """
    has_policies = require_active(tx, agent_id, ns=ns) and governed
    if flow_id is not None:
        lock_exclusive(tx, f"flow:{validation.name('flow_id', flow_id)}")
        if tx.one(_GET, dfid=flow_id, ns=ns) is not None:
            raise AlreadyExistsError(f"there is a flow {flow_id} already", flow_id=flow_id)
    created_by_type, created_by_id = created_by or (None, None)
    flow = enter(
        tx,
        agent_id,
        flow_id=flow_id or tx.new_id(),
        flow_type=validation.name("flow_type", flow_type),
        created_by_type=created_by_type,
        created_by_id=created_by_id,
        subject=subject_handle if subject is None else encryption.label(tx, subject, ns=ns),
        ns=ns,
        **columns,
    )
    about = {"attributes": columns.get("attributes"), "inputs": inputs, "function": function}
    return ask_policies(tx, flow, subject=subject, **about) if has_policies else flow


def ask_policies(tx: Tx, flow: Flow, *, subject: str | None = None, **about: Any) -> Flow:
    """Let policies decide about a new flow; one that they ask about waits for the answer before it begins."""
    number = policy_gate.start(tx, flow, subject=subject, **about)
    if number is None:
        return flow
    transition(tx, flow.flow_id, "RUNNING", ns=flow.ns)
    return await_policy(tx, flow, number)


def await_policy(tx: Tx, flow: Flow, number: int) -> Flow:
    """Let a flow wait for the escalation that a policy asked for."""
    causation = {"causation_id": f"escalation:{number}", "reason": "a policy asks"}
    return transition(tx, flow.flow_id, "WAITING_ESCALATION", ns=flow.ns, **causation)


_STATUS = sql(
    f"SELECT status, {HAS_POLICIES} FROM agent_registry WHERE agent_id = :agent_id AND ns = :ns"  # noqa: S608 (a constant)
)


def require_active(tx: Tx, agent_id: str, *, ns: str) -> bool:
    """Raise unless the agent may open flows; return whether its namespace has policies to ask."""
    agent = tx.one(_STATUS, agent_id=agent_id, ns=ns, policy_set=set_handle(ns))
    if agent is None:
        raise NotFoundError(f"there is no agent {agent_id}: register it (agents register)", agent_id=agent_id)
    status, has_policies = agent
    if status not in OPENS_FLOWS:
        raise AgentInactiveError(
            f"agent {agent_id} is {status} and may not open flows", agent_id=agent_id, agent_status=status
        )
    return has_policies is not None


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
    subject: str | None = None,
    attributes: Mapping[str, str] | None = None,
    ns: str,
) -> Flow:
    """Write a new flow; its caller has made sure that the agent may open one."""
    if tx.limiter is not None:
        tx.limiter.require(tx, ns, "open_flows")
    attributes_text = flow_attributes.text(attributes, subject=subject) if attributes else None
    root = flow_id if parent is None else get(tx, parent, ns=ns).root_flow_id
    now = tx.now
    flow = Flow(
        flow_id=flow_id,
        root_flow_id=root,
        parent_flow_id=parent,
        agent_id=agent_id,
        flow_type=flow_type,
        flow_version=flow_version,
        status="CREATED",
        created_by_type=created_by_type,
        created_by_id=created_by_id,
        priority=priority,
        started_at=None,
        completed_at=None,
        created_at=now,
        updated_at=now,
        ns=ns,
        subject=subject,
    )
    FLOWS.add(tx, _ADD, {**FLOWS.to_columns(flow), "attributes": attributes_text})
    if attributes:
        flow_attributes.add(tx, flow_id, attributes, ns=ns)
    return flow


def attributes(tx: Tx, flow_id: str, *, ns: str = MAIN) -> dict[str, str]:
    """Return what a flow is found by."""
    get(tx, flow_id, ns=ns)
    return flow_attributes.find(tx, flow_id, ns=ns)


_GET = sql(FLOWS.select("WHERE dfid = :dfid AND ns = :ns"))


def get(tx: Tx, flow_id: str, *, ns: str = MAIN) -> Flow:
    """Return one flow."""
    flow = FLOWS.find(tx, _GET, dfid=flow_id, ns=ns)
    if flow is None:
        raise not_found(flow_id)
    return flow


def not_found(flow_id: str) -> NotFoundError:
    """Return the error of a flow that does not exist."""
    return NotFoundError(f"there is no flow {flow_id}", listed_by="flows list", flow_id=flow_id)


def lock(tx: Tx, flow_id: str, *, ns: str = MAIN) -> Flow:
    """Return one flow, locked: nobody else changes it before this transaction ends."""
    lock_exclusive(tx, f"flow:{flow_id}")
    return get(tx, flow_id, ns=ns)


# --- transitions -------------------------------------------------------------------------------------------------

_LOCKED = numbered(
    f"SELECT {{id}}, {FLOWS.listed()} FROM decision_flows WHERE dfid = :dfid AND ns = :ns",  # noqa: S608
    "flow_transitions",
)
# The status in the WHERE: a flow that moved meanwhile fails the transaction instead of losing a transition.
_MOVE = sql(
    "UPDATE decision_flows SET status = :to_status, started_at = :started_at, completed_at = :completed_at,"
    " updated_at = :now WHERE dfid = :dfid AND ns = :ns AND status = :from_status"
)
_RECORD = sql(TRANSITIONS.insert())


class _LockedFlow(NamedTuple):
    """A flow that nobody else changes before this transaction ends, and the number of its next transition."""

    flow: Flow
    next_id: int


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
    """Change a flow's status along a legal transition; with `expected_status` only from there.

    Raises IllegalTransitionError for any other, and records nothing.
    """
    validation.one_of("status", to, STATUSES)
    locked = _lock_numbered(tx, flow_id, ns)
    status = locked.flow.status
    before = status if expected_status is None else validation.one_of("expected_status", expected_status, STATUSES)
    if not is_legal(status, to) or status != before:
        raise _illegal(flow_id, before, to, current=status)
    columns = {
        "root_dfid": locked.flow.root_flow_id,
        "from_status": status,
        "to_status": to,
        "correlation_id": correlation_id,
        "causation_id": causation_id,
        "reason": reason,
        "result": None,
    }
    return _move(tx, locked, to, columns)


def end(tx: Tx, flow_id: str, to: str, *, result: str, reason: str | None = None, ns: str = MAIN) -> Flow:
    """End a flow with what its function returned, or how it failed, as `recorded` stores it."""
    locked = _lock_numbered(tx, flow_id, ns)
    status = locked.flow.status
    if not is_legal(status, to):
        raise _illegal(flow_id, status, to, current=status)
    columns = {
        "root_dfid": locked.flow.root_flow_id,
        "from_status": status,
        "to_status": to,
        "correlation_id": None,
        "causation_id": None,
        "reason": reason,
        "result": result,
    }
    return _move(tx, locked, to, columns)


_LAST = sql("SELECT to_status FROM flow_transitions WHERE dfid = :dfid AND ns = :ns ORDER BY id DESC LIMIT 1")


def record(tx: Tx, flow_id: str, before: str, word: str, *, root: str | None = None, ns: str = MAIN) -> Flow:
    """Record a transition in DIR's words, as they are; a label changes no status.

    The first may say that the flow was under way before it came here. Raises IllegalTransitionError unless `before` is
    the status of the flow.
    """
    locked = _lock_numbered(tx, flow_id, ns)
    current = locked.flow.status
    (last_word,) = tx.one(_LAST, dfid=flow_id, ns=ns) or (None,)
    # A flow without transitions is believed to be where DIR says it was.
    status = current if last_word is not None else DIR_WORDS.get(before) or current
    # Several words of DIR stand for one status: the words must match, not only the statuses.
    mismatch = last_word is not None and last_word in DIR_WORDS and last_word != before
    if before in WORDS and (mismatch or WORDS[before] != status):
        raise _illegal(flow_id, before, word, current=last_word or status)
    if not may_say(status, word):
        raise _illegal(flow_id, before, word, current=status)
    columns = {
        "root_dfid": root or locked.flow.root_flow_id,
        "from_status": before,
        "to_status": word,
        "correlation_id": None,
        "causation_id": None,
        "reason": None,
        "result": None,
    }
    return _move(tx, locked, status_after(status, word) or current, columns)


def _lock_numbered(tx: Tx, flow_id: str, ns: str) -> _LockedFlow:
    lock_exclusive(tx, f"flow:{flow_id}")
    row = tx.one(_LOCKED, dfid=flow_id, ns=ns)
    if row is None:
        raise not_found(flow_id)
    next_id, *cells = row
    return _LockedFlow(FLOWS.from_row(tuple(cells)), next_id)


def _illegal(flow_id: str, before: str, after: str, *, current: str) -> IllegalTransitionError:
    actual = "" if current == before else f", and it is {current}"
    return IllegalTransitionError(
        f"a flow does not go from {before} to {after}{actual}", flow_id=flow_id, from_status=before, to_status=after
    )


def _move(tx: Tx, locked: _LockedFlow, to: str, columns: Mapping[str, Any]) -> Flow:
    """Write a flow's new status and its transition; a label leaves the status as it is."""
    before = locked.flow
    moved = to != before.status
    started = tx.now if to == "RUNNING" and before.started_at is None else before.started_at
    completed = before.completed_at
    if moved:
        completed = tx.now if to in TERMINAL else None
    tx.execute(
        _MOVE,
        dfid=before.flow_id,
        ns=before.ns,
        from_status=before.status,
        to_status=to,
        started_at=started,
        completed_at=completed,
        now=tx.now,
        expect=1,
    )
    reason = recorded.seal_text(tx, columns["reason"], before.subject)
    content = {**columns, "reason": reason}
    row = {"id": locked.next_id, "dfid": before.flow_id, **content, "created_at": tx.now, "ns": before.ns}
    TRANSITIONS.add(tx, _RECORD, row)
    if moved and before.status == "WAITING_ESCALATION":
        escalation_rows.withdraw(tx, before.flow_id, f"the flow went on to {to}", ns=before.ns)
    if moved and completed is not None:
        keeps_locks = to in UNDOABLE and bool(to_undo(tx, before.flow_id, ns=before.ns))
        close(tx, before.flow_id, ns=before.ns, locks=not keeps_locks)
        _tell_of_end(tx, before)
    elif moved and to in WORKED_ON and before.status != "CREATED":
        # It was answered, or is to be undone: a flow that nobody works on is due now.
        wake(tx, before.flow_id, ns=before.ns)
    return replace(before, status=to, started_at=started, completed_at=completed, updated_at=tx.now)


def fail(tx: Tx, flow_id: str, *, reason: str, ns: str = MAIN) -> Flow:
    """Fail a flow; one that was never started is started first, one with steps to undo goes on to COMPENSATING."""
    if get(tx, flow_id, ns=ns).status == "CREATED":
        transition(tx, flow_id, "RUNNING", reason=reason, ns=ns)
    flow = transition(tx, flow_id, "FAILED", reason=reason, ns=ns)
    return transition(tx, flow_id, "COMPENSATING", reason=reason, ns=ns) if to_undo(tx, flow_id, ns=ns) else flow


_OPEN_CHILDREN = sql(
    "SELECT dfid FROM decision_flows WHERE dfid_parent = :dfid AND ns = :ns"
    " AND status IN ('CREATED', 'RUNNING', 'WAITING_ESCALATION') ORDER BY dfid"
)


def cancel(tx: Tx, flow_id: str, *, reason: str, ns: str = MAIN) -> Flow:
    """Cancel a flow and those that it started; one with steps to undo goes on to COMPENSATING."""
    # Children first: a child that ends locks itself, then the lease of its parent.
    for (child,) in tx.all(_OPEN_CHILDREN, dfid=flow_id, ns=ns):
        cancel(tx, child, reason=f"its parent was cancelled: {reason}", ns=ns)
    flow = transition(tx, flow_id, "CANCELLED", reason=reason, ns=ns)
    return transition(tx, flow_id, "COMPENSATING", reason=reason, ns=ns) if to_undo(tx, flow_id, ns=ns) else flow


# A dirty flow keeps its locks: what it did half way is still to be undone.
_RELEASE = sql(
    "DELETE FROM resource_locks WHERE dfid = :dfid AND ns = :ns"
    " AND NOT EXISTS (SELECT 1 FROM saga_dirty_state s WHERE s.dfid = :dfid AND s.ns = :ns) RETURNING resource_id"
)
_CLOSE_RETRY = sql("UPDATE intent_retry SET next_retry_at = NULL, backoff_until = NULL WHERE dfid = :dfid AND ns = :ns")
# The token grows, so that a heartbeat of the worker that had the flow fails.
_END_LEASE = sql(
    "UPDATE flow_leases SET expires_at = :never, worker = '', token = token + 1 WHERE dfid = :dfid AND ns = :ns"
    " RETURNING queue"
)


def close(tx: Tx, flow_id: str, *, ns: str, locks: bool = True) -> None:
    """End what an ended flow still has: retries, its lease, and its locks unless something is to be undone."""
    tx.execute(_CLOSE_RETRY, dfid=flow_id, ns=ns)
    tell_of_room(tx, tx.one(_END_LEASE, dfid=flow_id, ns=ns, never=END), ns=ns)
    for (resource,) in tx.all(_RELEASE, dfid=flow_id, ns=ns) if locks else ():
        tx.notify(f"lock:{ns}:{resource}")


def _tell_of_end(tx: Tx, flow: Flow) -> None:
    """Wake those who wait for a flow's result: callers, and the flow that started it."""
    tx.notify(f"flow:{flow.flow_id}")
    if flow.parent_flow_id is not None:
        wake(tx, flow.parent_flow_id, ns=flow.ns)


# The row is written, and so locked, also while somebody works on the flow. A worker that is about to suspend it, and
# has not seen what this transaction writes, then comes after this commit and sees it: no wake-up is lost. A queued flow
# that was never leased (token 0) waits for nothing but its time, and finds what was brought when it runs.
_WAKE = sql(
    "UPDATE flow_leases SET expires_at = CASE WHEN worker = '' AND expires_at > :now AND token > 0 THEN :now"
    " ELSE expires_at END WHERE dfid = :dfid AND ns = :ns"
)


def wake(tx: Tx, flow_id: str, *, ns: str) -> None:
    """Make a flow due that waits for what this transaction brings; in place or suspended, it looks again."""
    tx.execute(_WAKE, dfid=flow_id, ns=ns, now=tx.now)
    tx.notify(f"flow:{flow_id}")
    tx.notify(tasks_topic(ns))


def tell_of_room(tx: Tx, task: Row | None, *, ns: str) -> None:
    """Tell workers that a flow gave its place in a queue back, given the queue's name as a row; '' is no queue."""
    if task is not None and task[0]:
        tx.notify(tasks_topic(ns))


def tasks_topic(ns: str) -> str:
    """The topic that workers of a namespace wait for: a flow may have become due."""
    return f"tasks:{ns}"
