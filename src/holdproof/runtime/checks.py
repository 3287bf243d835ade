"""What must hold between the rows of the runtime, beyond their own leaves.

The log covers what never changes of a flow, and every transition; the rest of a flow follows from its transitions. A
status, or a time of a flow, that does not follow was changed behind the kernel's back. Each transition begins where the
one before ended, but for those that an import took over as they were, and the first of a flow that DIR had under way.
"""

from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter
from typing import Final

from holdproof.db import Row, Tx, sql
from holdproof.model.flows import DIR_WORDS, WORDS, Standing, follow, onward

IMPORTED: Final = "imported"
"""The reason of a transition that was taken over as it was."""

_FLOWS = sql(
    "SELECT dfid, status, started_at, completed_at, updated_at, created_at FROM decision_flows"
    " WHERE dfid > :after ORDER BY dfid LIMIT :limit"
)
_MOVES = sql(
    "SELECT dfid, id, from_status, to_status, created_at, reason FROM flow_transitions"
    " WHERE dfid > :after AND dfid <= :last ORDER BY dfid, id"
)


def flows(tx: Tx, *, after: str = "", limit: int = 500) -> tuple[list[str], str | None]:
    """Findings among one page of flows, and where the next page begins: None at the end."""
    page = tx.all(_FLOWS, after=after, limit=limit)
    if not page:
        return [], None
    moves = {
        flow_id: [*rows] for flow_id, rows in groupby(tx.all(_MOVES, after=after, last=page[-1][0]), itemgetter(0))
    }
    found: list[str] = []
    for flow_id, status, started, completed, updated, created in page:
        if Standing(status, started, completed, updated) != standing(created, moves.get(flow_id, [])):
            found.append(f"flow {flow_id} is {status}, which does not follow from its transitions")
        found += _broken(moves.get(flow_id, []))
    return found, page[-1][0] if len(page) == limit else None


def standing(created_at: str, moves: list[Row]) -> Standing:
    """What of a flow follows from the rows of its transitions."""
    return follow(created_at, ((row[2], row[3], row[4]) for row in moves))


def _broken(moves: list[Row]) -> Iterator[str]:
    """Transitions that do not begin where the one before ended."""
    stood = "CREATED"
    for place, (flow_id, number, before, word, _, reason) in enumerate(moves):
        entered = place == 0 and before in DIR_WORDS
        begun = WORDS.get(before or "", stood)
        if reason != IMPORTED and not entered and begun != stood:
            yield f"transition {number} of flow {flow_id} does not follow the one before"
        stood = onward(begun, word) or stood
