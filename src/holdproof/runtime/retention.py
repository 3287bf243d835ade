"""Retention: which flows, audit events and feedback are past their retention, and their removal.

Rules:
- What is removed is past every limit: older than `before`, and beyond the newest `keep` of its flow type.
- Flows are removed as whole trees, with everything that belongs to them, by the age and the type of their root; and
  only if every flow of the tree has ended, none is dirty, none has a pending escalation, and none has forks, which
  share its record: they are removed first.
- What a legal hold names stays, and so does the whole tree of a flow that is held (evidence/retention_rules.py).
- A tree is locked while it is removed, so that nothing written meanwhile is removed unseen.
- Nothing here is logged: the caller logs the handles of what it removes (evidence/prunings.py) in the same transaction.
"""

from collections import defaultdict
from typing import Any, Final, NamedTuple

from holdproof import validation
from holdproof.db import Query, Tx, sql
from holdproof.errors import InvalidInputError, RetentionHeldError
from holdproof.evidence import retention_rules
from holdproof.evidence.retention_rules import InForce
from holdproof.model.namespaces import MAIN
from holdproof.model.retention import Batch, Cut
from holdproof.model.times import END, later

_DAY_S: Final = 86_400.0
_TREES: Final = 50
_ROWS: Final = 1_000
_HELD: Final = retention_rules.HELD


class _AppendOnly(NamedTuple):
    """The queries of an append-only table, whose rows are removed by number."""

    table: str
    newest: Query
    count_due: Query
    remove: Query


def _append_only(table: str) -> _AppendOnly:
    # Names come from code, never from a user.
    joined = f"FROM {table} t JOIN decision_flows f ON f.dfid = t.dfid AND f.ns = t.ns WHERE t.ns = :ns"
    due = (
        f"{joined} AND t.created_at < :before AND t.id <= :newest AND NOT{_HELD.format(flow='f')}"
        " AND (CAST(:flow_type AS TEXT) IS NULL OR f.flow_type = :flow_type)"
    )
    return _AppendOnly(
        table,
        sql(f"SELECT t.id {joined} AND f.flow_type = :flow_type ORDER BY t.id DESC LIMIT 1 OFFSET :keep"),
        sql(f"SELECT count(*) {due}"),
        sql(
            f"DELETE FROM {table} WHERE id IN (SELECT t.id {due} ORDER BY t.id LIMIT :limit) RETURNING leaf_id",  # noqa: S608
            # An array is looked up in the index, however many rows the server expects of the LIMIT.
            postgres=f"DELETE FROM {table} WHERE id = ANY (ARRAY(SELECT t.id {due} ORDER BY t.id LIMIT :limit))"  # noqa: S608
            " RETURNING leaf_id",
        ),
    )


_APPEND_ONLY: Final = {
    "audit": _append_only("decision_audit_events"),
    "feedback": _append_only("decision_feedback_trajectory"),
}
KINDS: Final = frozenset({"flows", *_APPEND_ONLY})

# --- which are past the limits ------------------------------------------------------------------------------------

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
    """Return the limits now, for each type of flow that has anything beyond them."""
    validation.one_of("what", what, KINDS)
    if older_than_days is None and keep is None:
        raise InvalidInputError("give older_than_days, keep, or both", field="keep")
    before = END
    if older_than_days is not None:
        days = validation.number("older_than_days", older_than_days, least=0, most=36_500)
        before = later(tx.now, -days * _DAY_S)
    if keep is None:
        return (Cut(flow_type, before, None),)
    validation.count("keep", keep)
    types = [flow_type] if flow_type is not None else [name for (name,) in tx.all(_TYPES, ns=ns)]
    limits = ((name, _newest(tx, what, name, keep, ns)) for name in types)
    return tuple(Cut(name, before, newest) for name, newest in limits if newest is not None)


