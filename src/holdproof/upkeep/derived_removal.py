"""Erase what was derived from a subject's content, or say why it is left.

Rules:
- What is another person's is left: it goes with that person.
- Trees of flows go as retention removes them, so one that has not ended, has a fork or waits for an answer is left; so
  is what a floor or a hold keeps (evidence/retention_rules.py).
- Of an object every version goes since it was derived, and it is deleted; its blocks go as garbage, after the commit.
  Snapshots made since, which would show it, go too, but for the newest.
- Every removal is a pruning in the log, as one by retention is, whose rule names the subject by handle.
- A hold is named by its id. Its reason may name a person, and what is said here goes into the certificate.
- With mode "list" everything is left.
"""

from collections.abc import Sequence, Set
from typing import Final, NamedTuple

from holdproof.crypto import canonical
from holdproof.db import Tx, sql
from holdproof.errors import RetentionHeldError
from holdproof.evidence import prunings, retention_rules
from holdproof.evidence.retention_rules import InForce
from holdproof.memory.objects import object_retention, records
from holdproof.memory.threads import removal
from holdproof.model.erasure import Derived
from holdproof.runtime import retention
from holdproof.upkeep import derivation
from holdproof.upkeep.derivation import Link, UsedItem

MODES: Final = frozenset({"list", "erase"})
_LISTED: Final = "it was to be listed only: erase with derived='erase'"
_OTHERS: Final = "it belongs to another person"
_ACTIVE: Final = "it has not ended, has a fork, or waits for an answer: prune it by retention once it has"
_HEAD: Final = "it is the newest: make another, then `holdproof retention prune snapshots --keep 1` and `retention gc`"
_GONE: Final = "it was removed before"
_IMAGE: Final = "it was written while the object was there: remove the image, or write a new one and prune by retention"


class ImageAt(NamedTuple):
    """An image on disk, and when it was made."""

    name: str
    made_at: str
    ns: str


class FollowedUse(NamedTuple):
    """What became of everything derived, and how much of it is in which log record."""

    items: tuple[Derived, ...]
    leaf_ids: tuple[str, ...]
    """The handles of the removed records that were under the log."""
    left_garbage: bool
    """Whether blocks are to be collected after the commit."""


NOTHING: Final = FollowedUse((), (), False)


class _Removal:
    """One erasure of what is derived, under way."""

    def __init__(self, tx: Tx, handle: str, who: str, images: Sequence[ImageAt], ended: Set[UsedItem] | None) -> None:
        self.tx = tx
        self.ended = ended
        """The trees of flows whose writes are all known; None where that is each that has ended."""
        self.handle = handle
        self.who = who
        self.images = images
        self.leaf_ids: list[str] = []
        self.left_garbage = False
        self._rules_by_ns: dict[str, InForce] = {}
        self.shown_since: dict[str, str] = {}
        """By namespace: from when on snapshots and images may show an object that was erased."""

    def item(self, item: UsedItem, link: Link) -> str | None:
        """Erase one item; return why it is left, None where it went."""
        try:
            rules = self._rules(item.ns)
        except RetentionHeldError as error:
            return _held_by(error)
        if item.kind == derivation.FLOWS:
            return self._flows(item, rules)
        if item.kind == derivation.OBJECTS:
            return self._object(item, link)
        if item.kind == "threads":
            return self._thread(item)
        return self._row(item)

    def _flows(self, item: UsedItem, rules: InForce) -> str | None:
        if self.ended is not None and item not in self.ended:
            return _ACTIVE
        persons = {subject for (subject,) in self.tx.all(_PERSONS, root=item.key, ns=item.ns)}
        if persons - {None, self.handle}:
            return _OTHERS
        try:
            handles = retention.remove_tree(self.tx, item.key, ns=item.ns, rules=rules)
        except RetentionHeldError as error:
            return _held_by(error)
        if not handles:
            return _ACTIVE
        self._record("flows", handles, 1, item.ns)
        return None

    def _object(self, item: UsedItem, link: Link) -> str | None:
        hold = self._held("versions", item.ns)
        if hold is not None:
            return hold
        if any(subject != self.handle for (subject,) in self.tx.all(_SEALED_FOR, ns=item.ns, key=_key(item))):
            return _OTHERS
        removed = object_retention.erase(self.tx, item.key, link.cid, ns=item.ns)
        if removed.since is None:
            return _GONE
        self.left_garbage = True
        self._record("versions", {}, removed.versions, item.ns)
        since = self.shown_since.get(item.ns, removed.since)
        self.shown_since[item.ns] = min(since, removed.since)
        return None

    def _thread(self, item: UsedItem) -> str | None:
        row = self.tx.one(_THREAD, n=int(item.key), ns=item.ns)
        if row is None:
            return _GONE
        (thread_id,) = row
        removal.erase(self.tx, thread_id, rule=self._rule, who=self.who, ns=item.ns)
        return None

    def _row(self, item: UsedItem) -> str | None:
        row = self.tx.one(_SUBJECT_OF[item.kind], n=int(item.key), ns=item.ns)
        if row is None:
            return _GONE
        (subject,) = row
        if subject is not None:
            return _OTHERS
        for query in _DELETE[item.kind]:
            self.tx.execute(query, n=int(item.key))
        return None

    def shown(self) -> list[Derived]:
        """Remove the snapshots that may show an erased object; return those, and the images that may, as items."""
        items: list[Derived] = []
        for ns, since in sorted(self.shown_since.items()):
            via = "it may show an object that was erased"
            hold = self._held("snapshots", ns)
            handles = [] if hold is not None else object_retention.drop_snapshots(self.tx, since, ns=ns)
            if handles:
                self._record("snapshots", {"snapshots": handles}, len(handles), ns)
                items.append(Derived("snapshots", f"{len(handles)} since {since}", ns, via))
            remaining = object_retention.snapshots_since(self.tx, since, ns=ns)
            items += [Derived("snapshots", each, ns, via, hold or _HEAD) for each in remaining]
            images = [each for each in self.images if each.ns == ns and each.made_at >= since]
            items += [Derived("images", each.name, ns, via, _IMAGE) for each in images]
        return items

    @property
    def _rule(self) -> dict[str, str]:
        """What prunings say of why this went."""
        return {"derived_from": self.handle}

    def _held(self, what: str, ns: str) -> str | None:
        """Return why nothing of a kind may be removed now; None where it may."""
        try:
            rules = self._rules(ns)
            for rule in rules.holds("subject"):
                raise retention_rules.refuse(rule)
        except RetentionHeldError as error:
            return _held_by(error)
        days = rules.floor_days(what)
        return f"a retention floor keeps {what} for {days} days" if days else None

    def _rules(self, ns: str) -> InForce:
        """Return the rules of a namespace, read once: to read them is to look through the log."""
        rules = self._rules_by_ns.get(ns)
        if rules is None:
            rules = self._rules_by_ns[ns] = retention_rules.check_everything(self.tx, ns=ns)
        return rules

    def _record(self, what: str, handles: dict[str, list[str]], count: int, ns: str) -> None:
        rule = canonical.dump_text(self._rule)
        prunings.record(self.tx, what, handles, rule=rule, who=self.who, count=count, ns=ns)
        self.leaf_ids += [each for some in handles.values() for each in some]


