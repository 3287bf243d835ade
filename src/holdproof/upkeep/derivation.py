"""What used a subject's content and is not labelled with it: found by what steps noted, and by which flow began which.

Rules:
- A flow of the subject, and a flow one of whose steps read what is the subject's, used the content; from then on, what
  that flow's steps write is derived. What reads something derived used it as well, to any depth.
- Flows count as whole trees, which is how they are removed: a flow gives its result to the one that began it.
- A flow that is forked from a derived one, or got a message from it, is derived.
- What carries the subject's own label is not derived: it goes with the label. A version of an object that was written
  in clear is derived, whatever became of the object before or after.
- The earliest use counts, in whatever order uses are found. To delete something writes nothing.
- A note that cannot be read (its person was erased, it was recorded by a caller of the server) links nothing.
- Only what was recorded is followed: what a person, a program or a flow outside its steps copied is not seen.
"""

import json
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from holdproof.db import Tx, sql
from holdproof.memory.objects import records
from holdproof.runtime import recorded
from holdproof.upkeep import material_notes

OBJECTS: Final = "objects"
FLOWS: Final = "flows"
ROWS: Final = ("notes", "threads", "transcripts")
"""Kinds whose items are known by the number of their row."""
_PAGE: Final = 1_000


class UsedItem(NamedTuple):
    """A tree of flows by its root, an object by its id, or a row by its number."""

    kind: str
    ns: str
    key: str


class Link(NamedTuple):
    """How an item came to be derived: since which note, by what, and of an object in which version first."""

    since: int
    via: str
    cid: str | None = None


class _Note(NamedTuple):
    """That the steps of a tree read or wrote items."""

    id: int
    tree: UsedItem
    is_read: bool
    items: tuple[tuple[UsedItem, str | None], ...]


def find(tx: Tx, handle: str) -> dict[UsedItem, Link]:
    """Return what is derived from a subject's content, before its key is destroyed; how each came to be."""
    own = set(_own(tx, handle))
    sealed = {cid for (cid,) in tx.all(_SEALED, subject=handle)}
    own_trees = {UsedItem(FLOWS, ns, root) for ns, root in tx.all(_OWN_TREES, subject=handle)}
    links = {tree: Link(0, "it has flows of the person") for tree in own_trees}
    # Both in every round: either may find an earlier use of what the other has found. The notes are read anew in each:
    # there are as many as steps that touched memory, and they follow each other, so that rounds are few.
    while (own or links) and _follow_notes(_notes(tx), own, sealed, links) | _follow_flows(tx, links):
        pass
    alone = {UsedItem(FLOWS, ns, root) for ns, root in tx.all(_ALONE, subject=handle)}
    return {item: link for item, link in links.items() if item not in alone}


_OWN_TREES = sql("SELECT DISTINCT ns, root_dfid FROM decision_flows WHERE subject = :subject")
_ALONE = sql(
    "SELECT DISTINCT ns, root_dfid FROM decision_flows f WHERE f.subject = :subject AND NOT EXISTS (SELECT 1 FROM"
    " decision_flows o WHERE o.root_dfid = f.root_dfid AND o.ns = f.ns"
    " AND (o.subject IS NULL OR o.subject <> :subject))"
)
"""Trees all of whose flows are the subject's."""
_OWN_OBJECTS = sql(
    "SELECT DISTINCT v.ns, v.key FROM object_versions v JOIN sealed_blocks b ON b.cid = v.cid"
    " WHERE b.subject = :subject"
)
_SEALED = sql("SELECT cid FROM sealed_blocks WHERE subject = :subject")
_OWN_ROWS: Final = {
    kind: sql(f"SELECT ns, n FROM {kind} WHERE subject = :subject")  # noqa: S608 (names come from here)
    for kind in ("notes", "transcripts")
}


def _own(tx: Tx, handle: str) -> Iterator[UsedItem]:
    for ns, key in tx.all(_OWN_OBJECTS, subject=handle):
        yield UsedItem(OBJECTS, ns, records.id_of(key))
    for kind, query in _OWN_ROWS.items():
        for ns, number in tx.all(query, subject=handle):
            yield UsedItem(kind, ns, str(number))


# --- what steps noted --------------------------------------------------------------------------------------------

_NOTES = sql(
    "SELECT id, ns, root_dfid, event_type, detail_json FROM decision_audit_events"
    " WHERE event_type IN (:read, :written) AND id > :after ORDER BY id LIMIT :limit"
)


