"""Garbage: what was only in between, and what retention let go, once nothing leads to it any more.

Every put leaves a few nodes behind that no snapshot has: they are most of what a busy memory grows by.

Rules:
- What the tree of any namespace or any snapshot leads to stays; so does every version of an object that was not pruned,
  the commit and the note of every snapshot, and every value.
- Blocks of threads are none of this: each thread has its own, and they go with it (threads/removal.py).
- Nobody writes between the last look and a removal: on PostgreSQL writers of memory share a lock that a removal holds
  alone, SQLite has one writer anyway. What came to be needed meanwhile stays.
- A block goes before those below it, so that a verification that runs meanwhile never meets one that lacks something.
  But a tree may come back after it was looked at and go again before the next look; its nodes are garbage that may lack
  what was below them, until the next time. Verification asks which nodes the trees have (object_checks.py).
- It may stop at any point, by itself or by a kill: what is left is garbage for the next time.
- Words that objects no longer have leave the search index for good, not with some later merge of its own.
"""

import json
from collections.abc import Iterator
from itertools import islice
from typing import Any, Final, NamedTuple

from holdproof.content import blocks
from holdproof.crypto import cid as cids
from holdproof.crypto import mst_diff, mst_node
from holdproof.crypto.cid import CID
from holdproof.crypto.mst import EMPTY_BLOCK, EMPTY_ROOT, Get, Nodes
from holdproof.db import Call, Database, Read, Tx, Work, Write, ask, sql
from holdproof.errors import FormatError
from holdproof.memory.objects import commit_chain, commits, records, refs
from holdproof.memory.objects.commit_chain import COMMIT, LINK
from holdproof.memory.objects.records import META, OBJECT
from holdproof.memory.search import text_search
from holdproof.model.memory import Collected
from holdproof.model.progress import Progress
from holdproof.model.times import later
from holdproof.store.context import Context

_PAGE: Final = 2_000
_BATCH: Final = 500
_NODE: Final = b"\xa2\x61e"
_VOLATILE: Final = b"\xa3\x61v\x01\x62id"
"""How volatile fields begin: a map of three, `v` 1, then `id`."""
_RECORD: Final = b"\xa8\x61v\x01\x62id"
_NOTE: Final = b"\xa9\x61v\x01\x66author"
_SKEW_S: Final = 3_600.0
"""How far the clocks of those who write to one store may be apart."""


# --- what is needed ----------------------------------------------------------------------------------------------

_NAMED = sql("SELECT cid, note, root FROM snapshots")
# A record has its id in it: a CID stands for one key. A search for each would cost the square of an object's history.
_PRUNED = sql(
    "SELECT DISTINCT v.cid FROM object_versions v WHERE v.pruned_at IS NOT NULL AND v.cid NOT IN"
    " (SELECT o.cid FROM object_versions o WHERE o.pruned_at IS NULL AND o.cid IS NOT NULL)"
)
_WRITTEN = sql("SELECT DISTINCT cid FROM object_versions WHERE at >= :since AND cid IS NOT NULL AND pruned_at IS NULL")


class _Live:
    """What is needed: the roots that were looked at, what they lead to, and which records nobody may need any more."""

    def __init__(self, tx: Tx) -> None:
        self.roots: dict[CID, None] = {}
        self.blocks: set[CID] = set()
        self.doubted = {commits.parse(cid) for (cid,) in tx.all(_PRUNED)}
        self.since = later(tx.now, -_SKEW_S)
        self._moves = _moves(tx)

    def named(self, tx: Tx) -> list[CID]:
        """Return every root that is needed, those of snapshots first; their commits and notes are."""
        roots: dict[CID, None] = {}
        for cid, note, root in tx.all(_NAMED):
            self.blocks |= {commits.parse(cid), commits.parse(note)}
            roots[commits.parse(root)] = None
        return [*roots, *(ref.cid for ref in refs.every(tx) if ref.name.startswith("work/"))]

    def walk(self, get: Get, roots: list[CID]) -> Iterator[None]:
        """Mark what roots lead to; what the last one had too is not looked at again."""
        nodes = Nodes(lambda cid: EMPTY_BLOCK if cid == EMPTY_ROOT else get(cid))
        for root in roots:
            # Two snapshots without a change between them share a root.
            if root in self.roots:
                continue
            before = next(reversed(self.roots), EMPTY_ROOT)
            for step in mst_diff.steps(nodes, before, root):
                if isinstance(step, CID):
                    self.blocks.add(step)
                elif step.new is not None and step.key.startswith(META):
                    self.blocks.add(step.new)
                elif step.new in self.doubted and step.key.startswith(OBJECT):
                    self.keep(step.new)
                yield
            self.roots[root] = None

    def keep(self, record: CID) -> None:
        """A record is needed after all."""
        self.doubted.discard(record)
        self.blocks.add(record)

    def again(self, tx: Tx) -> None:
        """Look at what moved since the last look, versions that came and went in between included."""
        for _ in self.walk(blocks.getter(tx), self.named(tx)):
            pass
        if _moves(tx) == self._moves:
            return
        self._moves = _moves(tx)
        for (text,) in tx.all(_WRITTEN, since=self.since):
            cid = commits.parse(text)
            if cid in self.doubted:
                self.keep(cid)
            data = blocks.find(tx, cid)
            if data is not None and LINK in data:
                self.blocks.update(_raw(data))


