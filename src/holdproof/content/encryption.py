"""Encryption per subject: a person's content is encrypted under a key of that person; destroying the key erases it.

The envelope: `HFS` ‖ version 0x01 ‖ handle (16) ‖ nonce (12) ‖ AES-256-GCM ciphertext ‖ tag (16); magic, version and
handle are bound as associated data.

Rules:
- A subject has one random handle and one random key; the handle is all that envelopes, labels and leaves show.
- The name is stored only as HMAC-SHA-256 under a secret of the store (`store_facts`), enough to find the subject again.
- Erasing destroys key and hash and leaves a tombstone; reading the content raises ErasedError from then on.
- The same name used again after its erasure is a new subject.
- Keys are in no leaf, and backups omit keys and secret by default (`forget_keys`): destroying a key here then
  erases its content in every backup as well.
- A changed, truncated or foreign envelope is refused as a whole.
"""

import hmac
from hashlib import sha256
from typing import Final, NamedTuple

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from holdproof.db import OPENED, Row, Tx, sql
from holdproof.errors import ErasedError, FormatError, InvalidInputError, NotFoundError

MAGIC: Final = b"HFS\x01"
# Lengths in bytes.
_HANDLE = 16
_NONCE = 12
_TAG = 16
_KEY = 32
_HEAD = len(MAGIC) + _HANDLE
SECRET: Final = "subject_secret"  # noqa: S105 (the name of a fact)
TOPIC: Final = "subject"


class SubjectRecord(NamedTuple):
    """A subject as it is stored: without a name."""

    handle: str
    created_at: str
    erased_at: str | None
    ns: str


def seal(tx: Tx, subject: str, plaintext: bytes, *, ns: str = "main") -> bytes:
    """Encrypt content under the key of the named subject; creates the subject if it is new."""
    return seal_for(tx, label(tx, subject, ns=ns), plaintext)


def seal_for(tx: Tx, handle: str, plaintext: bytes) -> bytes:
    """Encrypt content under the key of the subject with this handle; ErasedError if it was erased."""
    head = MAGIC + bytes.fromhex(handle)
    nonce = tx.random(_NONCE)
    return head + nonce + AESGCM(_key(tx, handle)).encrypt(nonce, plaintext, head)


def open(tx: Tx, sealed: bytes) -> bytes:
    """Decrypt an envelope; ErasedError once its subject was erased, FormatError if it was changed."""
    handle = subject_of(sealed)
    head = sealed[:_HEAD]
    nonce = sealed[_HEAD : _HEAD + _NONCE]
    try:
        content = AESGCM(_key(tx, handle)).decrypt(nonce, sealed[_HEAD + _NONCE :], head)
    except InvalidTag as error:
        raise FormatError("the sealed content was changed", subject=handle) from error
    # Whoever gives it to somebody records that (evidence/accesses.py).
    tx.note(OPENED, handle)
    return content


def keyed_hash(tx: Tx, handle: str, data: bytes) -> str:
    """Return a hash that tells nothing without the subject's key: guesses cannot be tried once it is destroyed."""
    return hmac.new(_key(tx, handle), b"keyed-hash" + data, sha256).hexdigest()


def is_sealed(data: bytes) -> bool:
    """Return whether bytes look like an envelope."""
    return data.startswith(MAGIC) and len(data) >= _HEAD + _NONCE + _TAG


def subject_of(sealed: bytes) -> str:
    """Return the handle of the subject that an envelope belongs to."""
    if not is_sealed(sealed):
        raise FormatError("not sealed content, or of an unknown version", length=len(sealed))
    return sealed[len(MAGIC) : _HEAD].hex()


# FOR SHARE: waits for a running erasure of the subject; an erasure waits for transactions that label or encrypt.
_FIND = sql(
    "SELECT handle FROM subjects WHERE ns = :ns AND name_hash = :hash",
    postgres="SELECT handle FROM subjects WHERE ns = :ns AND name_hash = :hash FOR SHARE",
)


def find(tx: Tx, subject: str, *, ns: str = "main") -> str | None:
    """Return the handle of a subject, None if it is unknown or was erased."""
    row = tx.one(_FIND_READING, ns=ns, hash=_hash(_secret(tx), subject))
    if row is None:
        return None
    (handle,) = row
    return str(handle)


