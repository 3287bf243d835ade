"""Decide whose second signature (ML-DSA-44) a restore demands under the head of a copy.

Whoever made the copy wrote its keyring, so that can add to what is demanded and never take from it.

Rules:
- The second signature is demanded of a copy where the store here has such a key whose entry is below the copy's size,
  and where the newest kept head that is not above the copy's own has one. A copy from before the first such key
  restores without.
- The keys that count are those this home can prove (second_keys.py), and those in its key folder. One that the store
  here revoked below the copy's size does not.
- Keys of this kind that the caller names replace all of that.
- A home without keys of the store and without kept heads believes the copy, as it does for the first signature.
"""

from collections.abc import Sequence

from holdproof.crypto import checkpoint
from holdproof.crypto.checkpoint import SignedCheckpoint
from holdproof.crypto.keys import PublicKey
from holdproof.crypto.vkey import ML_DSA_44, VerifierKey
from holdproof.errors import ProofError
from holdproof.evidence import log
from holdproof.upkeep.backups.restore_log import ReplacedStore
from holdproof.upkeep.verification import second_keys
from holdproof.upkeep.verification.log_check import StoreParts

_Position = tuple[int, int]
"""A place in the history of a store: how many restores came before, then a size of its log."""


def demanded(parts: StoreParts, current: ReplacedStore, named: Sequence[PublicKey]) -> list[PublicKey] | None:
    """Return the keys of which one has to have signed the copy's head as well; None where no such signature is due."""
    if named:
        return [*named]
    size = parts.state.size
    store, restores = log.generation(parts.state.origin)
    heads = [head for head in current.heads if log.generation(head.checkpoint.origin)[0] == store]
    keyring = current.second_keys if current.store_id == parts.store_id else []
    since = [(key.restores, key.entry) for key in keyring if key.counts(size)]
    if not any(entry < (restores, size) for entry in since) and not _was_signed_twice(heads, (restores, size)):
        return None
    revoked = {key.public.keyid for key in keyring if not key.counts(size)}
    copied = [key.public for key in parts.second_keys if second_keys.signed_any(key.public, heads)]
    able = [*(key.public for key in keyring), *current.local_second_keys, *copied]
    return list({key.keyid: key for key in able if key.keyid not in revoked}.values())


def _was_signed_twice(heads: Sequence[SignedCheckpoint], at: _Position) -> bool:
    """Whether the newest of these heads that is not above that position has a second signature."""
    newest = max((head for head in heads if _position(head) <= at), key=_position, default=None)
    return newest is not None and second_keys.is_signed_twice(newest)


def _position(head: SignedCheckpoint) -> _Position:
    return log.generation(head.checkpoint.origin)[1], head.checkpoint.size


def check(parts: StoreParts, keys: Sequence[PublicKey], trust: str) -> None:
    """Refuse a copy whose head none of these keys signed."""
    head = checkpoint.parse(parts.state.head.encode())
    origin = parts.state.origin
    try:
        checkpoint.verify(head, origin=origin, log_keys=[VerifierKey(origin, ML_DSA_44, key) for key in keys])
    except ProofError as error:
        raise ProofError(
            "heads of this store are signed with ML-DSA-44 too, and that of the copy is not signed so by a key that"
            f" {trust} can prove: pass --key with the id of that key if you trust it",
            keys=[key.keyid for key in keys],
        ) from error