def _newest(tx: Tx, what: str, flow_type: str, keep: int, ns: str) -> tuple[str, str] | int | None:
    """The first beyond the `keep` newest: age and id of a flow, the number of another row; None if there is none."""
    query = _NEWEST_FLOW if what == "flows" else _APPEND_ONLY[what].newest
    row = tx.one(query, ns=ns, flow_type=flow_type, keep=keep)
    if row is None:
        return None
    if what == "flows":
        created_at, flow_id = row
        return created_at, flow_id
    (number,) = row
    return int(number)


# --- removing ----------------------------------------------------------------------------------------------------


def batch(tx: Tx, what: str, cut: Cut, *, after: str = "", remove: bool = True, ns: str = MAIN) -> Batch:
    """Remove the next few that are beyond the limits; with `remove=False` only count them."""
    if what == "flows":
        return _trees(tx, cut, after=after, remove=remove, ns=ns)
    table = _APPEND_ONLY[what]
    limits = {
        "before": cut.before,
        "newest": validation.LAST if cut.newest is None else cut.newest,
        "flow_type": cut.flow_type,
    }
    if not remove:
        row = tx.one(table.count_due, ns=ns, **limits)
        assert row is not None, "an aggregate has one row"
        (count,) = row
        return Batch(count, {table.table: ("",) * count}, None)
    handles = tuple(handle for (handle,) in tx.all(table.remove, ns=ns, limit=_ROWS, **limits))
    return Batch(len(handles), {table.table: handles}, "" if len(handles) == _ROWS else None)


_DUE = (
    "SELECT r.dfid FROM decision_flows r WHERE r.dfid_parent IS NULL AND r.ns = :ns AND r.updated_at < :before"
    " AND (r.created_at, r.dfid) <= (:at, :newest)"
    " AND (CAST(:flow_type AS TEXT) IS NULL OR r.flow_type = :flow_type)"
    " AND NOT EXISTS (SELECT 1 FROM decision_flows f WHERE f.root_dfid = r.dfid AND f.ns = r.ns"
    " AND (f.updated_at >= :before OR f.status NOT IN ('COMPLETED', 'FAILED', 'CANCELLED', 'COMPENSATED')"
    " OR EXISTS (SELECT 1 FROM saga_dirty_state s WHERE s.dfid = f.dfid AND s.ns = f.ns)))"
    " AND NOT EXISTS (SELECT 1 FROM escalation_requests e WHERE e.root_dfid = r.dfid AND e.ns = r.ns"
    " AND e.status = 'PENDING')"
    " AND NOT EXISTS (SELECT 1 FROM flow_calls c JOIN decision_flows f ON f.dfid = c.forked_from AND f.ns = c.ns"
    " WHERE f.root_dfid = r.dfid AND f.ns = r.ns)"
    " AND NOT EXISTS (SELECT 1 FROM decision_flows f WHERE f.root_dfid = r.dfid AND f.ns = r.ns AND{held})"
).replace("{held}", _HELD.format(flow="f"))
_SOME_DUE = sql(f"{_DUE} AND r.dfid > :after ORDER BY r.dfid LIMIT :limit")
_STILL_DUE = sql(f"{_DUE} AND r.dfid = :root")


def _trees(tx: Tx, cut: Cut, *, after: str, remove: bool, ns: str) -> Batch:
    at, newest = cut.newest if isinstance(cut.newest, tuple) else (END, "")
    limits = {"before": cut.before, "at": at, "newest": newest, "flow_type": cut.flow_type, "ns": ns}
    roots = [root for (root,) in tx.all(_SOME_DUE, after=after, limit=_TREES, **limits)]
    handles: dict[str, tuple[str, ...]] = {}
    count = 0
    for root in roots:
        of_tree = _remove_tree(tx, root, limits) if remove else _handles(tx, root, ns)
        count += bool(of_tree)
        for table, more in of_tree.items():
            handles[table] = handles.get(table, ()) + tuple(more)
    return Batch(count, handles, roots[-1] if len(roots) == _TREES else None)