_FIND_READING = sql("SELECT handle FROM subjects WHERE ns = :ns AND name_hash = :hash")
_ADD = sql(
    "INSERT INTO subjects (handle, ns, name_hash, key, created_at) VALUES (:handle, :ns, :hash, :key, :now)"
    " ON CONFLICT (ns, name_hash) DO NOTHING"
)


def label(tx: Tx, subject: str, *, ns: str = "main") -> str:
    """Return the handle that rows of a subject carry; a new subject gets its key here, its leaf at the commit."""
    digest = _hash(_make_secret(tx), subject)
    row = tx.one(_FIND, ns=ns, hash=digest)
    if row is None:
        handle = tx.random(_HANDLE).hex()
        if tx.count(_ADD, handle=handle, ns=ns, hash=digest, key=tx.random(_KEY), now=tx.now):
            tx.note(TOPIC, handle)
            return handle
        # Another transaction created the subject in between, and has committed: the insert waited for it.
        row = tx.one(_FIND, ns=ns, hash=digest)
    assert row is not None, "the subject exists now"
    (existing,) = row
    return str(existing)


_KEY_OF = sql("SELECT key, erased_at FROM subjects WHERE handle = :handle")


def _key(tx: Tx, handle: str) -> bytes:
    """Return the key of a subject; ErasedError or NotFoundError without one."""
    row = tx.one(_KEY_OF, handle=handle)
    if row is None:
        raise NotFoundError("the subject of this content is not known here", subject=handle)
    key, erased_at = row
    if erased_at is not None:
        raise ErasedError("the content was erased with its subject", subject=handle, erased_at=erased_at)
    if key is None:
        raise NotFoundError("the subject's key was left out of the backup this store comes from", subject=handle)
    return bytes(key)


_DESTROY = sql(
    "UPDATE subjects SET key = NULL, name_hash = NULL, erased_at = :now WHERE handle = :handle AND erased_at IS NULL"
)
_GET = sql("SELECT handle, created_at, erased_at, ns FROM subjects WHERE handle = :handle")


_LOCK = sql(
    "SELECT erased_at FROM subjects WHERE handle = :handle",
    postgres="SELECT erased_at FROM subjects WHERE handle = :handle FOR UPDATE",
)


def lock(tx: Tx, handle: str) -> bool:
    """Let nobody label or encrypt for a subject before this transaction ends; return whether it was not erased."""
    row = tx.one(_LOCK, handle=handle)
    if row is None:
        return False
    (erased_at,) = row
    return erased_at is None


def destroy(tx: Tx, handle: str) -> bool:
    """Destroy a subject's key and hash; returns False if it was erased before or does not exist."""
    return tx.count(_DESTROY, handle=handle, now=tx.now) == 1


def get(tx: Tx, handle: str) -> SubjectRecord:
    """Return the record of a subject; NotFoundError if there is none."""
    row = tx.one(_GET, handle=handle)
    if row is None:
        raise NotFoundError("no such subject", subject=handle)
    return SubjectRecord(*row)


_LIVES = sql(
    "SELECT erased_at FROM subjects WHERE handle = :handle",
    postgres="SELECT erased_at FROM subjects WHERE handle = :handle FOR SHARE",
)


def check_alive(tx: Tx, handle: str) -> None:
    """Raise ErasedError if the subject was erased since it was labelled: nothing new may carry its handle."""
    row = tx.one(_LIVES, handle=handle)
    if row is None:
        raise NotFoundError("the subject of this content is not known here", subject=handle)
    (erased_at,) = row
    if erased_at is not None:
        raise ErasedError("the subject was erased meanwhile", subject=handle)


# --- which blocks are encrypted ------------------------------------------------------------------------------------

_MARK = sql(
    "INSERT INTO sealed_blocks (subject, cid, what) VALUES (:subject, :cid, :what)"
    " ON CONFLICT (subject, cid) DO NOTHING"
)
_MARKED = sql("SELECT what, count(*) FROM sealed_blocks WHERE subject = :subject GROUP BY what ORDER BY what")


