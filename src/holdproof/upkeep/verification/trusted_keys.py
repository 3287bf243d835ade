"""Decide which keys of a store this home can prove: a database that somebody edited must not prove itself.

Rules:
- A key in the key folder counts by itself.
- Any other key counts if its row matches its leaf, and the leaf is under a head that the log key of this home signed,
  the newest or a kept one: a key that somebody inserted into the keyring proves nothing.
- For the newest head a chain of statements counts as well: a key that a key of this home or a proven root key admitted,
  or one that these admitted. So a log key that was rotated on another machine is known here.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from holdproof.crypto import checkpoint, dsse, merkle
from holdproof.crypto.checkpoint import LogCheckpoint, SignedCheckpoint
from holdproof.crypto.keys import PublicKey
from holdproof.crypto.statement import PAYLOAD_TYPE
from holdproof.crypto.vkey import ED25519, VerifierKey
from holdproof.db import Tx
from holdproof.errors import FormatError, InvalidInputError, NotFoundError
from holdproof.evidence import keys as ring
from holdproof.evidence import log, logged_tables, statements, tree
from holdproof.evidence.key_files import KeyFolder
from holdproof.lazy import lazy_module
from holdproof.model.keys import Key
from holdproof.upkeep.verification import log_check
from holdproof.upkeep.verification.log_check import LogKey

if TYPE_CHECKING:
    from holdproof.upkeep import kernel_tables
    from holdproof.upkeep.verification import row_check
else:
    kernel_tables = lazy_module("holdproof.upkeep.kernel_tables")
    row_check = lazy_module("holdproof.upkeep.verification.row_check")

_ADMISSIONS: Final = ("admit", "rotate", "readmit")


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
    return is_logged_under(tx, keyid, own_heads(tx, own, heads))


def is_logged_under(tx: Tx, keyid: str, heads: Sequence[LogCheckpoint]) -> bool:
    """Whether a key's row matches its leaf, and the leaf is under one of these heads."""
    table = kernel_tables.LOGGED["keyring"]
    row = tx.one(table.one, key=keyid)
    if row is None or row_check.judge(table, row) is not None:
        return False
    logged = logged_tables.logged_row(row)
    if logged.leaf_index is None or logged.leaf is None:
        return False
    leaf = merkle.leaf_hash(logged.leaf.encode())
    index = int(logged.leaf_index)
    return any(_stands_under(tx, leaf, index, head) for head in heads)


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
    if any(key.keyid in anchor_ids or is_proven(tx, key.keyid, anchors, heads) for key in signers):
        return True
    return bool(_admitted(tx, anchors, heads) & {key.keyid for key in signers})


def _admitted(tx: Tx, anchors: Sequence[PublicKey], heads: Sequence[SignedCheckpoint]) -> set[str]:
    """Return the ids of the keys that a chain of signed statements leads to, from our own keys and proven roots."""
    flawed = ring.flaws(tx)
    keyring = [key for key in ring.keyring(tx) if key.keyid not in flawed and key.role in ("log", "root")]
    log_signers = {each.keyid: each for each in anchors}
    roots = [key for key in keyring if key.role == "root" and is_proven(tx, key.keyid, anchors, heads)]
    root_signers = {key.keyid: ring.public(key) for key in roots}
    # A statement is checked against keys admitted before it, so each round can lead one step further.
    while True:
        # A root key follows another root key only; a log key a log key or root.
        signers = {"root": [*root_signers.values()], "log": [*root_signers.values(), *log_signers.values()]}
        others = [each for each in keyring if each.keyid not in log_signers | root_signers]
        added = [each for each in others if _is_admitted(each, signers[each.role])]
        if not added:
            return {*log_signers}
        log_signers |= {key.keyid: ring.public(key) for key in added if key.role == "log"}
        root_signers |= {key.keyid: ring.public(key) for key in added if key.role == "root"}


def _is_admitted(key: Key, signers: Sequence[PublicKey]) -> bool:
    """Whether one of these keys signed the statement that admitted, or re-admitted, a key."""
    for line in key.statement.split("\n"):
        with suppress(FormatError):  # the first log key has no statement; ProofError is a kind of it
            stated, envelope = statements.parse(line)
            if stated.action in _ADMISSIONS and stated.public.keyid == key.keyid:
                dsse.verify(envelope, signers, payload_type=PAYLOAD_TYPE)
                return True
    return False


def own_heads(tx: Tx, own: Sequence[PublicKey], heads: Sequence[SignedCheckpoint]) -> list[LogCheckpoint]:
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
