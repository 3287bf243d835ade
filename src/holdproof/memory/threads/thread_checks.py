"""What must hold of threads: every checkpoint is what its hash says, and has the blocks it needs; so has every write.

Checkpoints are outside the log. Who can write to the database can put another one in the place of one, hash and all;
damage, and a row that was edited by hand, is found.
"""

from collections.abc import Iterable
from hashlib import sha256
from typing import Any, Final

from holdproof.db import Tx, sql
from holdproof.errors import HoldproofError
from holdproof.memory.objects.object_checks import CheckedPage, ObjectFlaw
from holdproof.memory.threads import channel_values, thread_states
from holdproof.memory.threads.channel_values import Digest, ListRef, Ref, ThreadBlocks

_PAGE: Final = 100

_BLOCKS = sql(
    "SELECT thread, h, data FROM thread_blocks WHERE thread > :thread OR (thread = :thread AND h > :h)"
    " ORDER BY thread, h LIMIT :limit"
)


def blocks(tx: Tx, after: tuple[int, bytes] | None) -> CheckedPage:
    """One page of blocks: each is what its hash names."""
    thread, h = after or (-1, b"")
    rows = tx.all(_BLOCKS, thread=thread, h=h, limit=_PAGE)
    flaws = [
        ObjectFlaw("thread_blocks", f"{thread} {digest.hex()}", "a block of a thread is damaged or was exchanged")
        for thread, digest, data in rows
        if sha256(data).digest() != digest
    ]
    return CheckedPage(len(rows), flaws, (rows[-1][0], rows[-1][1]) if len(rows) == _PAGE else None)


_CHECKPOINTS = sql(
    "SELECT n, thread, checkpoint_ns, checkpoint_id, parent_id, run_id, metadata, state, h FROM thread_checkpoints"
    " WHERE n > :after ORDER BY n LIMIT :limit"
)


def checkpoints(tx: Tx, after: int | None) -> CheckedPage:
    """One page of checkpoints: each is what its hash says, and nothing it needs is missing."""
    rows = tx.all(_CHECKPOINTS, after=-(2**62) if after is None else after, limit=_PAGE)
    flaws = []
    walked = _BlockIndex(tx)
    for n, thread, checkpoint_ns, *ids, metadata, state, h in rows:
        try:
            if thread_states.row_hash(checkpoint_ns, (ids[0], ids[1], ids[2]), metadata, state) != h:
                what = "a checkpoint is damaged or was edited"
            else:
                what = walked.lacks(thread, thread_states.decode(state).refs.values())
        except (HoldproofError, TypeError) as error:
            what = f"a checkpoint cannot be read: {error}"
        if what:
            flaws.append(ObjectFlaw("thread_checkpoints", str(n), what))
    return CheckedPage(len(rows), flaws, rows[-1][0] if len(rows) == _PAGE else None)


_WRITES = sql(
    "SELECT thread, checkpoint_ns, checkpoint_id, task_id, idx, value FROM thread_writes WHERE"
    " (thread, checkpoint_ns, checkpoint_id, task_id, idx) > (:thread, :checkpoint_ns, :checkpoint_id, :task_id, :idx)"
    " ORDER BY thread, checkpoint_ns, checkpoint_id, task_id, idx LIMIT :limit"
)


def writes(tx: Tx, after: tuple[Any, ...] | None) -> CheckedPage:
    """One page of what tasks wrote: nothing it needs is missing."""
    names = ("thread", "checkpoint_ns", "checkpoint_id", "task_id", "idx")
    # Smaller than every key, for the first page.
    first = dict(zip(names, after or (-1, "", "", "", -(2**31)), strict=True))
    rows = tx.all(_WRITES, **first, limit=_PAGE)
    flaws = []
    walked = _BlockIndex(tx)
    for *key, value in rows:
        try:
            what = walked.lacks(key[0], [thread_states.decode_ref(value)])
        except (HoldproofError, TypeError) as error:
            what = f"what a task wrote cannot be read: {error}"
        if what:
            flaws.append(ObjectFlaw("thread_writes", " ".join(map(str, key)), what))
    return CheckedPage(len(rows), flaws, tuple(rows[-1][:5]) if len(rows) == _PAGE else None)


class _BlockIndex:
    """Lists that were read to the end within a page, from their blocks and not from memory."""

    def __init__(self, tx: Tx) -> None:
        self._tx = tx
        self._lists: dict[tuple[int, Digest], tuple[Digest, ...]] = {}
        self._held: dict[tuple[int, Digest], None] = {}

    def lacks(self, thread: int, refs: Iterable[Ref]) -> str:
        """Return what is missing of values, empty if nothing is."""
        space = ThreadBlocks(self._tx, thread)
        digests = dict[Digest, None]()
        for ref in refs:
            if isinstance(ref, channel_values.BlockRef):
                digests[ref.digest] = None
            elif isinstance(ref, ListRef):
                digests.update(dict.fromkeys(ref.tail))
                if ref.root is not None:
                    elements = self._lists.get((thread, ref.root)) or channel_values.read_leaves(space, ref.root)
                    self._lists[thread, ref.root] = elements
                    digests.update(dict.fromkeys(elements))
                    if len(elements) != ref.size:
                        return "a list has another length than its checkpoint says"
        # Checkpoints of a thread share nearly all their blocks: each is looked for once a page.
        unchecked = [digest for digest in digests if (thread, digest) not in self._held]
        if missing := space.missing(unchecked):
            return f"a block is missing: {missing[0].hex()}"
        self._held.update(dict.fromkeys((thread, digest) for digest in unchecked))
        return ""
