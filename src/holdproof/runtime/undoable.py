"""Which steps of a flow are still to be undone, and of which nobody knows whether they happened."""

from holdproof.db import Tx, sql

_TO_UNDO = sql(
    "SELECT s.name, s.n FROM flow_steps s WHERE s.dfid = :dfid AND s.ns = :ns AND s.undo = 1 AND s.state = 'DONE'"
    " AND NOT EXISTS (SELECT 1 FROM flow_steps u WHERE u.dfid = s.dfid AND u.ns = s.ns"
    " AND u.compensates = s.name || ' ' || CAST(s.n AS TEXT) AND u.state = 'DONE') ORDER BY s.step_id"
)


def to_undo(tx: Tx, flow_id: str, *, ns: str) -> list[tuple[str, int]]:
    """Return the steps that were done, can be undone and are not: name and number, in the order they started."""
    return [(name, n) for name, n in tx.all(_TO_UNDO, dfid=flow_id, ns=ns)]


_IN_DOUBT = sql(
    "SELECT name, n FROM flow_steps WHERE dfid = :dfid AND ns = :ns AND undo >= :undo"
    " AND state IN ('STARTED', 'UNKNOWN') ORDER BY step_id"
)


def in_doubt(tx: Tx, flow_id: str, *, undo: bool = False, ns: str) -> list[tuple[str, int]]:
    """Return the steps that were started and never confirmed; with `undo` only those that would have to be undone."""
    return [(name, n) for name, n in tx.all(_IN_DOUBT, dfid=flow_id, ns=ns, undo=int(undo))]
