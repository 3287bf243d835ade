"""Idempotency: one key, one execution.

Rules:
- Exactly one of any number of callers executes; the others wait and get its result. `None` is a result.
- The same key with another request is IdempotencyConflictError.
- An expired result is never returned: its key is free again.
- A caller whose lease expired before it finished leaves an unknown outcome: the call is not run again silently, but
  only if the caller says so (`on_unknown="retry"`) or an operator does (`settle`, `delete`).
- A failure frees the key (`on_error="retry"`), or is stored and replayed (`on_error="replay"`).
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Final, Literal, NamedTuple

from holdproof import paging, validation
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
from holdproof.model import jsontext
from holdproof.model.coordination import IdempotencyEntry
from holdproof.model.namespaces import MAIN
from holdproof.model.page import Page
from holdproof.model.times import later

TTL_S: Final = 86_400.0
LEASE_S: Final = 60.0

OnError = Literal["retry", "replay"]
OnUnknown = Literal["ask", "retry", "fail"]
_FINISHED: Final = frozenset({"DONE", "FAILED"})


class _Key(NamedTuple):
    """The key of a call, and the hash of its request."""

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
    """Call `fn` unless it was called for this key before; return its result, as JSON gives it back, either way.

    Raises IdempotencyConflictError where the key was used with another request, and UnknownOutcomeError where a call
    was started and never finished.
    """
    validation.one_of("on_error", on_error, {"retry", "replay"})
    validation.one_of("on_unknown", on_unknown, {"ask", "retry", "fail"})
    call_key = _key(key, request, ns)
    claimed = yield from _wait_for_turn(call_key, ttl_s=ttl_s, lease_s=lease_s, again=on_unknown == "retry")
    if isinstance(claimed, str):
        return (yield from _execute(call_key, claimed, fn, ttl_s, on_error))
    return _replay(claimed)


def _key(key: str, request: Any, ns: str) -> _Key:
    return _Key(ns, validation.name("key", key), canonical.sha256_hex(canonical.dumps(request)))


def _wait_for_turn(key: _Key, *, ttl_s: float, lease_s: float, again: bool) -> Work[IdempotencyEntry | str]:
    """Return our owner's name if we are to execute, else the finished entry, once another caller has ended."""
    claim = partial(_claim, key=key, ttl_s=ttl_s, lease_s=lease_s, again=again)
    while True:
        claimed: IdempotencyEntry | str | Refused | None = yield from ask(Write(claim))
        assert not isinstance(claimed, Refused), "the executor raises a refusal"
        if isinstance(claimed, str) or (claimed is not None and claimed.state in _FINISHED):
            return claimed
        if claimed is not None:  # else the key was freed between two statements
            yield Wait(f"idempotency:{key.ns}:{key.key}", claimed.expires_at)


def _replay(entry: IdempotencyEntry) -> Any:
    if entry.state == "FAILED":
        raise ReplayedError(f"the first call with key {entry.key} failed: {entry.error}", key=entry.key)
    return entry.result


# A key is claimed if it is new, if its result has expired, or, with `again`, if its owner's lease has.
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
_MARK_UNKNOWN = sql(
    "UPDATE idempotency_cache SET state = 'UNKNOWN' WHERE ns = :ns AND idempotency_key = :key"
    " AND state = 'RUNNING' AND lease_until <= :now"
)


def _claim(tx: Tx, key: _Key, ttl_s: float, lease_s: float, again: bool) -> IdempotencyEntry | str | Refused | None:
    """Return our owner's name if we are to execute; else the entry of the key; None if that changed just now.

    The entry of a call that another caller executes expires with that caller's lease: look again then at the latest.
    """
    expires = later(tx.now, validation.seconds("ttl_s", ttl_s, least=0.001))
    lease = later(tx.now, validation.seconds("lease_s", lease_s, least=0.001))
    owner = tx.new_id()
    mine = tx.one(_CLAIM, **key._asdict(), now=tx.now, expires=expires, owner=owner, lease=lease, again=int(again))
    if mine is not None:
        return owner
    row = tx.one(_FIND, ns=key.ns, key=key.key)
    if row is None:
        return None
    stored = _Stored(*row)
    if stored.request_hash != key.request_hash:
        raise IdempotencyConflictError(f"key {key.key} was used with another request", key=key.key)
    entry = stored.entry()
    if entry.state in _FINISHED:
        return None if entry.expires_at <= tx.now else entry
    if entry.state == "UNKNOWN" or stored.lease_until <= tx.now:
        tx.execute(_MARK_UNKNOWN, ns=key.ns, key=key.key, now=tx.now)
        # Refused, not raised: that the outcome is unknown is to be committed.
        return Refused(UnknownOutcomeError(f"the call with key {key.key} was started and never finished", key=key.key))
    return replace(entry, expires_at=stored.lease_until)


