"""Reading flows: their trees, their pages, their history."""

import builtins
from typing import Final

from holdproof.db import Tx, sql
from holdproof.errors import InvalidInputError, NotFoundError
from holdproof.model.flows import STATUSES, Flow, FlowPage, FlowTree, Pace, Transition
from holdproof.model.times import later
from holdproof.runtime import logged_rows
from holdproof.runtime.logged_rows import BEGINNING, MAIN

_END: Final = "9999-12-31T23:59:59.999999Z"
_LONGEST_TEXT: Final = 500
_MOST_MINUTES: Final = 1440

_TREE = sql(
    "SELECT dfid, root_dfid, dfid_parent, agent_id, flow_type, flow_version, status, created_by_type, created_by_id,"
    " priority, started_at, completed_at, created_at, updated_at, ns FROM decision_flows"
    " WHERE root_dfid = :root AND ns = :ns ORDER BY created_at, dfid"
)


def tree(tx: Tx, root: str, *, ns: str = MAIN) -> FlowTree:
    """A root flow and all that it delegated, in the order they were opened."""
    found = [Flow(*row) for row in tx.all(_TREE, root=root, ns=ns)]
    if all(flow.flow_id != root for flow in found):
        raise NotFoundError(f"there is no root flow {root}", flow_id=root)
    return branch(found, root)


def branch(found: builtins.list[Flow], top: str) -> FlowTree:
    """The tree below one of these flows."""
    children: dict[str | None, builtins.list[Flow]] = {}
    for flow in found:
        children.setdefault(flow.parent_flow_id, []).append(flow)
    order = [flow for flow in found if flow.flow_id == top]
    for flow in order:  # grows while it is walked: parents come before their children
        order += children.get(flow.flow_id, ())
    made: dict[str, FlowTree] = {}
    for flow in reversed(order):
        made[flow.flow_id] = FlowTree(flow, tuple(made[child.flow_id] for child in children.get(flow.flow_id, ())))
    return made[top]


_LIST = sql(
    "SELECT dfid, root_dfid, dfid_parent, agent_id, flow_type, flow_version, status, created_by_type, created_by_id,"
    " priority, started_at, completed_at, created_at, updated_at, ns FROM decision_flows"
    " WHERE dfid > :after AND ns = :ns AND (CAST(:status AS TEXT) IS NULL OR status = :status)"
    " AND (CAST(:agent_id AS TEXT) IS NULL OR agent_id = :agent_id)"
    " AND (CAST(:flow_type AS TEXT) IS NULL OR flow_type = :flow_type)"
    " AND created_at >= :since ORDER BY dfid LIMIT :limit"
)


def list(
    tx: Tx,
    *,
    status: str | None = None,
    agent_id: str | None = None,
    flow_type: str | None = None,
    since: str = BEGINNING,
    ns: str = MAIN,
    after: str = "",
    limit: int = 100,
) -> FlowPage:
    """Flows by id, which is by age, a page at a time: pass `next` of a page as `after` for the one that follows."""
    if status is not None:
        logged_rows.one_of("status", status, STATUSES)
    filters = {"status": status, "agent_id": agent_id, "flow_type": flow_type}
    moment = logged_rows.moment("since", since)
    found = tx.all(_LIST, **filters, since=moment, ns=ns, after=after, limit=logged_rows.limited(limit))
    flows, following = logged_rows.paged(found, limit, lambda row: Flow(*row), lambda flow: flow.flow_id)
    return FlowPage(flows, following)


_SEARCH: Final = (
    "SELECT dfid, root_dfid, dfid_parent, agent_id, flow_type, flow_version, status, created_by_type, created_by_id,"
    " priority, started_at, completed_at, created_at, updated_at, ns FROM decision_flows"
    " WHERE (created_at, dfid) < (:at, :dfid) AND ns = :ns AND (CAST(:status AS TEXT) IS NULL OR status = :status)"
    " AND (CAST(:agent_id AS TEXT) IS NULL OR agent_id = :agent_id)"
    " AND (CAST(:flow_type AS TEXT) IS NULL OR flow_type = :flow_type)"
    " AND (CAST(:text AS TEXT) = '' OR instr(dfid || ' ' || agent_id || ' ' || flow_type, :text) > 0)"
    " ORDER BY created_at DESC, dfid DESC LIMIT :limit"
)
_SEARCHED = sql(_SEARCH, postgres=_SEARCH.replace("instr(", "strpos("))


def search(
    tx: Tx,
    text: str = "",
    *,
    status: str | None = None,
    agent_id: str | None = None,
    flow_type: str | None = None,
    ns: str = MAIN,
    before: str = "",
    limit: int = 100,
) -> FlowPage:
    """Flows whose id, agent or type has a text in it, newest first: pass `next` of a page as `before`."""
    if status is not None:
        logged_rows.one_of("status", status, STATUSES)
    if "\0" in text or len(text) > _LONGEST_TEXT:
        raise InvalidInputError(f"what is searched for is a text of at most {_LONGEST_TEXT} characters")
    at, _, flow_id = before.partition(" ")
    place = {"at": logged_rows.moment("before", at) if before else _END, "dfid": flow_id}
    filters = {"text": text, "status": status, "agent_id": agent_id, "flow_type": flow_type}
    found = tx.all(_SEARCHED, **filters, **place, ns=ns, limit=logged_rows.limited(limit))
    return FlowPage(
        *logged_rows.paged(found, limit, lambda row: Flow(*row), lambda flow: f"{flow.created_at} {flow.flow_id}")
    )


_HISTORY = sql(
    "SELECT id, dfid, root_dfid, from_status, to_status, correlation_id, causation_id, created_at, reason, ns"
    " FROM flow_transitions WHERE dfid = :dfid AND ns = :ns ORDER BY id"
)


def transitions(tx: Tx, flow_id: str, *, ns: str = MAIN) -> tuple[Transition, ...]:
    """Every change of a flow's status, oldest first."""
    return tuple(Transition(*row) for row in tx.all(_HISTORY, dfid=flow_id, ns=ns))


_MINUTE: Final = "substr(created_at, 1, 16)"
_PACE: Final = (
    f"SELECT {_MINUTE}, count(*), count(CASE WHEN to_status IN ('COMPLETED', 'CLOSED') THEN 1 END),"  # noqa: S608
    " count(CASE WHEN to_status IN ('FAILED', 'ABORTED') THEN 1 END) FROM flow_transitions"
    f" WHERE created_at >= :since AND ns = :ns GROUP BY {_MINUTE} ORDER BY 1"
)
_PACED = sql(
    _PACE, postgres=_PACE.replace(_MINUTE, "to_char(created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24\":\"MI')")
)


def pace(tx: Tx, *, minutes: int = 60, ns: str = MAIN) -> tuple[Pace, ...]:
    """How much flows moved in each of the last minutes, oldest first, quiet minutes too."""
    if not 1 <= minutes <= _MOST_MINUTES:
        raise InvalidInputError(f"a pace is of 1 to {_MOST_MINUTES} minutes", minutes=minutes)
    moments = [later(tx.now, -60.0 * back)[:16] for back in reversed(range(minutes))]
    found = {row[0]: row for row in tx.all(_PACED, since=f"{moments[0]}:00.000000Z", ns=ns)}
    return tuple(Pace(*found.get(minute, (minute, 0, 0, 0))) for minute in moments)
