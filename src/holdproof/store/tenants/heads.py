"""Rounds of heads: what the logs of tenants say now, compared with what the parent recorded last.

Rules:
- A tenant is only read, with its database as it lies there: nothing of it is opened for use, repaired or migrated.
- Its newest head counts only if its log still contains the head that was recorded last. A restore that lost recorded
  entries is a finding too: a person accepts it, with the reason.
- It counts only under a log key that was recorded with that head, or that a chain of statements leads to from those:
  who has the tenant's database can put any key into its keyring.
- A database that is gone or damaged is a finding; a server that cannot be reached is none.
- What is wrong with one tenant, its row in the parent included, keeps no other from being looked at.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import Final, NamedTuple

from holdproof import validation
from holdproof.crypto import checkpoint, vkey
from holdproof.crypto.checkpoint import SignedCheckpoint
from holdproof.crypto.vkey import ED25519, VerifierKey
from holdproof.db import Call, Read, Tx, Work, Write, ask, transfer
from holdproof.db.backends import is_there
from holdproof.errors import (
    ConflictError,
    CorruptError,
    DatabaseError,
    FormatError,
    HistoryLostError,
    HoldproofError,
    NotFoundError,
    TamperedError,
)
from holdproof.evidence import log, tenants, tree
from holdproof.evidence.restores import generation
from holdproof.evidence.tenants import TenantRow
from holdproof.model.tenants import TenantCheck, TenantHead
from holdproof.model.verdicts import Verdict
from holdproof.store.context import Context
from holdproof.store.tenants import unchanged
from holdproof.store.tenants.places import Parent, TenantPlace, open_to_read
from holdproof.store.tenants.unchanged import Mark, RoundMemory
from holdproof.upkeep.verification import trusted_keys

_BATCH: Final = 100
DAMAGE: Final = (FormatError, CorruptError, NotFoundError, HistoryLostError)


class SeenHead(NamedTuple):
    """The newest head of a tenant, the keys it holds under, and what is wrong with it."""

    head: str
    size: int
    keys: str
    finding: str | None = None


def look(place: TenantPlace, last_head: TenantHead | None) -> SeenHead:
    """Read the newest head of a tenant and compare it with the one recorded last; raises where it cannot be reached."""
    if is_gone(place):
        return SeenHead("", 0, "", "GONE: its database is not there, or has no store")
    try:
        with closing(open_to_read(place.session_target)) as database:
            return database.read(partial(_look, last_head=last_head)).result()
    except DAMAGE as error:
        return SeenHead("", 0, "", f"DAMAGED: {error.message}")


def is_gone(place: TenantPlace) -> bool:
    """Return whether a tenant's database is not there, or has no store; DatabaseError where nobody can tell."""
    try:
        return not is_there(place.session_target)
    except DatabaseError:
        # A server that answers, and has no such database, is reached.
        if place.url is not None and not transfer.server("databases").is_there(*place.administration):
            return True
        raise


def _look(tx: Tx, last_head: TenantHead | None) -> SeenHead:
    now = tree.state(tx)
    if not now.head:
        return SeenHead("", 0, "", "ROLLED_BACK: its log is empty" if last_head else None)
    signed = checkpoint.parse(now.head.encode())
    keys = tree.verifiers(tx)
    try:
        checkpoint.verify(signed, origin=now.origin, log_keys=keys)
    except FormatError as error:
        return SeenHead(now.head, now.size, "", f"TAMPERED: its newest head does not hold: {error.message}")
    if last_head is not None:
        finding = _difference(tx, last_head, now.origin) or _unadmitted_signer(tx, last_head, signed)
        if finding is not None:
            return SeenHead(now.head, now.size, "", finding)
    return SeenHead(now.head, now.size, "\n".join(key.encode() for key in _logged(tx, keys, signed)))


