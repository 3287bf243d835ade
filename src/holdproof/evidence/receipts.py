"""Receipts: proofs of entries in the format of SCITT (RFC 9942), for verifiers that know nothing of Holdproof.

Rules:
- A receipt is signed only for an entry that is proven under the signed head first: an edited database gets none.
- Only with the log key of this store that counts under that head: a key that was rotated out or revoked signs none.
- Signing one changes nothing in the store.
"""

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from holdproof.crypto import cose_receipt, merkle, tlog_proof
from holdproof.crypto.cose_receipt import Inclusion
from holdproof.crypto.keys import Signer
from holdproof.crypto.tlog_proof import TlogProof
from holdproof.crypto.vkey import VerifierKey
from holdproof.db import Call, Read, Tx, Work, ask
from holdproof.errors import UnknownKeyError
from holdproof.evidence import log, tree
from holdproof.store.context import Context


@dataclass(frozen=True, slots=True)
class Receipt:
    """The receipt of one entry: `file` is the COSE message, `entry` the bytes that it is of."""

    index: int
    size: int
    origin: str
    keyid: str
    entry: str
    file: bytes


class _Proven(NamedTuple):
    """A proof, and the log keys that count under its head."""

    proof: TlogProof
    keys: tuple[VerifierKey, ...]


def receipt(context: Context, leaf_id: str, version: int | None = None) -> Work[Receipt]:
    """Return the COSE receipt of a record's entry: of that version, or of the newest.

    NotFoundError where the entry is not under a signed head, UnknownKeyError where the log key is not here.
    """
    proven: _Proven = yield from ask(Read(partial(_prove, leaf_id=leaf_id, version=version)))
    signer: Signer = yield from ask(Call(partial(context.keys.load, "log")))
    checkpoint = proven.proof.head.checkpoint
    if signer.keyid not in {key.public.keyid for key in proven.keys}:
        raise UnknownKeyError("the log key of this home does not count under the newest head", keyid=signer.keyid)
    inclusion = Inclusion(proven.proof.index, checkpoint.size, proven.proof.proof, checkpoint.root)
    sign = partial(cose_receipt.encode, inclusion, signer, issuer=checkpoint.origin, subject=leaf_id)
    data: bytes = yield from ask(Call(sign))
    entry = proven.proof.extra.decode()
    return Receipt(inclusion.index, inclusion.size, checkpoint.origin, signer.keyid, entry, data)


def _prove(tx: Tx, leaf_id: str, version: int | None) -> _Proven:
    """Prove an entry under the signed head; ProofError where tree or head do not vouch for it."""
    proof = log.prove(tx, leaf_id, version)
    checkpoint = proof.head.checkpoint
    keys = tree.verifiers(tx, size=checkpoint.size, origin=checkpoint.origin)
    tlog_proof.verify(proof, merkle.leaf_hash(proof.extra), origin=checkpoint.origin, log_keys=keys)
    return _Proven(proof, tuple(keys))
