"""Idempotency: one key, one execution.

Rules:
- Exactly one of any number of callers executes; the others wait and get its result. `None` is a result.
- The same key with another request is IdempotencyConflictError.
- What has expired is never returned: the key is free again.
- A holder whose lease ran out before it finished leaves an unknown outcome: it is not run again silently, but only if
  the caller says so (`on_unknown="retry"`) or an operator does (`settle`, `forget`).
- A failure frees the key (`on_error="retry"`), or is remembered and replayed (`on_error="replay"`).
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Final, Literal, NamedTuple

from holdproof.crypto import canonical
from holdproof.db import Call, Refused, Tx, Wait, Work, Write, ask, sql
from holdproof.errors import (
    ConflictError,
    IdempotencyConflictError,
    InvalidInputError,
    LeaseLostError,
    NotFoundError,
    ReplayedError,
    UnknownOutcomeError,
)
from holdproof.model.coordination import Entry
from holdproof.model.times import later
from holdproof.runtime import logged_rows
from holdproof.runtime.logged_rows import MAIN

TTL_S: Final = 86_400.0
LEASE_S: Final = 60.0

OnError = Literal["retry", "replay"]
OnUnknown = Literal["ask", "retry", "fail"]


class _Key(NamedTuple):
    """What a call is about."""

    ns: str
    key: str
    request_hash: str


def once(
    key: str,
    request: Any,
    fn: Callable[[], Any],
    *,
    ttl_s: float = TTL_S,
    lease_s: float = LEASE_S,
    on_error: OnError = "retry",
    on_unknown: OnUnknown = "ask",
    ns: str = MAIN,
) -> Work[Any]:
    """Call `fn` unless it was called for this key before; its result, as JSON would give it back, either way."""
    logged_rows.one_of("on_error", on_error, frozenset({"retry", "replay"}))
    logged_rows.one_of("on_unknown", on_unknown, frozenset({"ask", "retry", "fail"}))
    about = _about(key, request, ns)
    found = yield from _turn(about, ttl_s=ttl_s, lease_s=lease_s, again=on_unknown == "retry")
    if isinstance(found, str):
        return (yield from _execute(about, found, fn, ttl_s, on_error))
    return _replay(found)


def _about(key: str, request: Any, ns: str) -> _Key:
    return _Key(ns, logged_rows.name("key", key), canonical.sha256_hex(canonical.dumps(request)))


def _turn(about: _Key, *, ttl_s: float, lease_s: float, again: bool) -> Work[Entry | str]:
    """The owner's name if the key is ours to execute, else what became of it, once those who execute have ended."""
    claim = partial(_claim, about=about, ttl_s=ttl_s, lease_s=lease_s, again=again)
    while True:
        found: Entry | str | Refused | None = yield from ask(Write(claim))
        assert not isinstance(found, Refused), "the face raises it"
        if isinstance(found, str) or (found is not None and found.state in {"DONE", "FAILED"}):
            return found
        if found is not None:  # else it was freed between two looks
            yield Wait(f"idempotency:{about.ns}:{about.key}", found.expires_at)


def _replay(found: Entry) -> Any:
    if found.state == "FAILED":
        raise ReplayedError(f"the first call with key {found.key} failed: {found.error}", key=found.key)
    return found.result


_CLAIM = sql(
    "INSERT INTO idempotency_cache (idempotency_key, request_hash, created_at, expires_at, state, owner, lease_until,"
    " ns) VALUES (:key, :request_hash, :now, :expires, 'RUNNING', :owner, :lease, :ns)"
    " ON CONFLICT (ns, idempotency_key) DO UPDATE SET request_hash = excluded.request_hash, result = NULL,"
    " created_at = excluded.created_at, expires_at = excluded.expires_at, state = 'RUNNING', owner = excluded.owner,"
    " lease_until = excluded.lease_until, error = NULL"
    " WHERE (idempotency_cache.state IN ('DONE', 'FAILED')"
    " AND idempotency_cache.expires_at <= excluded.created_at)"
    " OR (:again = 1 AND idempotency_cache.state IN ('RUNNING', 'UNKNOWN')"
    " AND idempotency_cache.lease_until <= excluded.created_at"
    " AND idempotency_cache.request_hash = excluded.request_hash) RETURNING owner"
)
_LAPSE = sql(
    "UPDATE idempotency_cache SET state = 'UNKNOWN' WHERE ns = :ns AND idempotency_key = :key"
    " AND state = 'RUNNING' AND lease_until <= :now"
)


