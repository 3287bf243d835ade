"""Find the entries of the log for whatever id a person has: of a flow, a step, an escalation, an evaluation, an agent,
a record's handle, the number of an entry.

Rules:
- Each table is asked by an index on the id. A number is the entry of that number, and the escalation of that id.
- An id that nothing has is tried as the beginning of a flow's id; more than one flow with it are all found.
"""

import json
from collections.abc import Mapping
from typing import Final

from holdproof import validation
from holdproof.db import Query, Tx, sql
from holdproof.model.namespaces import EVERY
from holdproof.model.trail import LogEntry
from holdproof.upkeep import kernel_tables
from holdproof.upkeep.trail import reading

_MOST: Final = 50
_LEAST_PREFIX: Final = 4
_NUMBERED: Final = frozenset({"id", "n"})
"""Columns that count within a table: such a number says nothing without its table."""
_FURTHER: Final[Mapping[str, tuple[str, ...]]] = {
    "battles": ("battle_id",),
    "policies": ("name",),
    "schedules": ("name",),
    "decision_ledger_entries": ("dfid",),
}


def _by(table: str, column: str) -> Query:
    return sql(
        f"SELECT leaf_id FROM {table} WHERE {column} = :text ORDER BY leaf_id LIMIT :limit"  # noqa: S608 (from code)
    )


_BY_TEXT: Final[tuple[Query, ...]] = tuple(
    _by(name, column)
    for name, logged in kernel_tables.LOGGED.items()
    for column in (*(() if logged.key in _NUMBERED else (logged.key,)), *_FURTHER.get(name, ()))
)
_ESCALATION = sql("SELECT leaf_id FROM escalation_requests WHERE id = :id")
_BY_PREFIX = sql(
    "SELECT leaf_id FROM decision_flows WHERE dfid >= :text AND dfid < :end ORDER BY dfid LIMIT :limit",
    postgres='SELECT leaf_id FROM decision_flows WHERE dfid COLLATE "C" >= :text AND dfid COLLATE "C" < :end'
    ' ORDER BY dfid COLLATE "C" LIMIT :limit',
)
_EXISTING = sql(
    "SELECT id, max(idx) FROM log_leaves WHERE id IN (SELECT value FROM json_each(:handles)) GROUP BY id",
    postgres="SELECT id, max(idx) FROM log_leaves WHERE id IN"
    " (SELECT value FROM json_array_elements_text(CAST(:handles AS JSON))) GROUP BY id",
)


def find(tx: Tx, text: str, *, ns: str = EVERY) -> tuple[LogEntry, ...]:
    """Return the newest entry of every record that an id names, the newest first; none where the log has no such id."""
    words = validation.words("text", text.strip(), least=1, most=500)
    handles = {words}
    for query in _BY_TEXT:
        handles.update(handle for (handle,) in tx.all(query, text=words, limit=_MOST))
    number = int(words) if words.isascii() and words.isdigit() and len(words) < len(str(validation.LAST)) else None
    if number is not None:
        handles.update(handle for (handle,) in tx.all(_ESCALATION, id=number))
    if handles == {words} and len(words) >= _LEAST_PREFIX:
        rows = tx.all(_BY_PREFIX, text=words, end=f"{words}\uffff", limit=_MOST)
        handles.update(handle for (handle,) in rows)
    places = [index for _, index in tx.all(_EXISTING, handles=json.dumps(sorted(handles)))]
    if number is not None:
        places.append(number)
    entries = (reading.at(tx, place, ns=ns) for place in sorted(set(places), reverse=True)[:_MOST])
    return tuple(entry for entry in entries if entry is not None)
