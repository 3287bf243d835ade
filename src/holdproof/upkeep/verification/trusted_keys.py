"""Decide which keys of a store this home can prove: a database that somebody edited must not prove itself.

Rules:
- A key in the key folder counts by itself.
- Any other key counts if its row matches its leaf, and the leaf is under a head that the log key of this home signed,
  the newest or a kept one: a key that somebody inserted into the keyring proves nothing.
"""

from collections.abc import Sequence
from contextlib import suppress

from holdproof.crypto import checkpoint, merkle
from holdproof.crypto.checkpoint import LogCheckpoint, SignedCheckpoint
from holdproof.crypto.keys import PublicKey
from holdproof.crypto.vkey import ED25519, VerifierKey
from holdproof.db import Tx
from holdproof.errors import FormatError, InvalidInputError, NotFoundError
from holdproof.evidence import keys as ring
from holdproof.evidence import log, logged_tables, tree
from holdproof.evidence.key_files import KeyFolder
from holdproof.upkeep import kernel_tables
from holdproof.upkeep.verification import log_check
from holdproof.upkeep.verification.log_check import LogKey
from holdproof.upkeep.verification.row_check import judge


def log_keys(tx: Tx, folder: KeyFolder, heads: Sequence[SignedCheckpoint]) -> list[LogKey]:
    """Return the log keys of a store that this home can prove; all of them where it has no log key of its own."""
    keyring = log_check.log_keys(tx)
    here = {key.keyid for key in folder.every("log")}
    if not here:
        return keyring
    own = [folder.load("log").public] if folder.path("log").exists() else []
    return [key for key in keyring if key.public.keyid in here or is_proven(tx, key.public.keyid, own, heads)]


def is_proven(tx: Tx, keyid: str, own: Sequence[PublicKey], heads: Sequence[SignedCheckpoint]) -> bool:
    """Whether a key's row matches its leaf, and the leaf is under a head that one of our own keys signed."""
    table = kernel_tables.LOGGED["keyring"]
    row = tx.one(table.one, key=keyid)
    if row is None or judge(table, row) is not None:
        return False
    logged = logged_tables.logged_row(row)
    if logged.leaf_index is None or logged.leaf is None:
        return False
    leaf = merkle.leaf_hash(logged.leaf.encode())
    index = int(logged.leaf_index)
    return any(_stands_under(tx, leaf, index, head) for head in _own_heads(tx, own, heads))


def signer_of(tx: Tx, head: SignedCheckpoint) -> list[PublicKey]:
    """Return the log keys of the keyring that signed a head."""
    origin = head.checkpoint.origin
    signers = []
    for key in log_check.log_keys(tx):
        with suppress(FormatError):
            checkpoint.verify(head, origin=origin, log_keys=[VerifierKey(origin, ED25519, key.public)])
            signers.append(key.public)
    return signers


def vouches(tx: Tx, own: Sequence[PublicKey], heads: Sequence[SignedCheckpoint]) -> bool:
    """Whether this home can vouch for the newest head: one of its keys signed it, or proves the key that did.

    Beside its own keys the signer of the oldest head that was kept of this store counts: that is whom this home
    believed when it first saw the store, and nobody who has only the database can change it.
    """
    store, _ = log.generation(tree.state(tx).origin)
    oldest = next((each for each in heads if log.generation(each.checkpoint.origin)[0] == store), None)
    anchors = [*own, *(signer_of(tx, oldest) if oldest is not None else ())]
    anchor_ids = {key.keyid for key in anchors}
    signers = signer_of(tx, log.head(tx))
    return any(key.keyid in anchor_ids or is_proven(tx, key.keyid, anchors, heads) for key in signers)


def _own_heads(tx: Tx, own: Sequence[PublicKey], heads: Sequence[SignedCheckpoint]) -> list[LogCheckpoint]:
    """Return the newest head and the kept ones, as far as our own keys signed them."""
    origins = ring.origins(tx)
    signed: list[LogCheckpoint] = []
    # The newest kept heads first: they cover most leaves.
    for head in (log.head(tx), *reversed(heads)):
        origin = head.checkpoint.origin
        with suppress(FormatError):
            checkpoint.verify(head, origin=origin, log_keys=[VerifierKey(origin, ED25519, key) for key in own])
            signed.append(head.checkpoint)
    return [each for each in signed if each.origin in origins]


def _stands_under(tx: Tx, leaf: bytes, index: int, head: LogCheckpoint) -> bool:
    try:
        path = tree.prove_inclusion(tx, index, head.size)
        merkle.verify_inclusion(leaf, index, head.size, path, head.root)
    except (FormatError, NotFoundError, InvalidInputError):
        return False
    return True