def _held_by(error: RetentionHeldError) -> str:
    """Return why something is left; of a hold its id, not its reason."""
    rule = error.fields.get("rule")
    return error.message if rule is None else f"the legal hold {rule} keeps it, until root lifts it"


_PERSONS = sql("SELECT DISTINCT subject FROM decision_flows WHERE root_dfid = :root AND ns = :ns")
_SEALED_FOR = sql(
    "SELECT DISTINCT b.subject FROM object_versions v JOIN sealed_blocks b ON b.cid = v.cid"
    " WHERE v.ns = :ns AND v.key = :key"
)
_THREAD = sql("SELECT thread_id FROM threads WHERE n = :n AND ns = :ns AND deleted_at IS NULL")
_SUBJECT_OF: Final = {
    kind: sql(f"SELECT subject FROM {kind} WHERE n = :n AND ns = :ns")  # noqa: S608 (names come from here)
    for kind in ("notes", "transcripts")
}
_DELETE: Final = {
    "notes": (sql("DELETE FROM notes WHERE n = :n"),),
    "transcripts": (
        sql("DELETE FROM transcript_items WHERE transcript = :n"),
        sql("DELETE FROM transcripts WHERE n = :n"),
    ),
}


def _key(item: UsedItem) -> str:
    return records.key_of(item.key)


def follow(tx: Tx, handle: str, *, mode: str, who: str, images: Sequence[ImageAt] = ()) -> FollowedUse:
    """Find what is derived from a subject's content and erase or list it; before the subject's key is destroyed."""
    links = derivation.find(tx, handle)
    ended = None
    if mode != "list" and tx.dialect == "postgres":
        # There others write meanwhile. A tree that had ended before the notes are read has written all it ever will.
        ended = {
            each for each in links if each.kind == derivation.FLOWS and retention.has_ended(tx, each.key, ns=each.ns)
        }
        links = derivation.find(tx, handle)
    ordered = sorted(links.items())
    if mode == "list":
        return FollowedUse(tuple(Derived(i.kind, i.key, i.ns, link.via, _LISTED) for i, link in ordered), (), False)
    removing = _Removal(tx, handle, who, images, ended)
    items = [Derived(item.kind, item.key, item.ns, link.via, removing.item(item, link)) for item, link in ordered]
    return FollowedUse((*items, *removing.shown()), tuple(removing.leaf_ids), removing.left_garbage)
