"""Check the log of a copied store: the root of its leaves is that of its signed head, under a trusted key."""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from holdproof.crypto import canonical, checkpoint, frontier, keys, merkle
from holdproof.crypto.keys import PublicKey
from holdproof.crypto.vkey import ED25519, ML_DSA_44, VerifierKey
from holdproof.db import Tx, sql
from holdproof.errors import CorruptError, FormatError, NotFoundError, ProofError
from holdproof.evidence import tree
from holdproof.evidence.tree import LogState

if TYPE_CHECKING:
    from holdproof.model.backup import Manifest

_PAGE = 4096


class LogKey(NamedTuple):
    """A log key of a store's keyring, and from which size of the log on it is revoked."""

    public: PublicKey
    revoked_from: int | None


class StoreParts(NamedTuple):
    """A copied store's id, log state, log keys, and its leaves in order."""

    store_id: str
    state: LogState
    keys: list[LogKey]
    second_keys: list[VerifierKey]
    """The ML-DSA-44 keys of which one has to have signed the head as well; none where the store has no such key."""
    leaves: Iterable[str]


_STORE_ID = sql("SELECT value FROM store_facts WHERE key = 'store_id'")


def store_id(tx: Tx) -> str:
    """Return the id of the store, as its database records it; NotFoundError for another database."""
    row = tx.one(_STORE_ID)
    if row is None:
        raise NotFoundError("that database belongs to no store")
    (value,) = row
    return str(value)


def store_id_or_unknown(tx: Tx) -> str:
    """Return the id of the store for an alert, which damage must not prevent."""
    try:
        return store_id(tx)
    except NotFoundError:
        return "unknown"


_FIRST = sql("SELECT leaf FROM log_leaves WHERE idx = 0")


def first_time(tx: Tx) -> str:
    """Return the time of the log's first entry; empty where it cannot be read."""
    row = tx.one(_FIRST)
    if row is None:
        return ""
    (text,) = row
    try:
        leaf: Any = canonical.loads(text.encode())
        return str(leaf["ts"])
    except (FormatError, KeyError, TypeError, AttributeError):
        return ""


_ROOTS = sql("SELECT keyid FROM keyring WHERE role = 'root' AND revoked_from IS NULL ORDER BY keyid")
_COSIGNERS = sql("SELECT url, head FROM log_cosignatures ORDER BY url")


def signers(tx: Tx) -> list[str]:
    """Return whose signatures the newest head rests on: log keys, root keys, and witnesses with the size they saw."""
    state = tree.state(tx)
    signed = checkpoint.parse(state.head.encode())
    able = []
    for key in tree.verifiers(tx):
        with suppress(ProofError):
            checkpoint.verify(signed, origin=state.origin, log_keys=[key])
            able.append(f"log key {key.public.keyid}{' (ML-DSA-44)' if key.kind == ML_DSA_44 else ''}")
    roots = [f"root key {keyid}" for (keyid,) in tx.all(_ROOTS)]
    witnesses = [f"witness {url}, up to entry {_size_of(head)}" for url, head in tx.all(_COSIGNERS)]
    return [*able, *roots, *witnesses]


def _size_of(head: str) -> int:
    return checkpoint.parse(head.encode()).checkpoint.size


def parts(tx: Tx) -> StoreParts:
    """Read the parts of a store from its database; leaves are read while they are iterated."""
    name = store_id(tx)
    state = tree.state(tx)
    second_keys = [key for key in tree.verifiers(tx) if key.kind == ML_DSA_44]
    return StoreParts(name, state, log_keys(tx), second_keys, _leaves(tx, state.size))


_LOG_KEYS = sql("SELECT public, revoked_from FROM keyring WHERE role = 'log'")


def log_keys(tx: Tx) -> list[LogKey]:
    """Return every log key a store ever had."""
    return [LogKey(keys.load_public_pem(pem.encode()), revoked) for pem, revoked in tx.all(_LOG_KEYS)]


def active_keys(log_keys: Iterable[LogKey], size: int) -> list[PublicKey]:
    """Return the keys whose signature counts for a log of that size."""
    return [key for key, revoked in log_keys if revoked is None or size <= revoked]


_LEAVES = sql("SELECT leaf FROM log_leaves WHERE idx >= :first AND idx < :end ORDER BY idx")


def _leaves(tx: Tx, size: int) -> Iterator[str]:
    for first in range(0, size, _PAGE):
        yield from (leaf for (leaf,) in tx.all(_LEAVES, first=first, end=min(size, first + _PAGE)))


def check(parts: StoreParts, trusted: Iterable[PublicKey]) -> None:
    """Refuse a log whose leaves do not give the root of its head, or whose head none of these keys signed."""
    state = parts.state
    head = checkpoint.parse(state.head.encode())
    grown = _grow(parts.leaves)
    signed = head.checkpoint
    # The leaves must give both the stored right edge and the root under the signature.
    if grown.to_bytes() != state.frontier or (grown.size, grown.root()) != (signed.size, signed.root):
        raise CorruptError("the log's leaves do not give the root of its head", size=state.size, leaves=grown.size)
    if signed.origin != state.origin:
        raise ProofError("the head is of another log", found=signed.origin, expected=state.origin)
    named = [VerifierKey(state.origin, ED25519, key) for key in trusted if key.alg == "ed25519"]
    checkpoint.verify(head, origin=state.origin, log_keys=named)
    # By itself: these keys are only what the copy says, so they can add to what is trusted and never replace it.
    if parts.second_keys:
        checkpoint.verify(head, origin=state.origin, log_keys=parts.second_keys)


def agree(parts: StoreParts, manifest: "Manifest", trusted: Iterable[PublicKey]) -> None:
    """Do the same, and refuse a database whose log is not the one in its manifest."""
    check(parts, trusted)
    expected = (manifest.store_id, manifest.origin, manifest.size, manifest.head)
    if (parts.store_id, parts.state.origin, parts.state.size, parts.state.head) != expected:
        raise CorruptError("the backup's database is not the one that its manifest describes")


def _grow(leaves: Iterable[str]) -> frontier.Frontier:
    grown = frontier.EMPTY
    batch: list[bytes] = []
    for text in leaves:
        batch.append(text.encode())
        if len(batch) == _PAGE:
            grown = frontier.append(grown, merkle.leaf_hashes(batch)).frontier
            batch.clear()
    return frontier.append(grown, merkle.leaf_hashes(batch)).frontier
