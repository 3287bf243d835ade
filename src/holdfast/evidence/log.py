"""The log: one append-only Merkle tree over everything that matters, its head signed once a commit.

Rules:
- On SQLite leaves are integrated and one head signed inside the group's own commit (`Log.integrate`).
- A head is shown to anybody only once it is durable (`Log.publish`).
- On PostgreSQL leaves wait in `log_pending`; the elected sequencer integrates every committed one (sequencer.py).
"""

from collections.abc import Callable
from typing import Final

from holdfast.crypto import checkpoint, tiles
from holdfast.crypto.checkpoint import Checkpoint, SignedCheckpoint
from holdfast.crypto.keys import Signer
from holdfast.crypto.tiles import Bundle
from holdfast.crypto.tlog_proof import TlogProof
from holdfast.db import Notes, Tx, sql
from holdfast.errors import NotFoundError
from holdfast.evidence import leaves, tree

HEAD: Final = "head"


class Log:
    """What signs heads: the hooks of one open store."""

    def __init__(self, signer: Signer, publish: Callable[[str], None]) -> None:
        self._signer, self._publish = signer, publish

    def sign(self, head: Checkpoint) -> str:
        """A head as a signed note."""
        return checkpoint.sign(head, self._signer).encode().decode()

    def integrate(self, tx: Tx) -> None:
        """Before commit: the group's leaves become part of the tree, under one signed head."""
        fresh = tx.notes.get(leaves.TOPIC)
        if fresh:
            tx.note(HEAD, tree.integrate(tx, fresh, self.sign))

    def publish(self, notes: Notes) -> None:
        """After commit: the head is durable and may be shown."""
        for head in notes.get(HEAD, ()):
            self._publish(head)


def head(tx: Tx) -> SignedCheckpoint:
    """The newest signed head."""
    text = tree.state(tx).head
    if not text:
        raise NotFoundError("nothing has been logged yet")
    return checkpoint.parse(text.encode())


_FIND = sql("SELECT idx, leaf FROM log_leaves WHERE id = :id AND ver = :ver")
_NEWEST = sql("SELECT idx, leaf FROM log_leaves WHERE id = :id ORDER BY ver DESC LIMIT 1")


def find(tx: Tx, leaf_id: str, ver: int | None = None) -> tuple[int, str]:
    """Index and text of a record's leaf: of that version, or the newest."""
    row = tx.one(_NEWEST, id=leaf_id) if ver is None else tx.one(_FIND, id=leaf_id, ver=ver)
    if row is None:
        raise NotFoundError("no such leaf is under a signed head", leaf_id=leaf_id, ver=ver)
    return row[0], row[1]


def prove(tx: Tx, leaf_id: str, *, ver: int | None = None) -> TlogProof:
    """That a leaf stands in the tree under the newest head: checkable offline, with the log's public key."""
    index, text = find(tx, leaf_id, ver)
    newest = head(tx)
    path = tree.prove_inclusion(tx, index, newest.checkpoint.size)
    return TlogProof(index=index, proof=path, head=newest, extra=text.encode())


def prove_consistency(tx: Tx, old: int, *, new: int | None = None) -> tuple[bytes, ...]:
    """That the tree of size `new` (the newest) continues the one of size `old`."""
    return tree.prove_consistency(tx, old, tree.state(tx).size if new is None else new)


def tile(tx: Tx, path: str) -> bytes:
    """A tile or a bundle of entries, by its tlog-tiles path."""
    named = tiles.parse_path(path)
    return tiles.encode_bundle(tree.entries(tx, named)) if isinstance(named, Bundle) else tree.fetch(tx, named)
