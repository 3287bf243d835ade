"""Decide which keys of the second signature (ML-DSA-44) of a store this home can prove.

Rules:
- A key in the key folder counts, and one that signed a head which was kept here: nobody who has only the database can
  change those.
- Any other counts if its row matches its leaf, and the leaf is under a kept head that the home's log key signed, or
  under the newest head if that has a second signature by a key that counts. Whoever can make signatures of the log key
  must not be able to bring a key in.
- Where the home has no log key of its own, the keyring is believed, as for log keys.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import NamedTuple

from holdproof.crypto import checkpoint
from holdproof.crypto.checkpoint import LogCheckpoint, SignedCheckpoint
from holdproof.crypto.keys import PublicKey
from holdproof.crypto.ml_dsa import SIGNATURE_BYTES
from holdproof.crypto.vkey import ML_DSA_44, VerifierKey
from holdproof.db import Tx
from holdproof.errors import FormatError
from holdproof.evidence import keys as ring
from holdproof.evidence import log, statements
from holdproof.evidence.key_files import KeyFolder
from holdproof.model.keys import Key
from holdproof.upkeep.verification import trusted_keys

_TIME_BYTES = 8


class SecondKey(NamedTuple):
    """A key of the second signature: under which restore and at which index it came in, from where it is revoked."""

    public: PublicKey
    restores: int
    entry: int
    revoked_from: int | None

    def counts(self, size: int) -> bool:
        """Whether it is not revoked below that size."""
        return self.revoked_from is None or size <= self.revoked_from


def proven(tx: Tx, folder: KeyFolder, heads: Sequence[SignedCheckpoint]) -> list[SecondKey]:
    """Return the keys of the second signature, with an entry in the log, that this home can prove."""
    rows = [key for key in ring.keyring(tx, role="log-pq") if key.index is not None]
    local = {key.keyid for key in folder.every("log-pq")}
    if not folder.every("log"):
        return [*map(_second_key, rows)]
    signers = [each for each in map(ring.public, rows) if each.keyid in local or signed_any(each, heads)]
    anchors = {key.keyid for key in signers}
    proofs = _proving_heads(tx, folder, heads, signers)
    return [
        _second_key(row) for row in rows if row.keyid in anchors or trusted_keys.is_logged_under(tx, row.keyid, proofs)
    ]


def _proving_heads(
    tx: Tx, folder: KeyFolder, heads: Sequence[SignedCheckpoint], signers: Sequence[PublicKey]
) -> list[LogCheckpoint]:
    own = [folder.load("log").public] if folder.path("log").exists() else []
    newest = log.head(tx)
    proofs = trusted_keys.own_heads(tx, own, heads)
    # The newest head comes from the database: without a second signature it proves no key of that kind.
    is_proof = any(_is_signed_by(key, newest) for key in signers)
    return [each for each in proofs if is_proof or each != newest.checkpoint]


def _second_key(key: Key) -> SecondKey:
    assert key.index is not None, "a key whose entry is not in the tree was left out"
    _, restores = log.generation(_admitted_under(key))
    return SecondKey(ring.public(key), restores, key.index, key.revoked_from)


def _admitted_under(key: Key) -> str:
    """Return the origin of the log when the key came in, as the statement that admitted it says."""
    for line in key.statement.split("\n"):
        with suppress(FormatError):
            return statements.parse(line)[0].origin
    return ""


def signed_any(key: PublicKey, heads: Iterable[SignedCheckpoint]) -> bool:
    """Whether a key of this kind signed one of these heads."""
    return any(_is_signed_by(key, head) for head in heads if is_signed_twice(head))


def _is_signed_by(key: PublicKey, head: SignedCheckpoint) -> bool:
    origin = head.checkpoint.origin
    try:
        checkpoint.verify(head, origin=origin, log_keys=[VerifierKey(origin, ML_DSA_44, key)])
    except FormatError:  # ProofError is a kind of it
        return False
    return True


def is_signed_twice(head: SignedCheckpoint) -> bool:
    """Whether a head that was kept here has a second line under the log's own name; by whom does not matter."""
    return any(
        line.name == head.checkpoint.origin and len(line.signature) == _TIME_BYTES + SIGNATURE_BYTES
        for line in head.note.signatures
    )