def _moves(tx: Tx) -> int:
    """Return how often any ref was moved: nothing is written to memory without that."""
    return sum(ref.rev for ref in refs.every(tx))


def _raw(data: bytes) -> Iterator[CID]:
    return (link for link in records.links(data) if link.raw.startswith(cids.RAW_PREFIX))


# --- looking -----------------------------------------------------------------------------------------------------


class _Dead(NamedTuple):
    cid: CID
    size: int
    below: tuple[CID, ...]


def collect(context: Context, *, dry_run: bool = False, progress: Progress | None = None) -> Work[Collected]:
    """Remove what nothing leads to any more; with `dry_run` only count it."""
    live, roots = yield from ask(Read(_begin))
    looking: Call[list[_Dead]] = Call(lambda: _look(context.database, live, roots, progress))
    dead = yield from ask(looking)
    if dry_run:
        return Collected(len(dead), sum(each.size for each in dead), True)
    count = size = 0
    ordered = _ordered(dead)
    # Small transactions: writers get their turn between two batches.
    while batch := [*islice(ordered, _BATCH)]:
        removed = yield from ask(Write(lambda tx, batch=batch: _remove(tx, live, batch)))  # type: ignore[misc]
        count = count + len(removed)
        size = size + sum(each.size for each in removed)
        if progress is not None:
            progress("garbage", count, len(dead))
    yield from text_search.forget()
    return Collected(count, size, False)


def _begin(tx: Tx) -> tuple[_Live, list[CID]]:
    live = _Live(tx)
    return live, live.named(tx)


def _look(database: Database, live: _Live, roots: list[CID], progress: Progress | None) -> list[_Dead]:
    for _ in commit_chain.paged(database, lambda source: live.walk(source, roots), _PAGE):
        if progress is not None:
            progress("needed", len(live.blocks), 0)
    dead: list[_Dead] = []
    pieces: dict[CID, int] = {}
    after: Any = None
    while True:
        page = database.read(lambda tx: blocks.page(tx, after, _PAGE)).result()  # noqa: B023
        for raw, data in page.blocks:
            cid = cids.parse(raw)
            if _is_garbage(live, cid, data):
                if (below := _below(data)) is not None:
                    dead.append(_Dead(cid, len(data), below))
                else:
                    live.blocks.update(_raw(data))
            elif live.doubted:  # or nothing in pieces goes anyway
                _spare(live, pieces, cid, data)
        if page.last is None:
            break
        after = page.last
    orphans = {link for each in dead for link in each.below if link in pieces and link not in live.blocks}
    return dead + [_Dead(link, pieces[link], ()) for link in pieces if link in orphans]


def _is_garbage(live: _Live, cid: CID, data: bytes) -> bool:
    """Return whether a block is of a kind of which can be said that it is not needed, and is not."""
    if cid in live.blocks or cid == EMPTY_ROOT or not cid.raw.startswith(cids.CBOR_PREFIX):
        return False
    return data.startswith((_NODE, _VOLATILE, COMMIT, _NOTE)) or (data.startswith(_RECORD) and cid in live.doubted)


def _spare(live: _Live, pieces: dict[CID, int], cid: CID, data: bytes) -> None:
    """Raw bytes may be pieces of a record that goes; those that something else leads to stay."""
    if cid.raw.startswith(cids.RAW_PREFIX):
        pieces[cid] = len(data)
    elif LINK in data and not data.startswith(_NODE):
        live.blocks.update(_raw(data))


def _below(data: bytes) -> tuple[CID, ...] | None:
    """What a block has below it; None if it only begins like a node: others made it, and a record links to it."""
    if data.startswith(_NODE):
        try:
            node = mst_node.parse(data)
        except FormatError:
            return None
        return (*(child for child in node.children if child is not None), *node.values)
    return tuple(records.links(data)) if LINK in data and not data.startswith(_NOTE) else ()


def _ordered(dead: list[_Dead]) -> Iterator[_Dead]:
    """Yield each before those below it."""
    by_cid = {each.cid: each for each in dead}
    above: dict[CID, int] = {}
    for each in dead:
        for cid in {*each.below} & by_cid.keys():
            above[cid] = above.get(cid, 0) + 1
    # Topological order: a block is removed only after everything that leads to it.
    ready = [each for each in dead if each.cid not in above]
    while ready:
        each = ready.pop()
        yield each
        for cid in {*each.below} & by_cid.keys():
            above[cid] -= 1
            if above[cid] == 0:
                ready.append(by_cid[cid])


_DELETE = sql(
    "DELETE FROM objects WHERE h IN (SELECT unhex(value) FROM json_each(:gone))",
    postgres="DELETE FROM objects WHERE h IN"
    " (SELECT decode(value, 'hex') FROM json_array_elements_text(CAST(:gone AS JSON)))",
)


def _remove(tx: Tx, live: _Live, batch: list[_Dead]) -> list[_Dead]:
    """Remove what is still not needed; what moved since we looked is looked at first."""
    # From here to the commit nobody can make a block needed again.
    refs.alone(tx)
    live.again(tx)
    removable = [each for each in batch if each.cid not in live.blocks]
    tx.execute(_DELETE, gone=json.dumps([each.cid.raw.hex() for each in removable]))
    return removable
