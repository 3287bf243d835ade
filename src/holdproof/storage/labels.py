"""Labels: whose a blob or a session is, so that it can be erased with that person.

A subject has one random handle, and rows carry nothing else. Its name is kept only as HMAC-SHA-256 under a secret of
the database, enough to find the subject again; the same name seen after its erasure is a new subject.
"""

import hmac
from hashlib import sha256
from typing import Final

from holdproof.db import Tx, sql
from holdproof.errors import ConflictError, InvalidInputError

_LONGEST: Final = 1024
_SECRET = sql("SELECT secret FROM subject_facts WHERE one = 1")


def check(name: object) -> None:
    """InvalidInputError for what is no name of a subject."""
    if not isinstance(name, str) or not name.strip() or len(name) > _LONGEST:
        raise InvalidInputError("a subject is a text that is not empty, 1,024 characters at most", field="subject")


def _hash(tx: Tx, name: str) -> str:
    check(name)
    [(secret,)] = tx.all(_SECRET)
    return hmac.new(bytes.fromhex(secret), name.encode("utf-8", "surrogatepass"), sha256).hexdigest()


# FOR SHARE: an erasure under way is waited for, and waits for whoever labels right now.
_LABEL = sql(
    "SELECT handle FROM service_subjects WHERE name_hash = :hash",
    postgres="SELECT handle FROM service_subjects WHERE name_hash = :hash FOR SHARE",
)
_ADD = sql(
    "INSERT INTO service_subjects (handle, name_hash, created_at) VALUES (:handle, :hash, :now)"
    " ON CONFLICT (name_hash) DO NOTHING"
)


def label(tx: Tx, name: str) -> str:
    """The handle that rows of a subject carry, who is made known at first sight."""
    digest = _hash(tx, name)
    if tx.one(_LABEL, hash=digest) is None:
        tx.execute(_ADD, handle=tx.random(16).hex(), hash=digest, now=tx.now)
    row = tx.one(_LABEL, hash=digest)
    if row is None:
        raise ConflictError("the subject was erased at this very moment; do it again")
    return str(row[0])


_FIND = sql("SELECT handle FROM service_subjects WHERE name_hash = :hash")


def find(tx: Tx, name: str) -> str | None:
    """The handle of a subject, None for one that is not known (or was erased)."""
    row = tx.one(_FIND, hash=_hash(tx, name))
    return None if row is None else str(row[0])


_COUNTS = sql(
    "SELECT (SELECT count(*) FROM blobs WHERE subject = :handle),"
    " (SELECT count(*) FROM cli_sessions WHERE subject = :handle)"
)


def counts(tx: Tx, handle: str) -> dict[str, int]:
    """How many rows carry a label."""
    [(blobs, sessions)] = tx.all(_COUNTS, handle=handle)
    return {"blobs": int(blobs), "sessions": int(sessions)}
