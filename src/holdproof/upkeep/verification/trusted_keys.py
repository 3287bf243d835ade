"""Which keys of a store this home vouches for: a database that somebody wrote to must not vouch for itself.

Rules:
- A key that lies in the key folder counts by itself.
- Any other key counts if its row matches its leaf, and the leaf stands under a head that the log key of this home
  signed, the newest or one kept here: whoever puts a key into the keyring, or another in its place, proves nothing.
"""

from collections.abc import Sequence
from contextlib import suppress

from holdproof.crypto import checkpoint, merkle
from holdproof.crypto.checkpoint import Checkpoint, SignedCheckpoint
from holdproof.crypto.keys import PublicKey
from holdproof.crypto.vkey import ED25519, VerifierKey
from holdproof.db import Tx
from holdproof.errors import FormatError, InvalidInputError, NotFoundError
from holdproof.evidence import keys as ring
from holdproof.evidence import log, logged_tables, tree
from holdproof.evidence.key_files import KeyFolder
from holdproof.upkeep.verification import log_check
from holdproof.upkeep.verification.log_check import LogKey
from holdproof.upkeep.verification.row_check import judge


def log_keys(tx: Tx, folder: KeyFolder, kept: Sequence[SignedCheckpoint]) -> list[LogKey]:
    """The log keys of a store that this home vouches for; all of them where it has no log key of its own."""
    known, here = log_check.log_keys(tx), {key.keyid for key in folder.every("log")}
    if not here:
        return known
    own = [folder.load("log").public] if folder.path("log").exists() else []
    return [key for key in known if key.public.keyid in here or is_proven(tx, key.public.keyid, own, kept)]


def is_proven(tx: Tx, keyid: str, own: Sequence[PublicKey], kept: Sequence[SignedCheckpoint]) -> bool:
    """Whether a key's row matches its leaf, and the leaf stands under a head that one of our own keys signed."""
    table = logged_tables.COVERED["keyring"]
    row = tx.one(table.one, key=keyid)
    if row is None or row[4] is None or judge(table, row) is not None:
        return False
    leaf, index = merkle.leaf_hash(row[5].encode()), int(row[4])
    return any(_stands_under(tx, leaf, index, head) for head in _own_heads(tx, own, kept))


def _own_heads(tx: Tx, own: Sequence[PublicKey], kept: Sequence[SignedCheckpoint]) -> list[Checkpoint]:
    """The newest head and those kept here, as far as our own keys signed them: a file is hard to forge."""
    known, found = ring.origins(tx), list[Checkpoint]()
    for head in (log.head(tx), *reversed(kept)):
        origin = head.checkpoint.origin
        with suppress(FormatError):
            checkpoint.verify(head, origin=origin, log_keys=[VerifierKey(origin, ED25519, key) for key in own])
            found.append(head.checkpoint)
    return [each for each in found if each.origin in known]


def _stands_under(tx: Tx, leaf: bytes, index: int, head: Checkpoint) -> bool:
    try:
        path = tree.prove_inclusion(tx, index, head.size)
        merkle.verify_inclusion(leaf, index, head.size, path, head.root)
    except (FormatError, NotFoundError, InvalidInputError):
        return False
    return True
