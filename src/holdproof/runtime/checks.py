"""What must hold between the rows of the runtime, beyond their own leaves.

The log covers what never changes of a flow, and every transition; the rest of a flow follows from its transitions. A
status, or a time of a flow, that does not follow was changed outside the kernel. Each transition starts where the one
before ended, except imported ones, which are stored as they were, and the first of a flow that DIR had under way.
"""

import json
from collections.abc import Iterator
from itertools import groupby
from operator import attrgetter
from typing import Final, NamedTuple

from holdproof.db import Tx, sql
from holdproof.model.flows import DIR_WORDS, WORDS, FlowState, replay, status_after

IMPORTED: Final = "imported"
"""The reason of a transition that was imported."""

_FLOWS = sql(
    "SELECT dfid, ns, attributes, created_at, status, started_at, completed_at, updated_at FROM decision_flows"
    " WHERE (dfid, ns) > (:after, :after_ns) ORDER BY dfid, ns LIMIT :limit"
)
_TRANSITIONS = sql(
    "SELECT dfid, ns, id, from_status, to_status, created_at, reason FROM flow_transitions"
    " WHERE (dfid, ns) > (:after, :after_ns) AND (dfid, ns) <= (:last, :last_ns) ORDER BY dfid, ns, id"
)


_TASKS = sql(
    "SELECT l.dfid, l.queue, l.partition_key, l.priority, l.token, l.expires_at, coalesce(c.queue, ''),"
    " c.partition_key, CASE WHEN c.queue IS NULL THEN 0 ELSE f.priority END, c.not_before FROM flow_leases l"
    " JOIN decision_flows f ON f.dfid = l.dfid AND f.ns = l.ns"
    " LEFT JOIN flow_calls c ON c.dfid = l.dfid AND c.ns = l.ns"
    " WHERE (l.dfid, l.ns) > (:after, :after_ns) AND (l.dfid, l.ns) <= (:last, :last_ns) ORDER BY l.dfid, l.ns"
)


class TransitionRow(NamedTuple):
    """What of a transition its flow follows from."""

    flow_id: str
    ns: str
    id: int
    from_status: str | None
    to_status: str
    created_at: str
    reason: str | None


FlowKey = tuple[str, str]
"""A flow by its id and its namespace."""


def flows(tx: Tx, *, after: FlowKey = ("", ""), limit: int = 500) -> tuple[list[str], FlowKey | None]:
    """Check one page of flows; return the findings, and the flow after which the next page starts (None at the end)."""
    after_id, after_ns = after
    page = tx.all(_FLOWS, after=after_id, after_ns=after_ns, limit=limit)
    if not page:
        return [], None
    last, last_ns, *_ = page[-1]
    # One query for the whole page; groupby needs them in the order of flows, which the query gives.
    rows = tx.all(_TRANSITIONS, after=after_id, after_ns=after_ns, last=last, last_ns=last_ns)
    groups = groupby((TransitionRow(*row) for row in rows), attrgetter("flow_id", "ns"))
    transitions = {key: [*group] for key, group in groups}
    findings: list[str] = []
    stored = _stored_attributes(tx, after, (last, last_ns))
    for flow_id, ns, attributes, created_at, *state in page:
        if stored.get((flow_id, ns), {}) != _logged_attributes(attributes):
            findings.append(f"flow {flow_id} is found by other attributes than its own: flow_attributes was edited")
        of_flow = transitions.get((flow_id, ns), [])
        current = FlowState(*state)
        if current != expected_state(created_at, of_flow):
            findings.append(f"flow {flow_id} is {current.status}, which does not follow from its transitions")
        findings += _gaps(of_flow)
    tasks = tx.all(_TASKS, after=after_id, after_ns=after_ns, last=last, last_ns=last_ns)
    findings += (finding for row in tasks for finding in _misplaced(TaskRow(*row)))
    return findings, (last, last_ns) if len(page) == limit else None


def flow(tx: Tx, flow_id: str) -> list[str]:
    """Check the flow of that id, in every namespace that has one; return the findings."""
    findings: list[str] = []
    after: FlowKey | None = (flow_id, "")
    while after is not None:
        of_next, after = flows(tx, after=after, limit=1)
        if after is None or after[0] != flow_id:
            break
        findings += of_next
    return findings


_ATTRIBUTES = sql(
    "SELECT dfid, ns, key, value FROM flow_attributes"
    " WHERE (dfid, ns) > (:after, :after_ns) AND (dfid, ns) <= (:last, :last_ns)"
)


def _stored_attributes(tx: Tx, after: FlowKey, last: FlowKey) -> dict[FlowKey, dict[str, str]]:
    """Return what flows are found by, of the flows behind one and up to another."""
    after_id, after_ns = after
    last_id, last_ns = last
    stored: dict[FlowKey, dict[str, str]] = {}
    rows = tx.all(_ATTRIBUTES, after=after_id, after_ns=after_ns, last=last_id, last_ns=last_ns)
    for flow_id, ns, key, value in rows:
        stored.setdefault((flow_id, ns), {})[key] = value
    return stored


def _logged_attributes(text: object) -> object:
    try:
        return json.loads(text) if isinstance(text, str) else text or {}
    except ValueError:  # the row does not match its entry either, which is found there
        return None


class TaskRow(NamedTuple):
    """A task, and what its flow and its call say of it."""

    flow_id: str
    queue: str
    partition_key: str | None
    priority: int
    token: int
    due: str
    call_queue: str
    call_partition: str | None
    flow_priority: int
    not_before: str | None


def _misplaced(task: TaskRow) -> Iterator[str]:
    """Tasks that are not where the call of their flow put them; one that was never leased is due when the call says."""
    place = (task.queue, task.partition_key, task.priority)
    if place != (task.call_queue, task.call_partition, task.flow_priority):
        yield f"the task of flow {task.flow_id} is in queue {task.queue!r}, which does not follow from its call"
    if task.token == 0 and task.not_before is not None and task.due != task.not_before:
        yield f"the task of flow {task.flow_id} is due at {task.due}, which does not follow from its call"


def expected_state(created_at: str, transitions: list[TransitionRow]) -> FlowState:
    """Return the state of a flow that follows from its transitions."""
    return replay(created_at, ((each.from_status, each.to_status, each.created_at) for each in transitions))


def _gaps(transitions: list[TransitionRow]) -> Iterator[str]:
    """Transitions that do not start where the one before ended."""
    status = "CREATED"
    for place, each in enumerate(transitions):
        # The first transition that DIR records may start in the middle: DIR opened the flow elsewhere.
        came_from_dir = place == 0 and each.from_status in DIR_WORDS
        before = WORDS.get(each.from_status or "", status)
        if each.reason != IMPORTED and not came_from_dir and before != status:
            yield f"transition {each.id} of flow {each.flow_id} does not follow the one before"
        status = status_after(before, each.to_status) or status