def _execute(key: _Key, owner: str, fn: Callable[[], Any], ttl_s: float, on_error: OnError) -> Work[Any]:
    """Call, and record how it ended; anything but an Exception (a cancelled caller) leaves the outcome unknown."""
    call: Call[Any] = Call(fn)
    finish = partial(_finish, key=key, owner=owner, ttl_s=ttl_s)
    try:
        result = yield from ask(call)
    except Exception as error:
        message = validation.error_text(error)
        if on_error == "retry":
            yield from ask(Write(partial(_free, key=key, owner=owner)))
        else:
            yield from ask(Write(partial(finish, error=message)))
        raise
    try:
        text = canonical.dump_text(result)
    except InvalidInputError as error:  # the call has happened, so it must not happen again
        yield from ask(Write(partial(finish, error=validation.error_text(error))))
        raise
    yield from ask(Write(partial(finish, text=text)))
    return jsontext.load(text)


_FREE = sql("DELETE FROM idempotency_cache WHERE ns = :ns AND idempotency_key = :key AND owner = :owner")


def _free(tx: Tx, key: _Key, owner: str) -> None:
    tx.execute(_FREE, ns=key.ns, key=key.key, owner=owner)
    tx.notify(f"idempotency:{key.ns}:{key.key}")


# UNKNOWN too: a slow caller whose lease expired may still finish, unless another claimed the key.
_FINISH = sql(
    "UPDATE idempotency_cache SET state = :state, result = :result, error = :error, expires_at = :expires"
    " WHERE ns = :ns AND idempotency_key = :key AND owner = :owner AND state IN ('RUNNING', 'UNKNOWN')"
)


def _finish(tx: Tx, *, key: _Key, owner: str, ttl_s: float, text: str | None = None, error: str | None = None) -> None:
    state = "FAILED" if text is None else "DONE"
    expires = later(tx.now, ttl_s)
    changed = tx.count(
        _FINISH, state=state, result=text, error=error, expires=expires, ns=key.ns, key=key.key, owner=owner
    )
    if changed != 1:
        raise LeaseLostError(f"another caller has claimed key {key.key} meanwhile", key=key.key)
    tx.notify(f"idempotency:{key.ns}:{key.key}")


# --- claiming and writing apart: for a kernel that executes by itself ---------------------------------------------


def claim(key: str, *, ttl_s: float = TTL_S, lease_s: float = LEASE_S, ns: str = MAIN) -> Work[IdempotencyEntry | str]:
    """Return the finished entry of a key; or the owner's name for the one caller that is to execute and then `store`.

    Other callers wait for that. One that stores nothing within its lease is taken for gone, and the next executes.
    """
    return (yield from _wait_for_turn(_key(key, key, ns), ttl_s=ttl_s, lease_s=lease_s, again=True))


_RENEW = sql(
    "UPDATE idempotency_cache SET lease_until = :lease WHERE ns = :ns AND idempotency_key = :key AND owner = :owner"
    " AND state = 'RUNNING'"
)


def renew(tx: Tx, key: str, owner: str, *, lease_s: float = LEASE_S, ns: str = MAIN) -> bool:
    """Extend a claim; return whether it is still its owner's."""
    lease = later(tx.now, validation.seconds("lease_s", lease_s, least=0.001))
    return tx.count(_RENEW, lease=lease, ns=ns, key=key, owner=owner) == 1


_STORE = sql(
    "INSERT INTO idempotency_cache (idempotency_key, request_hash, result, created_at, expires_at, state, owner, ns)"
    " VALUES (:key, :request_hash, :result, :now, :expires, 'DONE', :owner, :ns)"
    " ON CONFLICT (ns, idempotency_key) DO UPDATE SET result = excluded.result, created_at = excluded.created_at,"
    " expires_at = excluded.expires_at, state = 'DONE', owner = excluded.owner, error = NULL"
    " WHERE excluded.owner = '' OR idempotency_cache.owner = excluded.owner"
)


def store(tx: Tx, key: str, text: str, *, owner: str = "", ttl_s: float = TTL_S, ns: str = MAIN) -> bool:
    """Store a result as JSON text; return False if another caller has claimed the key meanwhile.

    Without an owner the result is stored whoever has claimed the key.
    """
    call_key = _key(key, key, ns)
    expires = later(tx.now, validation.seconds("ttl_s", ttl_s, least=0.001))
    stored = tx.count(_STORE, **call_key._asdict(), result=text, now=tx.now, expires=expires, owner=owner) == 1
    tx.notify(f"idempotency:{ns}:{key}")
    return stored


