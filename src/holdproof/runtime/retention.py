"""Retention: which flows, audit events and feedback have had their time.

Rules:
- What goes is past every limit that is given: older than `before`, and beyond the newest `keep` of its flow type.
- Flows go as whole trees, with everything that hangs on them, by the age and the type of their root; and only if every
  flow of the tree has ended, none is dirty, and nobody is still asked about one.
- A tree is held while it goes, so that nothing written meanwhile goes with it unseen.
- Nothing here is logged: who removes records names their handles (evidence/prunings.py) in the same transaction.
"""

from collections import defaultdict
from typing import Any, Final, NamedTuple

from holdproof.db import Query, Tx, sql
from holdproof.errors import InvalidInputError
from holdproof.model.retention import Batch, Cut
from holdproof.model.times import later
from holdproof.runtime import logged_rows
from holdproof.runtime.logged_rows import MAIN

_DAY_S: Final = 86_400.0
_NEVER: Final = "9999-12-31T23:59:59.999999Z"
_LAST: Final = 2**62
_TREES: Final = 50
_ROWS: Final = 1_000


class _Listed(NamedTuple):
    """How rows of a table that is only added to are found and removed, by number."""

    table: str
    newest: Query
    counted: Query
    take: Query


def _listed(table: str) -> _Listed:
    # Names come from code, never from a user.
    joined = f"FROM {table} t JOIN decision_flows f ON f.dfid = t.dfid WHERE t.ns = :ns"
    due = (
        f"{joined} AND t.created_at < :before AND t.id <= :newest"
        " AND (CAST(:flow_type AS TEXT) IS NULL OR f.flow_type = :flow_type)"
    )
    return _Listed(
        table,
        sql(f"SELECT t.id {joined} AND f.flow_type = :flow_type ORDER BY t.id DESC LIMIT 1 OFFSET :keep"),
        sql(f"SELECT count(*) {due}"),
        sql(
            f"DELETE FROM {table} WHERE id IN (SELECT t.id {due} ORDER BY t.id LIMIT :limit) RETURNING leaf_id"  # noqa: S608
        ),
    )


_LISTS: Final = {"audit": _listed("decision_audit_events"), "feedback": _listed("decision_feedback_trajectory")}
KINDS: Final = frozenset({"flows", *_LISTS})

# --- drawing the line --------------------------------------------------------------------------------------------

_TYPES = sql("SELECT DISTINCT flow_type FROM decision_flows WHERE ns = :ns ORDER BY flow_type")
_NEWEST_FLOW = sql(
    "SELECT created_at, dfid FROM decision_flows WHERE dfid_parent IS NULL AND ns = :ns AND flow_type = :flow_type"
    " AND status IN ('COMPLETED', 'FAILED', 'CANCELLED', 'COMPENSATED')"
    " ORDER BY created_at DESC, dfid DESC LIMIT 1 OFFSET :keep"
)


def cuts(
    tx: Tx,
    what: str,
    *,
    older_than_days: float | None,
    keep: int | None,
    flow_type: str | None = None,
    ns: str = MAIN,
) -> tuple[Cut, ...]:
    """Where the line is now, for each type of flow that has anything beyond it."""
    logged_rows.one_of("what", what, KINDS)
    if older_than_days is None and keep is None:
        raise InvalidInputError("say how old, or how many to keep")
    days = (
        None
        if older_than_days is None
        else logged_rows.number("older_than_days", older_than_days, least=0, most=36_500)
    )
    before = _NEVER if days is None else later(tx.now, -days * _DAY_S)
    if keep is None:
        return (Cut(flow_type, before, None),)
    if isinstance(keep, bool) or not 0 <= keep < 2**31:
        raise InvalidInputError("keep is a whole number, zero or more", keep=keep)
    types = [flow_type] if flow_type is not None else [name for (name,) in tx.all(_TYPES, ns=ns)]
    found = ((name, tx.one(_newest(what), ns=ns, flow_type=name, keep=keep)) for name in types)
    return tuple(Cut(name, before, row if what == "flows" else row[0]) for name, row in found if row is not None)


def _newest(what: str) -> Query:
    return _NEWEST_FLOW if what == "flows" else _LISTS[what].newest


# --- removing ----------------------------------------------------------------------------------------------------


def batch(tx: Tx, what: str, cut: Cut, *, after: str = "", remove: bool = True, ns: str = MAIN) -> Batch:
    """The next few that are beyond the line, removed unless they are only to be counted."""
    if what == "flows":
        return _trees(tx, cut, after=after, remove=remove, ns=ns)
    known = _LISTS[what]
    given = {"before": cut.before, "newest": _LAST if cut.newest is None else cut.newest, "flow_type": cut.flow_type}
    if not remove:
        counted = tx.one(known.counted, ns=ns, **given)
        assert counted is not None, "a count always comes"
        return Batch(counted[0], {known.table: ("",) * counted[0]}, None)
    gone = tuple(handle for (handle,) in tx.all(known.take, ns=ns, limit=_ROWS, **given))
    return Batch(len(gone), {known.table: gone}, "" if len(gone) == _ROWS else None)


