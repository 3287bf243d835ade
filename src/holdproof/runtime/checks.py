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
    return findings, (last, last_ns) if len(page) == limit else None


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