def _claim(tx: Tx, about: _Key, ttl_s: float, lease_s: float, again: bool) -> Entry | str | Refused | None:
    """The owner's name if the key is ours to execute; else what is known of it; None if that changed just now."""
    expires = later(tx.now, logged_rows.seconds("ttl_s", ttl_s, least=0.001))
    lease = later(tx.now, logged_rows.seconds("lease_s", lease_s, least=0.001))
    owner = tx.new_id()
    mine = tx.one(_CLAIM, **about._asdict(), now=tx.now, expires=expires, owner=owner, lease=lease, again=int(again))
    if mine is not None:
        return owner
    row = tx.one(_FIND, ns=about.ns, key=about.key)
    if row is None:
        return None
    if row[1] != about.request_hash:
        raise IdempotencyConflictError(f"key {about.key} was used with another request", key=about.key)
    entry, lease_until = _entry(row), row[6]
    if entry.state == "UNKNOWN" or (entry.state == "RUNNING" and lease_until <= tx.now):
        tx.execute(_LAPSE, ns=about.ns, key=about.key, now=tx.now)
        return Refused(
            UnknownOutcomeError(f"the call with key {about.key} was begun and never finished", key=about.key)
        )
    if entry.state in {"DONE", "FAILED"} and entry.expires_at <= tx.now:
        return None
    return entry if entry.state in {"DONE", "FAILED"} else _waiting(entry, lease_until)


def _waiting(entry: Entry, lease_until: str) -> Entry:
    """Somebody executes: look again when its lease runs out at the latest."""
    return replace(entry, expires_at=lease_until)


def _execute(about: _Key, owner: str, fn: Callable[[], Any], ttl_s: float, on_error: OnError) -> Work[Any]:
    """Call, and write down how it ended. Anything but an Exception (a cancelled caller) leaves the outcome unknown."""
    call: Call[Any] = Call(fn)
    try:
        result = yield from ask(call)
    except Exception as error:
        words = logged_rows.words(error)
        if on_error == "retry":
            yield from ask(Write(partial(_free, about=about, owner=owner)))
        else:
            yield from ask(Write(partial(_finish, about=about, owner=owner, error=words, ttl_s=ttl_s)))
        raise
    try:
        text = logged_rows.dump(result)
    except InvalidInputError as error:  # it has happened, so it must not happen again
        yield from ask(Write(partial(_finish, about=about, owner=owner, error=logged_rows.words(error), ttl_s=ttl_s)))
        raise
    yield from ask(Write(partial(_finish, about=about, owner=owner, text=text, ttl_s=ttl_s)))
    return logged_rows.load(text)


_FREE = sql("DELETE FROM idempotency_cache WHERE ns = :ns AND idempotency_key = :key AND owner = :owner")


def _free(tx: Tx, about: _Key, owner: str) -> None:
    tx.execute(_FREE, ns=about.ns, key=about.key, owner=owner)
    tx.notify(f"idempotency:{about.ns}:{about.key}")


_FINISH = sql(
    "UPDATE idempotency_cache SET state = :state, result = :result, error = :error, expires_at = :expires"
    " WHERE ns = :ns AND idempotency_key = :key AND owner = :owner AND state IN ('RUNNING', 'UNKNOWN')"
)


def _finish(
    tx: Tx, *, about: _Key, owner: str, ttl_s: float, text: str | None = None, error: str | None = None
) -> None:
    ended = {"state": "FAILED" if text is None else "DONE", "result": text, "error": error}
    expires = later(tx.now, ttl_s)
    if tx.count(_FINISH, **ended, expires=expires, ns=about.ns, key=about.key, owner=owner) != 1:
        raise LeaseLostError(f"key {about.key} was given to another caller meanwhile", key=about.key)
    tx.notify(f"idempotency:{about.ns}:{about.key}")


# --- looking first and writing after: for a kernel that executes by itself ----------------------------------------


def claim(key: str, *, ttl_s: float = TTL_S, lease_s: float = LEASE_S, ns: str = MAIN) -> Work[Entry | str]:
    """What became of a key; or the mark of the one caller that is to execute now, and then to `keep` the result.

    Others wait for that. Whoever does not keep anything within its lease is taken for gone, and the next one executes.
    """
    return (yield from _turn(_about(key, key, ns), ttl_s=ttl_s, lease_s=lease_s, again=True))