def _unadmitted_signer(tx: Tx, last_head: TenantHead, signed: SignedCheckpoint) -> str | None:
    """Say that no key that was recorded, or that such a key admitted, signed the newest head; None where one did."""
    if last_head.head.encode() == signed.encode():
        return None
    recorded_keys = [vkey.parse(line) for line in last_head.keys.split("\n")]
    anchors = [key.public for key in recorded_keys if key.kind == ED25519]
    if trusted_keys.vouches(tx, anchors, [checkpoint.parse(last_head.head.encode())]):
        return None
    return (
        "TAMPERED: its newest head is signed by a log key that none of the keys recorded with the head of size"
        f" {last_head.size} admitted"
    )


def _logged(tx: Tx, keys: Sequence[VerifierKey], signed: SignedCheckpoint) -> list[VerifierKey]:
    """Return the keys whose admission stands under the head: a row of the keyring alone is anybody's."""
    return [key for key in keys if trusted_keys.is_logged_under(tx, key.public.keyid, [signed.checkpoint])]


def _difference(tx: Tx, last_head: TenantHead, origin: str) -> str | None:
    """Say how the log does not continue the head that was recorded last; None where it does."""
    if generation(last_head.origin)[0] != generation(origin)[0]:
        return f"TAMPERED: another store is in its place: {origin}, recorded was {last_head.origin}"
    # No restore counts here: what the tenant's home says of itself may be part of what was put back.
    verdict = log.continuity(tx, checkpoint.parse(last_head.head.encode()))
    if verdict is Verdict.VALID:
        return None
    return (
        f"{verdict.word}: its log does not continue the head of size {last_head.size} recorded {last_head.recorded_at}"
    )


class _Round(NamedTuple):
    row: TenantRow
    last_head: TenantHead | None
    log_head: SeenHead


def record_heads(context: Context, tenant: str | None = None) -> Work[list[TenantCheck]]:
    """Record the newest heads of all tenants, or of one, each if it continues the last one that was recorded.

    One that does not is a finding, which is written down; that tenant is not opened any more until `accept`.
    """
    return (yield from _round(context, tenant, None))


def record_changed(context: Context, memory: RoundMemory) -> Work[list[TenantCheck]]:
    """Record the newest heads of all tenants as `record_heads` does, leaving out those that nobody wrote to since."""
    return (yield from _round(context, None, memory))


def _round(context: Context, tenant: str | None, memory: RoundMemory | None) -> Work[list[TenantCheck]]:
    parent = Parent(context.paths, context.settings)
    parent.refuse_memory()
    memory = memory or RoundMemory()
    checks: list[TenantCheck] = []
    present: set[str] = set()
    cursor: str | None = None
    # Once for all pages: the server answers with every database that it has.
    of_server: Mapping[str, Mark] = yield from ask(Read(unchanged.databases))
    while True:
        page, cursor = yield from ask(Read(partial(_page, tenant=tenant, cursor=cursor)))
        rounds: list[_Round] = []
        # Before anything is looked at: what is written from here on is seen by the next round.
        rows = [each[0] for each in page if not isinstance(each, TenantCheck)]
        marks: dict[str, Mark | None] = yield from ask(Call(partial(unchanged.marks_of, parent, rows, of_server)))
        present.update(marks)
        for each in page:
            if isinstance(each, TenantCheck):
                checks.append(each)
                continue
            row, last_head = each
            if memory.is_unchanged(row, last_head, marks[row.id]):
                checks.append(TenantCheck(row.name, "unchanged", last_head.size if last_head else 0))
                continue
            log_head: SeenHead | TenantCheck = yield from ask(Call(partial(_observe, parent, row, last_head)))
            if isinstance(log_head, TenantCheck):
                checks.append(log_head)
            elif row.finding is None and log_head.finding is None and _is_known(log_head, last_head):
                checks.append(TenantCheck(row.name, "unchanged", log_head.size))
                memory.keep(row, last_head, marks[row.id])
            else:
                rounds.append(_Round(row, last_head, log_head))
        if rounds:
            checks += yield from ask(Write(partial(_record, rounds=rounds)))
        if cursor is None:
            memory.retain(present)
            return checks


_Known = tuple[TenantRow, TenantHead | None]
"""A tenant, and the head that was recorded of it last."""