# SQLite has one writer: there the transaction itself is the lock.
_LOCK = sql(
    "SELECT dfid FROM decision_flows WHERE root_dfid = :root AND ns = :ns ORDER BY dfid",
    postgres="SELECT dfid FROM decision_flows WHERE root_dfid = :root AND ns = :ns ORDER BY dfid FOR UPDATE",
)
_REMOVE = sql("DELETE FROM decision_flows WHERE root_dfid = :root AND ns = :ns")


_YOUNGER = sql("SELECT 1 FROM decision_flows WHERE root_dfid = :root AND ns = :ns AND updated_at >= :before LIMIT 1")


def remove_tree(tx: Tx, root: str, *, ns: str, rules: InForce | None = None) -> dict[str, list[str]]:
    """Remove one tree, however young; return the handles of all its records, none where it must stay.

    `rules` are those in force, where the caller has checked them. RetentionHeldError where everything is held, or a
    floor keeps what is so young.
    """
    rules = rules or retention_rules.check_everything(tx, ns=ns)
    before = retention_rules.earliest(tx, "flows", rules)
    if before is not None and tx.one(_YOUNGER, root=root, ns=ns, before=before) is not None:
        days = rules.floor_days("flows")
        raise RetentionHeldError(f"a retention floor keeps flows for {days} days: {root} is younger", flow_id=root)
    limits = {"before": END, "at": END, "newest": "", "flow_type": None, "ns": ns}
    return _remove_tree(tx, root, limits)


def has_ended(tx: Tx, root: str, *, ns: str) -> bool:
    """Return whether nothing of a tree goes on, or is to be asked or forked again: whether it could be removed."""
    limits = {"before": END, "at": END, "newest": "", "flow_type": None, "ns": ns}
    return tx.one(_STILL_DUE, root=root, **limits) is not None


def _remove_tree(tx: Tx, root: str, limits: dict[str, Any]) -> dict[str, list[str]]:
    """Remove a tree if it is still due once it is locked; return the handles of all its records."""
    ns = limits["ns"]
    tx.all(_LOCK, root=root, ns=ns)
    if tx.one(_STILL_DUE, root=root, **limits) is None:
        return {}
    handles = _handles(tx, root, ns)
    tx.execute(_REMOVE, root=root, ns=ns, expect=len(handles["decision_flows"]))
    return handles


_OF_FLOWS: Final = (
    *("flow_calls", "flow_context", "flow_messages", "flow_promises", "flow_steps", "flow_stream_items"),
    *("flow_values", "decision_ledger_entries", "decision_feedback_trajectory", "policy_decisions"),
    *("escalation_answers", "escalation_messages"),
)
"""The logged tables whose rows go with the flow that they name, beside those that name its root."""
_HANDLES_BELOW: Final = "".join(
    f" UNION ALL SELECT '{table}', t.leaf_id FROM {table} t"  # noqa: S608 (names come from code)
    " JOIN decision_flows f ON f.dfid = t.dfid AND f.ns = t.ns WHERE f.root_dfid = :root AND f.ns = :ns"
    for table in _OF_FLOWS
)
_HANDLES = sql(
    "SELECT 'decision_flows' AS name, leaf_id FROM decision_flows WHERE root_dfid = :root AND ns = :ns"  # noqa: S608
    " UNION ALL SELECT 'flow_transitions', leaf_id FROM flow_transitions WHERE root_dfid = :root AND ns = :ns"
    " UNION ALL SELECT 'escalation_requests', leaf_id FROM escalation_requests WHERE root_dfid = :root AND ns = :ns"
    " UNION ALL SELECT 'decision_audit_events', leaf_id FROM decision_audit_events WHERE root_dfid = :root AND ns = :ns"
    f"{_HANDLES_BELOW}"
)


def _handles(tx: Tx, root: str, ns: str) -> dict[str, list[str]]:
    """Return the handles of every logged record of a tree, by table."""
    handles: dict[str, list[str]] = defaultdict(list)
    for table, handle in tx.all(_HANDLES, root=root, ns=ns):
        handles[table].append(handle)
    return handles
