"""What must hold between the rows of the runtime, beyond their own leaves.

The log covers what never changes of a flow, and every transition; the rest of a flow follows from its transitions. A
status, or a time of a flow, that does not follow was changed behind the kernel's back.
"""

from holdfast.db import Tx, sql
from holdfast.model.flows import TERMINAL

_ASTRAY = sql(
    "SELECT f.dfid, f.status, f.started_at, f.completed_at, f.updated_at, f.created_at, t.to_status, t.created_at,"
    " (SELECT min(r.created_at) FROM flow_transitions r WHERE r.dfid = f.dfid AND r.to_status = 'RUNNING')"
    " FROM decision_flows f LEFT JOIN flow_transitions t"
    " ON t.id = (SELECT max(l.id) FROM flow_transitions l WHERE l.dfid = f.dfid)"
    " WHERE f.dfid > :after ORDER BY f.dfid LIMIT :limit"
)
_BROKEN = sql(
    "SELECT t.id, t.dfid FROM flow_transitions t WHERE t.dfid > :after AND t.dfid <= :last AND t.from_status <>"
    " coalesce((SELECT p.to_status FROM flow_transitions p WHERE p.id = (SELECT max(q.id) FROM flow_transitions q"
    " WHERE q.dfid = t.dfid AND q.id < t.id)), 'CREATED') ORDER BY t.id"
)


def flows(tx: Tx, *, after: str = "", limit: int = 500) -> tuple[list[str], str | None]:
    """Findings among one page of flows, and where the next page begins: None at the end."""
    page = tx.all(_ASTRAY, after=after, limit=limit)
    found = []
    for dfid, status, started, completed, updated, created, last, moved, ran in page:
        follows = (last or "CREATED", ran, moved if last in TERMINAL else None, moved or created)
        if (status, started, completed, updated) != follows:
            found.append(f"flow {dfid} is {status}, which does not follow from its transitions")
    if not page:
        return found, None
    broken = tx.all(_BROKEN, after=after, last=page[-1][0])
    found += [f"transition {id} of flow {dfid} does not follow the one before" for id, dfid in broken]
    return found, page[-1][0] if len(page) == limit else None
