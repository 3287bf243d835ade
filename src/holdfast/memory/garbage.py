"""Garbage: nodes of trees that were only in between, and volatile fields that nothing refers to any more.

Every put leaves a few nodes behind that no snapshot has: they are most of what a busy memory grows by.

Rules:
- What the tree of any namespace or any snapshot leads to stays; so does every version of every object, every commit,
  every note and every value.
- Blocks of threads are none of this: each thread has its own, and they go with it (threadremoval.py).
- Nobody writes between the last look and a removal: on PostgreSQL writers of memory share a lock that a removal holds
  alone, SQLite has one writer anyway. What came to be needed meanwhile stays.
- A node goes before those below it, so that whoever verifies meanwhile never meets one that lacks something.
- It may stop at any point, by itself or by a kill: what is left is garbage for the next time.
"""

import json
from collections.abc import Iterator
from itertools import islice
from typing import Any, Final, NamedTuple

from holdfast.content import blocks
from holdfast.crypto import cid as cids
from holdfast.crypto import mst_diff, mst_node
from holdfast.crypto.cid import CID
from holdfast.crypto.mst import EMPTY_BLOCK, EMPTY_ROOT, Get, Nodes
from holdfast.db import Call, Database, Read, Tx, Work, Write, ask, sql
from holdfast.evidence.context import Context
from holdfast.memory import commits, refs
from holdfast.memory.lines import Source
from holdfast.memory.records import META
from holdfast.model.memory import Collected
from holdfast.model.progress import Progress

_PAGE: Final = 2_000
_BATCH: Final = 500
_NODE: Final = b"\xa2\x61e"
_VOLATILE: Final = b"\xa3\x61v\x01\x62id"
"""How volatile fields begin: a map of three, `v` 1, then `id`."""


_ROOTS = sql("SELECT DISTINCT root FROM snapshots")


class _Live:
    """What is needed: the roots that were looked at, and the nodes and volatile fields they lead to."""

    def __init__(self) -> None:
        self.roots: dict[CID, None] = {}
        self.blocks: set[CID] = set()

    def walk(self, get: Get, roots: list[CID]) -> Iterator[None]:
        """Mark what roots lead to; what the last one had too is not looked at again."""
        nodes = Nodes(lambda cid: EMPTY_BLOCK if cid == EMPTY_ROOT else get(cid))
        for root in roots:
            if root in self.roots:
                continue
            before = next(reversed(self.roots), EMPTY_ROOT)
            for step in mst_diff.steps(nodes, before, root):
                if isinstance(step, CID):
                    self.blocks.add(step)
                elif step.new is not None and step.key.startswith(META):
                    self.blocks.add(step.new)
                yield
            self.roots[root] = None


class _Dead(NamedTuple):
    cid: CID
    size: int
    below: tuple[CID, ...]


def collect(context: Context, *, dry_run: bool = False, progress: Progress | None = None) -> Work[Collected]:
    """Remove what nothing leads to any more; with `dry_run` only count it. `retention.compact` gives the space back."""
    roots = yield from ask(Read(_roots))
    looking: Call[tuple[_Live, list[_Dead]]] = Call(lambda: _look(context.database, roots, progress))
    live, dead = yield from ask(looking)
    if dry_run:
        return Collected(len(dead), sum(each.size for each in dead), True)
    count = size = 0
    ordered = _ordered(dead)
    while batch := [*islice(ordered, _BATCH)]:
        removed = yield from ask(Write(lambda tx, batch=batch: _remove(tx, live, batch)))  # type: ignore[misc]
        count, size = count + len(removed), size + sum(each.size for each in removed)
        if progress is not None:
            progress("garbage", count, len(dead))
    return Collected(count, size, False)


def _roots(tx: Tx) -> list[CID]:
    """Every root that is needed, those of snapshots first."""
    found = [commits.parse(row[0]) for row in tx.all(_ROOTS)]
    after = ""
    while page := refs.page(tx, after):
        after = page[-1].name
        found += [ref.cid for ref in page if ref.name.startswith("work/")]
    return found


def _look(database: Database, roots: list[CID], progress: Progress | None) -> tuple[_Live, list[_Dead]]:
    live, source = _Live(), Source()
    marking = live.walk(source, roots)

    def mark(tx: Tx) -> int:
        source.tx = tx
        return sum(1 for _ in islice(marking, _PAGE))

    while database.read(mark).result():
        if progress is not None:
            progress("needed", len(live.blocks), 0)
    dead: list[_Dead] = []
    after: Any = None
    while True:
        page = database.read(lambda tx: blocks.page(tx, after, _PAGE)).result()  # noqa: B023
        for raw, data in page.blocks:
            cid = cids.parse(raw)
            if cid not in live.blocks and cid != EMPTY_ROOT and _is_ours(cid, data):
                dead.append(_Dead(cid, len(data), _below(data)))
        if page.last is None:
            return live, dead
        after = page.last


def _is_ours(cid: CID, data: bytes) -> bool:
    """Whether a block is a node, or an object's volatile fields: of nothing else can be said that it is not needed."""
    return cid.raw.startswith(cids.CBOR_PREFIX) and data.startswith((_NODE, _VOLATILE))


def _below(data: bytes) -> tuple[CID, ...]:
    if not data.startswith(_NODE):
        return ()
    node = mst_node.parse(data)
    return (*(child for child in node.children if child is not None), *node.values)


def _ordered(dead: list[_Dead]) -> Iterator[_Dead]:
    """Each before those below it."""
    known = {each.cid: each for each in dead}
    above: dict[CID, int] = {}
    for each in dead:
        for cid in {*each.below} & known.keys():
            above[cid] = above.get(cid, 0) + 1
    ready = [each for each in dead if each.cid not in above]
    while ready:
        each = ready.pop()
        yield each
        for cid in {*each.below} & known.keys():
            above[cid] -= 1
            if above[cid] == 0:
                ready.append(known[cid])


_DELETE = sql(
    "DELETE FROM objects WHERE h IN (SELECT unhex(value) FROM json_each(:gone))",
    postgres="DELETE FROM objects WHERE h IN"
    " (SELECT decode(value, 'hex') FROM json_array_elements_text(CAST(:gone AS JSON)))",
)


def _remove(tx: Tx, live: _Live, batch: list[_Dead]) -> list[_Dead]:
    """Remove what is still not needed; what moved since we looked is looked at first."""
    refs.alone(tx)
    for _ in live.walk(blocks.getter(tx), _roots(tx)):
        pass
    gone = [each for each in batch if each.cid not in live.blocks]
    tx.execute(_DELETE, gone=json.dumps([each.cid.raw.hex() for each in gone]))
    return gone