# --- reading, and settling what is unknown -----------------------------------------------------------------------


class _Stored(NamedTuple):
    """A row of the cache."""

    key: str
    request_hash: str
    result: str | None
    created_at: str
    expires_at: str
    state: str
    lease_until: str
    error: str | None
    ns: str

    def entry(self) -> IdempotencyEntry:
        """The row as a value."""
        return IdempotencyEntry(
            key=self.key,
            request_hash=self.request_hash,
            result=jsontext.load(self.result),
            created_at=self.created_at,
            expires_at=self.expires_at,
            state=self.state,
            error=self.error,
            ns=self.ns,
        )


_FIND = sql(
    "SELECT idempotency_key, request_hash, result, created_at, expires_at, state, lease_until, error, ns"
    " FROM idempotency_cache WHERE ns = :ns AND idempotency_key = :key"
)


def get(tx: Tx, key: str, *, ns: str = MAIN) -> IdempotencyEntry:
    """Return the entry of a key; NotFoundError where there is none or it has expired."""
    row = tx.one(_FIND, ns=ns, key=key)
    entry = None if row is None else _Stored(*row).entry()
    if entry is None or (entry.state in _FINISHED and entry.expires_at <= tx.now):
        raise NotFoundError(
            f"there is no idempotency key {key}", remedy="It was never used here, or its time is over.", key=key
        )
    return entry


_STATES: Final = frozenset({"RUNNING", "UNKNOWN", "DONE", "FAILED"})
# Who was executing a call whose lease has passed is gone: its outcome is unknown, whether or not somebody has looked.
_IS: Final = "CASE WHEN state = 'RUNNING' AND lease_until <= :now THEN 'UNKNOWN' ELSE state END"
_LIST = sql(
    f"SELECT idempotency_key, request_hash, result, created_at, expires_at, {_IS}, lease_until, error, ns"  # noqa: S608
    " FROM idempotency_cache WHERE ns = :ns AND idempotency_key > :after"
    f" AND (CAST(:state AS TEXT) IS NULL OR {_IS} = :state)"
    " AND (state NOT IN ('DONE', 'FAILED') OR expires_at > :now) ORDER BY idempotency_key LIMIT :limit"
)


def list(
    tx: Tx, *, state: str | None = None, cursor: str | None = None, limit: int = 100, ns: str = MAIN
) -> Page[IdempotencyEntry]:
    """List the keys of calls, by key; `state` is RUNNING, DONE, FAILED, or UNKNOWN for calls that never finished."""
    if state is not None:
        validation.one_of("state", state, _STATES)
    (after,) = paging.decode(cursor, "")
    rows = tx.all(_LIST, ns=ns, state=state, after=after, now=tx.now, limit=paging.fetch(limit))
    return paging.page((_Stored(*row).entry() for row in rows), limit, lambda entry: (entry.key,))


# Only what nobody executes any more: a call under lease may still finish by itself.
_SETTLE = sql(
    "UPDATE idempotency_cache SET state = 'DONE', result = :result, error = NULL, owner = '', expires_at = :expires"
    " WHERE ns = :ns AND idempotency_key = :key AND state IN ('RUNNING', 'UNKNOWN') AND lease_until <= :now"
)


def settle(tx: Tx, key: str, result: Any, *, ttl_s: float = TTL_S, ns: str = MAIN) -> IdempotencyEntry:
    """Record by hand the result of a call whose outcome is unknown; ConflictError for any other."""
    expires = later(tx.now, validation.seconds("ttl_s", ttl_s, least=0.001))
    if tx.count(_SETTLE, result=canonical.dump_text(result), expires=expires, ns=ns, key=key, now=tx.now) != 1:
        raise ConflictError(f"the outcome of key {key} is not unknown", key=key, state=get(tx, key, ns=ns).state)
    tx.notify(f"idempotency:{ns}:{key}")
    return get(tx, key, ns=ns)


_DELETE = sql(
    "DELETE FROM idempotency_cache WHERE ns = :ns AND idempotency_key = :key"
    " AND (state IN ('DONE', 'FAILED') OR lease_until <= :now)"
)


def delete(tx: Tx, key: str, *, ns: str = MAIN) -> bool:
    """Delete a key, so that its call may be executed again; return whether there was one that nobody executes."""
    tx.notify(f"idempotency:{ns}:{key}")
    return tx.count(_DELETE, ns=ns, key=key, now=tx.now) == 1


_SWEEP = sql("DELETE FROM idempotency_cache WHERE state IN ('DONE', 'FAILED') AND expires_at <= :now")


def sweep(tx: Tx) -> int:
    """Remove expired results, and return how many; an unknown outcome stays until somebody settles it."""
    return tx.count(_SWEEP, now=tx.now)