_DUE = (
    "SELECT r.dfid FROM decision_flows r WHERE r.dfid_parent IS NULL AND r.ns = :ns AND r.updated_at < :before"
    " AND (r.created_at, r.dfid) <= (:at, :newest)"
    " AND (CAST(:flow_type AS TEXT) IS NULL OR r.flow_type = :flow_type)"
    " AND NOT EXISTS (SELECT 1 FROM decision_flows f WHERE f.root_dfid = r.dfid AND (f.updated_at >= :before"
    " OR f.status NOT IN ('COMPLETED', 'FAILED', 'CANCELLED', 'COMPENSATED')"
    " OR EXISTS (SELECT 1 FROM saga_dirty_state s WHERE s.dfid = f.dfid)))"
    " AND NOT EXISTS (SELECT 1 FROM escalation_requests e WHERE e.root_dfid = r.dfid AND e.status = 'PENDING')"
)
_SOME_DUE = sql(f"{_DUE} AND r.dfid > :after ORDER BY r.dfid LIMIT :limit")
_STILL_DUE = sql(f"{_DUE} AND r.dfid = :root")


def _trees(tx: Tx, cut: Cut, *, after: str, remove: bool, ns: str) -> Batch:
    at, newest = cut.newest if isinstance(cut.newest, tuple) else (_NEVER, "")
    given = {"before": cut.before, "at": at, "newest": newest, "flow_type": cut.flow_type, "ns": ns}
    roots = [root for (root,) in tx.all(_SOME_DUE, after=after, limit=_TREES, **given)]
    gone: dict[str, tuple[str, ...]] = {}
    count = 0
    for root in roots:
        handles = _take(tx, root, given) if remove else _handles(tx, root)
        count += bool(handles)
        for table, found in handles.items():
            gone[table] = gone.get(table, ()) + tuple(found)
    return Batch(count, gone, roots[-1] if len(roots) == _TREES else None)


_HOLD = sql(
    "SELECT dfid FROM decision_flows WHERE root_dfid = :root ORDER BY dfid",
    postgres="SELECT dfid FROM decision_flows WHERE root_dfid = :root ORDER BY dfid FOR UPDATE",
)
_REMOVE = sql("DELETE FROM decision_flows WHERE root_dfid = :root")


def _take(tx: Tx, root: str, given: dict[str, Any]) -> dict[str, list[str]]:
    """Remove a tree that is still due once nobody else can add to it; the handles of all that went."""
    tx.all(_HOLD, root=root)
    if tx.one(_STILL_DUE, root=root, **given) is None:
        return {}
    handles = _handles(tx, root)
    tx.execute(_REMOVE, root=root, expect=len(handles["decision_flows"]))
    return handles


_HANDLES = sql(
    "SELECT 'decision_flows' AS name, leaf_id FROM decision_flows WHERE root_dfid = :root"
    " UNION ALL SELECT 'flow_transitions', leaf_id FROM flow_transitions WHERE root_dfid = :root"
    " UNION ALL SELECT 'escalation_requests', leaf_id FROM escalation_requests WHERE root_dfid = :root"
    " UNION ALL SELECT 'decision_audit_events', leaf_id FROM decision_audit_events WHERE root_dfid = :root"
    " UNION ALL SELECT 'flow_context', t.leaf_id FROM flow_context t"
    " JOIN decision_flows f ON f.dfid = t.dfid WHERE f.root_dfid = :root"
    " UNION ALL SELECT 'flow_steps', t.leaf_id FROM flow_steps t"
    " JOIN decision_flows f ON f.dfid = t.dfid WHERE f.root_dfid = :root"
    " UNION ALL SELECT 'decision_ledger_entries', t.leaf_id FROM decision_ledger_entries t"
    " JOIN decision_flows f ON f.dfid = t.dfid WHERE f.root_dfid = :root"
    " UNION ALL SELECT 'decision_feedback_trajectory', t.leaf_id FROM decision_feedback_trajectory t"
    " JOIN decision_flows f ON f.dfid = t.dfid WHERE f.root_dfid = :root"
)


def _handles(tx: Tx, root: str) -> dict[str, list[str]]:
    """Every record under the log that hangs on a tree, by table."""
    found: dict[str, list[str]] = defaultdict(list)
    for table, handle in tx.all(_HANDLES, root=root):
        found[table].append(handle)
    return found
