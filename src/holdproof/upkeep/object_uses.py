"""Who wrote an object and who used it, by the notes that steps of flows leave (material_notes.py).

Rules:
- A version and the note of the step that wrote it have one moment, that of their transaction: what wrote a version is
  found by it, however many notes there are.
- Uses are searched backwards through the notes, a bounded number at a time: a page may hold fewer uses than its limit,
  and another page follows until all notes were looked at.
- A note that cannot be read (its person was erased), or that a caller of the server recorded, tells of nothing.
- What is written or read outside of a step leaves no note: then there is a version and nobody who wrote it.
"""

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final, NamedTuple

from holdproof import paging
from holdproof.crypto import canonical
from holdproof.db import Row, Tx, sql
from holdproof.memory.objects import objects
from holdproof.model.memory import ObjectUse, ObjectVersion
from holdproof.model.namespaces import MAIN
from holdproof.model.page import Page
from holdproof.runtime import recorded
from holdproof.upkeep import material_notes

_MOST_NOTES: Final = 20_000
"""How many notes one page looks at."""

_WRITTEN_AT = sql(
    "SELECT e.created_at, e.dfid, f.agent_id, e.detail_json FROM decision_audit_events e"
    " JOIN decision_flows f ON f.dfid = e.dfid AND f.ns = e.ns"
    " WHERE e.created_at = :at AND e.event_type = :kind AND e.ns = :ns ORDER BY e.id"
)


class _Writer(NamedTuple):
    """The flow that wrote a version, and its agent."""

    flow_id: str
    agent_id: str


def history(tx: Tx, id: str, *, cursor: str | None = None, limit: int = 100, ns: str = MAIN) -> Page[ObjectVersion]:
    """List every write of an object, the newest first, with the flow whose step wrote it; a deletion is one of them."""
    page = objects.history(tx, id, cursor=cursor, limit=limit, ns=ns)
    writers: dict[tuple[str, str | None], _Writer] = {}
    for at in {each.at for each in page.items}:
        for note_at, flow_id, agent_id, text in tx.all(_WRITTEN_AT, at=at, kind=material_notes.WRITTEN, ns=ns):
            for each in _named(_detail(tx, text), id, ns):
                writers[note_at, each.get("cid")] = _Writer(flow_id, agent_id)
    return Page([_with_writer(each, writers.get((each.at, each.cid))) for each in page.items], page.next_cursor)


def _with_writer(version: ObjectVersion, writer: _Writer | None) -> ObjectVersion:
    return version if writer is None else replace(version, flow_id=writer.flow_id, agent_id=writer.agent_id)


# One kind of note only: the index has them in the order of their numbers.
_OLDEST_NOTE = sql(
    "SELECT min(id), count(*) FROM (SELECT id FROM decision_audit_events WHERE event_type = :kind AND id < :before"
    " ORDER BY id DESC LIMIT :limit) n"
)
# A sealed note may name any object; which ones is seen once it is open.
_USES = sql(
    "SELECT e.id, e.created_at, e.dfid, f.agent_id, f.flow_type, e.detail_json FROM decision_audit_events e"
    " JOIN decision_flows f ON f.dfid = e.dfid AND f.ns = e.ns"
    " WHERE e.event_type = :kind AND e.id < :before AND e.id >= :oldest AND e.ns = :ns"
    " AND (instr(e.detail_json, :name) > 0 OR instr(e.detail_json, '\"$sealed\"') > 0) ORDER BY e.id DESC LIMIT :limit",
    postgres="SELECT e.id, e.created_at, e.dfid, f.agent_id, f.flow_type, e.detail_json FROM decision_audit_events e"
    " JOIN decision_flows f ON f.dfid = e.dfid AND f.ns = e.ns"
    " WHERE e.event_type = :kind AND e.id < :before AND e.id >= :oldest AND e.ns = :ns"
    " AND (strpos(CAST(e.detail_json AS TEXT), :name) > 0 OR strpos(CAST(e.detail_json AS TEXT), '\"$sealed\"') > 0)"
    " ORDER BY e.id DESC LIMIT :limit",
)


def uses(tx: Tx, id: str, *, cursor: str | None = None, limit: int = 100, ns: str = MAIN) -> Page[ObjectUse]:
    """List the reads of an object by steps of flows, the newest first; a read that was not in a step is not known.

    A page may hold fewer uses than `limit`, even none, and still have a `next_cursor`: older notes follow.
    """
    before = paging.last_id(cursor)
    most = paging.fetch(limit) - 1
    oldest, count = _oldest(tx, before)
    name = f'"id":{canonical.dump_text(id)}'
    rows = tx.all(_USES, kind=material_notes.READ, before=before, oldest=oldest, ns=ns, name=name, limit=most)
    listed = [use for row in rows for use in _uses_of(tx, row, id, ns)]
    if len(rows) == most:
        note, *_ = rows[-1]
        return Page(listed, paging.encode(note))
    return Page(listed, paging.encode(oldest) if count == _MOST_NOTES else None)


def _oldest(tx: Tx, before: int) -> tuple[int, int]:
    """Return the number of the oldest note that a page looks at, and how many it looks at."""
    row = tx.one(_OLDEST_NOTE, kind=material_notes.READ, before=before, limit=_MOST_NOTES)
    assert row is not None, "an aggregate has one row"
    oldest, count = row
    return (0 if oldest is None else int(oldest)), int(count)


def _uses_of(tx: Tx, row: Row, id: str, ns: str) -> Iterable[ObjectUse]:
    number, at, flow_id, agent_id, flow_type, text = row
    detail = _detail(tx, text)
    for each in _named(detail, id, ns):
        version = each.get("version")
        yield ObjectUse(number, at, flow_id, agent_id, flow_type, version, each.get("cid"), detail.get("snapshot"))


def _detail(tx: Tx, text: Any) -> dict[str, Any]:
    """Return what a note says; nothing of one that is no note of the store's own, or cannot be read."""
    detail = recorded.open_json(tx, json.loads(text)) if isinstance(text, str) else None
    return detail if isinstance(detail, dict) and "recorded_by" not in detail else {}


def _named(detail: dict[str, Any], id: str, ns: str) -> list[dict[str, Any]]:
    """Return what a note says of one object."""
    listed = detail.get("objects")
    if detail.get("ns") != ns or not isinstance(listed, list):
        return []
    return [each for each in listed if isinstance(each, dict) and each.get("id") == id]