def _page(tx: Tx, tenant: str | None, cursor: str | None) -> tuple[list[_Known | TenantCheck], str | None]:
    if tenant is not None:
        return [_known(tx, tenants.require(tx, tenant))], None
    page = tenants.list(tx, status="active", cursor=cursor, limit=_BATCH)
    return [_known_or_finding(tx, each.name) for each in page.items], page.next_cursor


def _known(tx: Tx, row: TenantRow) -> _Known:
    return row, tenants.last_head(tx, row.id)


def _known_or_finding(tx: Tx, tenant: str) -> _Known | TenantCheck:
    """Return what is known of a tenant; of one whose row somebody edited, that it was: the others are looked at."""
    try:
        return _known(tx, tenants.require(tx, tenant))
    except TamperedError as error:
        # Not written down: its next version would make the edit part of the log. `verify` finds it too.
        return TenantCheck(tenant, "finding", None, f"TAMPERED: {error.message}")


def _observe(parent: Parent, row: TenantRow, last_head: TenantHead | None) -> SeenHead | TenantCheck:
    try:
        return look(parent.place_of(row), last_head)
    except (HoldproofError, OSError) as error:
        what = error.message if isinstance(error, HoldproofError) else str(error)
        return TenantCheck(row.name, "unreachable", None, what)


def _is_known(log_head: SeenHead, last_head: TenantHead | None) -> bool:
    """Whether there is no head that is not recorded yet."""
    return not log_head.head or (last_head is not None and last_head.head == log_head.head)


def _record(tx: Tx, rounds: list[_Round]) -> list[TenantCheck]:
    return [*_recorded(tx, rounds)]


def _recorded(tx: Tx, rounds: list[_Round]) -> Iterator[TenantCheck]:
    for row, last_head, log_head in rounds:
        # Somebody else may have recorded a later head, or deleted the tenant, since it was looked at.
        current = tenants.find(tx, row.name)
        newest = tenants.last_head(tx, row.id)
        if current is None or current.id != row.id or newest != last_head:
            yield TenantCheck(row.name, "unchanged", log_head.size)
            continue
        finding = log_head.finding or current.finding
        if finding is not None:
            if finding != current.finding:
                tenants.change(tx, current, finding=finding)
            yield TenantCheck(row.name, "finding", log_head.size, finding)
        elif _is_known(log_head, last_head):
            yield TenantCheck(row.name, "unchanged", log_head.size)
        else:
            tenants.record_head(tx, current, log_head.head, log_head.keys)
            yield TenantCheck(row.name, "recorded", log_head.size)


def accept(context: Context, tenant: str, *, reason: str) -> Work[TenantCheck]:
    """Accept the log of a tenant as it is, with the reason: its newest head is recorded, whatever was before.

    For a tenant that was restored on purpose. ConflictError where nothing is wrong, or its newest head does not hold.
    """
    validation.words("reason", reason.strip(), least=1, most=1000)
    parent = Parent(context.paths, context.settings)
    row: TenantRow = yield from ask(Read(partial(tenants.require, tenant=tenant)))
    if row.finding is None:
        raise ConflictError(f"nothing is wrong with the tenant {tenant}: there is nothing to accept", tenant=tenant)
    log_head: SeenHead = yield from ask(Call(partial(look, parent.place_of(row), None)))
    if log_head.finding is not None or not log_head.head:
        what = log_head.finding or "it has no head"
        raise ConflictError(f"the log of the tenant {tenant} cannot be accepted: {what}", tenant=tenant)
    return (yield from ask(Write(partial(_accept, row=row, log_head=log_head, reason=reason.strip()))))


def _accept(tx: Tx, row: TenantRow, log_head: SeenHead, reason: str) -> TenantCheck:
    store = generation(checkpoint.parse(log_head.head.encode()).checkpoint.origin)[0]
    changed = tenants.change(tx, row, finding=None, reason=reason, store=store)
    tenants.record_head(tx, changed, log_head.head, log_head.keys)
    return TenantCheck(row.name, "recorded", log_head.size)