def mark(tx: Tx, handle: str, cid: str, what: str) -> None:
    """Record that a block is encrypted for a subject, so that its erasure can report what became unreadable."""
    tx.execute(_MARK, subject=handle, cid=cid, what=what)


def marked(tx: Tx, handle: str) -> dict[str, int]:
    """Count the blocks encrypted for a subject, by kind."""
    return {what: int(count) for what, count in tx.all(_MARKED, subject=handle)}


# --- keys in backups ---------------------------------------------------------------------------------------------

_FORGET_KEYS = sql("UPDATE subjects SET key = NULL, name_hash = NULL WHERE key IS NOT NULL OR name_hash IS NOT NULL")
_FORGET_SECRET = sql("DELETE FROM store_facts WHERE key = :key")


def forget_keys(tx: Tx) -> int:
    """Remove all keys, hashes and the secret from the copy that becomes a backup; returns the number of subjects."""
    tx.execute(_FORGET_SECRET, key=SECRET)
    return tx.count(_FORGET_KEYS)


class SubjectKeys(NamedTuple):
    """All keys of a store's subjects, as a restore copies them."""

    secret: str | None
    rows: list[Row]


_LIVING = sql("SELECT handle, name_hash, key FROM subjects WHERE key IS NOT NULL")


def keys(tx: Tx) -> SubjectKeys:
    """Return the keys of all subjects that were not erased."""
    return SubjectKeys(_secret(tx).hex() or None, tx.all(_LIVING))


_TAKE = sql(
    "UPDATE subjects SET key = :key, name_hash = :hash WHERE handle = :handle AND key IS NULL AND erased_at IS NULL"
)


def take_over(tx: Tx, living: SubjectKeys) -> None:
    """Restore the keys of subjects that have none in this store and were not erased."""
    own_secret = _secret(tx).hex() or None
    if own_secret is None and living.secret is not None:
        tx.execute(_KEEP_SECRET, key=SECRET, value=living.secret, now=tx.now)
    # Name hashes under another secret would match no name.
    if own_secret in (None, living.secret):
        tx.many(_TAKE, [{"handle": handle, "hash": digest, "key": key} for handle, digest, key in living.rows])


_KEYLESS = sql("SELECT count(*) FROM subjects WHERE key IS NULL AND erased_at IS NULL")


def keyless(tx: Tx) -> int:
    """Count the subjects that have no key although they were not erased."""
    [(count,)] = tx.all(_KEYLESS)
    return int(count)


# --- the store's secret, under which names are hashed --------------------------------------------------------------

_KEEP_SECRET = sql(
    "INSERT INTO store_facts (key, value, updated_at) VALUES (:key, :value, :now) ON CONFLICT (key) DO NOTHING"
)


def _make_secret(tx: Tx) -> bytes:
    """Return the store's secret; creates it at first use."""
    secret = _secret(tx)
    if not secret:
        tx.execute(_KEEP_SECRET, key=SECRET, value=tx.random(_KEY).hex(), now=tx.now)
        # Read again: another transaction's secret may have been first, and then counts.
        secret = _secret(tx)
    return secret


_SECRET = sql("SELECT value FROM store_facts WHERE key = :key")


def _secret(tx: Tx) -> bytes:
    """Return the store's secret, empty before its first use."""
    row = tx.one(_SECRET, key=SECRET)
    if row is None:
        return b""
    (value,) = row
    return bytes.fromhex(value)


def derive(tx: Tx, purpose: str, data: str) -> bytes:
    """Return 256 bits that only this store can compute, and computes again; other ones in a copy without its secret."""
    # 0xff starts no UTF-8 text, so that no subject's name has such a hash.
    return hmac.new(_make_secret(tx), b"\xff" + f"{purpose}\0{data}".encode(), sha256).digest()


def _hash(secret: bytes, subject: str) -> str:
    if not subject.strip() or len(subject) > 1024:
        raise InvalidInputError("a subject is a text that is not empty, 1,024 characters at most")
    # Without a secret there is no subject yet: any hash will do, it matches none.
    return hmac.new(secret or b"none", subject.encode(), sha256).hexdigest()
