"""Reading flows: their trees, their pages, their transitions."""

import builtins
from dataclasses import replace
from typing import Final

from holdproof import validation
from holdproof.db import Tx, sql, sql_by_key
from holdproof.errors import InvalidInputError, NotFoundError
from holdproof.model.flows import Flow, FlowTree, Pace, Transition
from holdproof.model.namespaces import MAIN
from holdproof.model.times import BEGINNING, later
from holdproof.runtime import recorded
from holdproof.runtime.flows import FLOWS, TRANSITIONS

_MOST_MINUTES: Final = 1440

_TREE = sql_by_key(FLOWS.select("WHERE root_dfid = :root AND ns = :ns ORDER BY created_at, dfid"))


def tree(tx: Tx, flow_id: str, *, ns: str = MAIN) -> FlowTree:
    """Return a root flow and its sub-flows, in the order they were opened; NotFoundError for a flow that is no root."""
    flows = [FLOWS.from_row(row) for row in tx.all(_TREE, root=flow_id, ns=ns)]
    if all(flow.flow_id != flow_id for flow in flows):
        raise NotFoundError(f"there is no root flow {flow_id}", listed_by="flows list", flow_id=flow_id)
    return branch(flows, flow_id)


def branch(flows: builtins.list[Flow], top: str) -> FlowTree:
    """Return the tree below one of these flows."""
    children: dict[str | None, builtins.list[Flow]] = {}
    for flow in flows:
        children.setdefault(flow.parent_flow_id, []).append(flow)
    order = [flow for flow in flows if flow.flow_id == top]
    for flow in order:  # the list grows while it is walked: parents come before their children
        order += children.get(flow.flow_id, ())
    # Built from the leaves up, since a tree is frozen; without recursion, since it may be deep.
    trees: dict[str, FlowTree] = {}
    for flow in reversed(order):
        below = tuple(trees[child.flow_id] for child in children.get(flow.flow_id, ()))
        trees[flow.flow_id] = FlowTree(flow, below)
    return trees[top]


_SCAN = sql_by_key(FLOWS.select("WHERE dfid > :after AND ns = :ns AND created_at >= :since ORDER BY dfid LIMIT :limit"))


def scan(tx: Tx, *, since: str = BEGINNING, after: str = "", limit: int = 100, ns: str = MAIN) -> builtins.list[Flow]:
    """Return the next flows by id, which is oldest first, for exports; `after` is the id of the last one read."""
    moment = validation.moment("since", since)
    rows = tx.all(_SCAN, since=moment, ns=ns, after=after, limit=validation.limited(limit))
    return [FLOWS.from_row(row) for row in rows]


_BEGINNING_WITH = sql_by_key(
    FLOWS.select("WHERE dfid >= :prefix AND dfid < :after AND ns = :ns ORDER BY dfid LIMIT :limit")
)


def beginning_with(tx: Tx, prefix: str, *, limit: int = 10, ns: str = MAIN) -> builtins.list[Flow]:
    """Return the flows whose id begins with some letters, by id."""
    # Ids are ASCII letters, digits and dashes: all that begin so sort before the prefix with a tilde.
    after = f"{validation.words('prefix', prefix, least=1, most=200)}~"
    rows = tx.all(_BEGINNING_WITH, prefix=prefix, after=after, ns=ns, limit=validation.limited(limit))
    return [FLOWS.from_row(row) for row in rows]


_TRANSITIONS = sql(TRANSITIONS.select("WHERE dfid = :dfid AND ns = :ns ORDER BY id"))


def transitions(tx: Tx, flow_id: str, *, ns: str = MAIN) -> tuple[Transition, ...]:
    """Return every change of a flow's status, oldest first."""
    moves = TRANSITIONS.all(tx, _TRANSITIONS, dfid=flow_id, ns=ns)
    return tuple(replace(each, reason=recorded.open_text(tx, each.reason)) for each in moves)


_MINUTE: Final = "substr(created_at, 1, 16)"
_PACE: Final = (
    f"SELECT {_MINUTE}, count(*), count(CASE WHEN to_status IN ('COMPLETED', 'CLOSED') THEN 1 END),"  # noqa: S608
    " count(CASE WHEN to_status IN ('FAILED', 'ABORTED') THEN 1 END) FROM flow_transitions"
    f" WHERE created_at >= :since AND ns = :ns GROUP BY {_MINUTE} ORDER BY 1"
)
# On PostgreSQL the column is a timestamp: it is brought to the text that SQLite stores.
_PACED = sql(
    _PACE, postgres=_PACE.replace(_MINUTE, "to_char(created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24\":\"MI')")
)


def pace(tx: Tx, *, minutes: int = 60, ns: str = MAIN) -> tuple[Pace, ...]:
    """Count the transitions in each of the last minutes, oldest first, minutes without any included."""
    if not 1 <= minutes <= _MOST_MINUTES:
        raise InvalidInputError(f"minutes is a number from 1 to {_MOST_MINUTES}", field="minutes", minutes=minutes)
    moments = [later(tx.now, -60.0 * back)[:16] for back in reversed(range(minutes))]
    counts = {
        minute: Pace(minute, *numbers) for minute, *numbers in tx.all(_PACED, since=f"{moments[0]}:00.000000Z", ns=ns)
    }
    return tuple(counts.get(minute) or Pace(minute, 0, 0, 0) for minute in moments)