_RENEW = sql(
    "UPDATE idempotency_cache SET lease_until = :lease WHERE ns = :ns AND idempotency_key = :key AND owner = :owner"
    " AND state = 'RUNNING'"
)


def renew(tx: Tx, key: str, owner: str, *, lease_s: float = LEASE_S, ns: str = MAIN) -> bool:
    """Hold on to a claim; whether it is still its owner's."""
    lease = later(tx.now, logged_rows.seconds("lease_s", lease_s, least=0.001))
    return tx.count(_RENEW, lease=lease, ns=ns, key=key, owner=owner) == 1


_KEEP = sql(
    "INSERT INTO idempotency_cache (idempotency_key, request_hash, result, created_at, expires_at, state, owner, ns)"
    " VALUES (:key, :request_hash, :result, :now, :expires, 'DONE', :owner, :ns)"
    " ON CONFLICT (ns, idempotency_key) DO UPDATE SET result = excluded.result, created_at = excluded.created_at,"
    " expires_at = excluded.expires_at, state = 'DONE', owner = excluded.owner, error = NULL"
    " WHERE excluded.owner = '' OR idempotency_cache.owner = excluded.owner"
)


def keep(tx: Tx, key: str, text: str, *, owner: str = "", ttl_s: float = TTL_S, ns: str = MAIN) -> bool:
    """Keep a result as JSON text, unless its claim went to another caller meanwhile; without a claim it counts."""
    about, expires = _about(key, key, ns), later(tx.now, logged_rows.seconds("ttl_s", ttl_s, least=0.001))
    kept = tx.count(_KEEP, **about._asdict(), result=text, now=tx.now, expires=expires, owner=owner) == 1
    tx.notify(f"idempotency:{ns}:{key}")
    return kept


# --- looking, and settling what is unknown -----------------------------------------------------------------------

_FIND = sql(
    "SELECT idempotency_key, request_hash, result, created_at, expires_at, state, lease_until, error, ns"
    " FROM idempotency_cache WHERE ns = :ns AND idempotency_key = :key"
)


def get(tx: Tx, key: str, *, ns: str = MAIN) -> Entry:
    """What is known of a key; nothing of one that has expired."""
    row = tx.one(_FIND, ns=ns, key=key)
    if row is None or (row[5] in {"DONE", "FAILED"} and row[4] <= tx.now):
        raise NotFoundError(f"nothing is known of key {key}", key=key)
    return _entry(row)


_SETTLE = sql(
    "UPDATE idempotency_cache SET state = 'DONE', result = :result, error = NULL, owner = '', expires_at = :expires"
    " WHERE ns = :ns AND idempotency_key = :key AND state IN ('RUNNING', 'UNKNOWN') AND lease_until <= :now"
)


def settle(tx: Tx, key: str, result: Any, *, ttl_s: float = TTL_S, ns: str = MAIN) -> Entry:
    """Write down by hand what became of a call whose outcome is unknown."""
    expires = later(tx.now, logged_rows.seconds("ttl_s", ttl_s, least=0.001))
    if tx.count(_SETTLE, result=logged_rows.dump(result), expires=expires, ns=ns, key=key, now=tx.now) != 1:
        raise ConflictError(f"the outcome of key {key} is not unknown", key=key, state=get(tx, key, ns=ns).state)
    tx.notify(f"idempotency:{ns}:{key}")
    return get(tx, key, ns=ns)


_FORGET = sql(
    "DELETE FROM idempotency_cache WHERE ns = :ns AND idempotency_key = :key"
    " AND (state IN ('DONE', 'FAILED') OR lease_until <= :now)"
)


def forget(tx: Tx, key: str, *, ns: str = MAIN) -> bool:
    """Free a key, so that it may be executed again; whether there was one. Not while somebody executes."""
    tx.notify(f"idempotency:{ns}:{key}")
    return tx.count(_FORGET, ns=ns, key=key, now=tx.now) == 1


_SWEEP = sql("DELETE FROM idempotency_cache WHERE state IN ('DONE', 'FAILED') AND expires_at <= :now")


def sweep(tx: Tx) -> int:
    """Remove what has expired; an unknown outcome stays until somebody settles it."""
    return tx.count(_SWEEP, now=tx.now)


def _entry(row: tuple[Any, ...]) -> Entry:
    return Entry(row[0], row[1], logged_rows.load(row[2]), row[3], row[4], row[5], row[7], row[8])