def _notes(tx: Tx) -> Iterator[_Note]:
    kinds = {"read": material_notes.READ, "written": material_notes.WRITTEN}
    after = 0
    while page := tx.all(_NOTES, **kinds, after=after, limit=_PAGE):
        for id, ns, root, event_type, text in page:
            detail = recorded.open_json(tx, json.loads(text)) if text is not None else None
            if isinstance(detail, dict) and "recorded_by" not in detail:
                yield _Note(id, UsedItem(FLOWS, ns, root), event_type == material_notes.READ, tuple(_items(detail)))
        after = page[-1][0]


def _items(detail: dict[str, Any]) -> Iterator[tuple[UsedItem, str | None]]:
    """Return what a note names, and of objects the version; whatever is not as Holdproof writes it is passed over."""
    ns = str(detail.get("ns"))
    objects = detail.get("objects")
    for each in objects if isinstance(objects, list) else ():
        if isinstance(each, dict) and isinstance(each.get("id"), str):
            yield UsedItem(OBJECTS, ns, each["id"]), each.get("cid")
    rows = detail.get("rows")
    for kind in ROWS:
        numbers = rows.get(kind) if isinstance(rows, dict) else None
        for number in numbers if isinstance(numbers, list) else ():
            yield UsedItem(kind, ns, str(number)), None


def _follow_notes(notes: Iterable[_Note], own: set[UsedItem], sealed: set[str], links: dict[UsedItem, Link]) -> bool:
    """Add what the notes lead to, in their order; return whether anything was added, or is derived since earlier."""
    is_more = False
    for note in notes:
        if note.is_read and not _is_since(links, note.tree, note.id):
            used = next((item for item, _ in note.items if item in own or _is_since(links, item, note.id)), None)
            if used is not None:
                is_more |= _link(links, note.tree, Link(note.id, f"it read {_named(used)}"))
        elif not note.is_read and _is_since(links, note.tree, note.id):
            for item, cid in note.items:
                if _is_in_clear(item, cid, own, sealed):
                    is_more |= _link(links, item, Link(note.id, f"written by {_named(note.tree)}", cid))
    return is_more


def _is_in_clear(item: UsedItem, cid: str | None, own: set[UsedItem], sealed: set[str]) -> bool:
    """Whether what was written does not go with the subject's label, and is not a deletion."""
    if item.kind == OBJECTS:
        return cid is not None and cid not in sealed
    return item not in own


def _link(links: dict[UsedItem, Link], item: UsedItem, link: Link) -> bool:
    """Add a link, or an earlier one than is known; return whether it was."""
    earlier = links.get(item)
    if earlier is not None and earlier.since <= link.since:
        return False
    links[item] = link
    return True


def _is_since(links: dict[UsedItem, Link], item: UsedItem, note: int) -> bool:
    link = links.get(item)
    return link is not None and link.since < note


def _named(item: UsedItem) -> str:
    return f"{item.kind.removesuffix('s')} {item.key}"


# --- which flow began which --------------------------------------------------------------------------------------

_FORKS = sql(
    "SELECT DISTINCT f.ns, f.root_dfid, o.root_dfid FROM flow_calls c JOIN decision_flows f ON f.dfid = c.dfid"
    " AND f.ns = c.ns JOIN decision_flows o ON o.dfid = c.forked_from AND o.ns = c.ns"
)
_MESSAGES = sql(
    "SELECT DISTINCT f.ns, f.root_dfid, o.root_dfid FROM flow_messages m JOIN decision_flows f ON f.dfid = m.dfid"
    " AND f.ns = m.ns JOIN decision_flows o ON o.dfid = substr(m.sent_by, 6) AND o.ns = m.ns"
    " WHERE m.sent_by LIKE 'flow:%'"
)


def _follow_flows(tx: Tx, links: dict[UsedItem, Link]) -> bool:
    """Add the flows that were forked from derived ones, or got a message of them; whether anything was added."""
    is_more = False
    for query, how in ((_FORKS, "forked from"), (_MESSAGES, "it got a message of")):
        for ns, root, origin in tx.all(query):
            tree, source = UsedItem(FLOWS, ns, root), UsedItem(FLOWS, ns, origin)
            if source in links:
                is_more |= _link(links, tree, Link(0, f"{how} {_named(source)}"))
    return is_more
