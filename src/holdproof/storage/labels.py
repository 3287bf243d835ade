"""Labels: the subject of a blob or a session, so that it can be erased with that subject.

A subject has one random handle, and rows have nothing else. Its name is stored only as HMAC-SHA-256 under a secret of
the database, enough to find the subject again; the same name after its erasure is a new subject.
"""

import hmac
from hashlib import sha256
from typing import Final

from holdproof.db import Tx, sql
from holdproof.errors import ConflictError, InvalidInputError

_LONGEST: Final = 1024
_SECRET = sql("SELECT secret FROM subject_facts WHERE one = 1")


def check(name: object) -> None:
    """Raise InvalidInputError unless this can be the name of a subject."""
    if not isinstance(name, str) or not name.strip() or len(name) > _LONGEST:
        raise InvalidInputError("a subject is a text that is not empty, 1,024 characters at most", field="subject")


def _hash(tx: Tx, name: str) -> str:
    check(name)
    [(secret,)] = tx.all(_SECRET)
    return hmac.new(bytes.fromhex(secret), name.encode("utf-8", "surrogatepass"), sha256).hexdigest()


# FOR SHARE: an erasure and a transaction that labels rows wait for each other.
_LABEL = sql(
    "SELECT handle FROM service_subjects WHERE name_hash = :hash",
    postgres="SELECT handle FROM service_subjects WHERE name_hash = :hash FOR SHARE",
)
_ADD = sql(
    "INSERT INTO service_subjects (handle, name_hash, created_at) VALUES (:handle, :hash, :now)"
    " ON CONFLICT (name_hash) DO NOTHING"
)


def label(tx: Tx, name: str) -> str:
    """Return the handle for rows of a subject; create the subject if it is new."""
    digest = _hash(tx, name)
    # Read first: nearly always the subject exists, and nothing has to be written.
    if tx.one(_LABEL, hash=digest) is None:
        tx.execute(_ADD, handle=tx.random(16).hex(), hash=digest, now=tx.now)
    row = tx.one(_LABEL, hash=digest)
    if row is None:
        raise ConflictError("the subject was erased at the same time; try again")
    (handle,) = row
    return str(handle)


_FIND = sql("SELECT handle FROM service_subjects WHERE name_hash = :hash")


def find(tx: Tx, name: str) -> str | None:
    """Return the handle of a subject; None if it is unknown or was erased."""
    row = tx.one(_FIND, hash=_hash(tx, name))
    if row is None:
        return None
    (handle,) = row
    return str(handle)


_COUNTS = sql(
    "SELECT (SELECT count(*) FROM blobs WHERE subject = :handle),"
    " (SELECT count(*) FROM cli_sessions WHERE subject = :handle)"
)


def counts(tx: Tx, handle: str) -> dict[str, int]:
    """Return how many rows have a label, by kind."""
    [(blobs, sessions)] = tx.all(_COUNTS, handle=handle)
    return {"blobs": int(blobs), "sessions": int(sessions)}


_BLOBS_COLUMNS: Final = ("key", "size", "sha256", "content_type", "put_at")
_BLOBS = sql("SELECT key, size, sha256, content_type, put_at FROM blobs WHERE subject = :handle ORDER BY key")
_SESSIONS_COLUMNS: Final = ("session", "name", "started_at", "ended_at", "event", "at", "source", "message", "data")
_SESSIONS = sql(
    "SELECT s.id, s.name, s.started_at, s.ended_at, e.event_type, e.timestamp, e.source, e.message, e.data"
    " FROM cli_sessions s LEFT JOIN cli_session_events e ON e.session_id = s.id WHERE s.subject = :handle"
    " ORDER BY s.id, e.timestamp, e.id"
)


def rows(tx: Tx, handle: str) -> dict[str, list[dict[str, object]]]:
    """Return what carries a label: blobs by name, size and hash, and sessions with their events."""
    blobs = [dict(zip(_BLOBS_COLUMNS, row, strict=True)) for row in tx.all(_BLOBS, handle=handle)]
    sessions = [dict(zip(_SESSIONS_COLUMNS, row, strict=True)) for row in tx.all(_SESSIONS, handle=handle)]
    return {"blobs": blobs, "sessions": sessions}
