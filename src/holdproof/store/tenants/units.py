"""Tenants as units: created, exported, moved and deleted whole.

Rules:
- A tenant is noted in the parent's log before anything of it is made, and before anything of it is removed. Killed at
  any moment, the same command again finishes.
- Of two who create, move or delete one at once, one is refused: by the parent's row, or by the lock of the home.
- What a legal hold or a retention floor keeps keeps its tenant.
- The last head is recorded before a tenant goes: what was proven of it stays proven.
"""

import os
from collections.abc import Collection, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from holdproof import folders, validation
from holdproof.content import disk
from holdproof.crypto import checkpoint
from holdproof.db import Call, Database, Read, Tx, Work, Write, ask, transfer
from holdproof.db.backends import is_there
from holdproof.db.migrate import MOVED
from holdproof.db.tx import APPLICATION_SCHEMA
from holdproof.errors import (
    AlreadyExistsError,
    BusyError,
    ConflictError,
    DatabaseError,
    HoldproofError,
    InvalidInputError,
    LockedError,
    ReadOnlyError,
    RetentionHeldError,
    UnavailableError,
)
from holdproof.evidence import lockdown, retention_rules, tenants, tree
from holdproof.evidence.restores import generation
from holdproof.evidence.tenants import TenantRow
from holdproof.model.backup import Backup
from holdproof.model.namespaces import EVERY
from holdproof.model.progress import Progress
from holdproof.model.retention import RetentionRule
from holdproof.model.tenants import Tenant, TenantHead, TenantMoved
from holdproof.store import maintenance
from holdproof.store.context import Context
from holdproof.store.opening import open_place
from holdproof.store.tenants import heads, open_tenants
from holdproof.store.tenants.heads import SeenHead
from holdproof.store.tenants.places import Parent, TenantPlace, open_to_read, refuse_unusable
from holdproof.upkeep.backups import backup, swap
from holdproof.upkeep.backups.backup_list import no_progress
from holdproof.upkeep.backups.move import SQLITE

_GOING: Final = ".deleted-"
_SPACES: Final = ("kernel", "membrane", "telemetry", APPLICATION_SCHEMA)
"""The schemas of a store."""


class _Made(NamedTuple):
    """What a new tenant begins with."""

    store: str
    head: SeenHead


# --- creating ----------------------------------------------------------------------------------------------------


def create(context: Context, tenant: str, *, place: str | None = None) -> Work[Tenant]:
    """Create a tenant: a store of its own, with its own log, keys, lockdown, backups and retention.

    `place` is an empty database that is there: its name on the parent's server, or its URL. Without it the tenant gets
    a file below the parent's home, and on a server a new database, which takes the right to create one.
    AlreadyExistsError for a name that a tenant has.
    """
    parent = Parent(context.paths, context.settings)
    tenants.name(tenant)
    chosen = parent.default_place(tenant) if place is None else parent.check_place(place)
    current: TenantRow | None = yield from ask(Read(partial(tenants.find, tenant=tenant)))
    if current is None or current.place != chosen:
        yield from ask(Call(partial(_refuse_occupied, parent.at(tenant, chosen), current)))
    row: TenantRow = yield from ask(Write(partial(tenants.begin, tenant=tenant, place=chosen)))
    try:
        initial: _Made = yield from ask(Call(partial(_make, parent, row)))
    except HoldproofError as error:
        yield from _withdraw(parent, row, error)
        raise
    return (yield from ask(Write(partial(_activate, row=row, initial=initial))))


def _refuse_occupied(place: TenantPlace, interrupted: TenantRow | None) -> None:
    """Refuse a home or a database in which there is something: it is somebody else's, or of a tenant that was."""
    if place.home.exists() and any(place.home.iterdir()):
        if interrupted is not None and interrupted.status == "creating":
            where = f"with --place {interrupted.place}" if interrupted.place else "without --place"
            raise ConflictError(f"the tenant {place.name} was begun elsewhere: create it {where}, or delete it first")
        raise AlreadyExistsError(f"{place.home} is not empty: move it away first", path=str(place.home))
    with suppress(DatabaseError):  # there is no such database yet
        _refuse_foreign(place, ())


def _refuse_foreign(place: TenantPlace, spaces: Collection[str]) -> None:
    """Refuse a database that has more than those spaces: it would go with the tenant when that is deleted."""
    if place.url is None:
        return
    _, name = place.administration
    other = transfer.server("databases").occupant(place.direct_url or place.url, spaces)
    if other is not None:
        what = "a store" if other.partition(".")[0] in _SPACES else other
        message = f"the database {name} has {what} already, which is not this tenant's: name an empty one"
        raise AlreadyExistsError(message, database=name)


def _ensure_database(place: TenantPlace) -> None:
    """Create the database of a place on a server, if it is not there."""
    if place.url is None:
        return
    try:
        is_there(
            place.session_target
        )  # asked of the database itself: one that can be reached needs no right to create another
    except DatabaseError:
        transfer.server("databases").create(*place.administration)


def _make(parent: Parent, row: TenantRow) -> _Made:
    place = parent.place_of(row)
    with disk.translated(place.home):
        folders.make(place.home.parent)
    _ensure_database(place)
    # Its home is made after it was seen to be empty: what is in it from then on, this tenant put there.
    _refuse_foreign(place, _SPACES if place.paths.keys.exists() else ())
    with closing(open_place(place, create=True)) as store:
        origin = store.database.read(tree.state).result().origin
    return _Made(generation(origin)[0], heads.look(place, None))


def _withdraw(parent: Parent, row: TenantRow, error: HoldproofError) -> Work[None]:
    """Give the name back where nothing was made; where something was, the next `create` goes on."""
    place = parent.place_of(row)
    if place.paths.kernel_db.exists() or place.paths.keys.exists():
        return
    yield from ask(Write(partial(_withdrawn, row=row, reason=f"not created: {error.message}"[:500])))


def _withdrawn(tx: Tx, row: TenantRow, reason: str) -> None:
    current = tenants.find(tx, row.name)
    if current is not None and current.leaf_ver == row.leaf_ver:
        tenants.change(tx, current, status="deleted", reason=reason)


def _activate(tx: Tx, row: TenantRow, initial: _Made) -> Tenant:
    current = tenants.find(tx, row.name)
    if current is None or current.leaf_ver != row.leaf_ver:
        raise AlreadyExistsError(f"somebody else created the tenant {row.name} at this moment", tenant=row.name)
    active = tenants.change(tx, current, status="active", store=initial.store)
    if initial.head.head and initial.head.finding is None:
        tenants.record_head(tx, active, initial.head.head, initial.head.keys)
    return tenants.get(tx, row.name)


# --- exporting ---------------------------------------------------------------------------------------------------


def export(
    context: Context, tenant: str, dest: str | os.PathLike[str], *, keys: bool = False, progress: Progress | None = None
) -> Work[Backup]:
    """Back a tenant up into a new folder, whole, while it is in use; `keys` includes its private keys.

    `holdproof --tenant NAME restore` puts it back, and `holdproof restore` makes a store of it that has no parent.
    """
    row: TenantRow = yield from ask(Read(partial(tenants.require, tenant=tenant)))
    refuse_unusable(row)
    place = Parent(context.paths, context.settings).place_of(row)
    return (yield from ask(Call(partial(_export, place, Path(dest), keys, progress or no_progress))))


def _export(place: TenantPlace, dest: Path, keys: bool, tell: Progress) -> Backup:
    with closing(open_place(place, create=False)) as store:
        return backup.make(store.context, dest, keys=keys, configuration=keys, tell=tell)


# --- moving ------------------------------------------------------------------------------------------------------


def move(context: Context, tenant: str, place: str, *, progress: Progress | None = None) -> Work[TenantMoved]:
    """Move a tenant to another database, which is empty: its name on the parent's server, a URL, or `file`.

    Its log continues there, and what was left behind is sealed and says where it went. Nobody may have the tenant open.
    Killed before the seal, the tenant is where it was; after it, the same command finishes.
    """
    parent = Parent(context.paths, context.settings)
    row: TenantRow = yield from ask(Read(partial(tenants.require, tenant=tenant)))
    refuse_unusable(row)
    chosen = "" if place == "file" else parent.check_place(place)
    if chosen == row.place:
        raise InvalidInputError(f"the tenant {tenant} is there already", tenant=tenant, field="place")
    if not chosen and parent.url is not None:
        raise InvalidInputError("the tenants of a store on a server are on servers: name a database", field="place")
    last_head = yield from ask(Read(partial(tenants.last_head, tenant_id=row.id)))
    moved: TenantMoved = yield from ask(Call(partial(_moved_to, parent, row, chosen, progress)))
    # What arrived has to continue what was recorded, like any other head: a move excuses no rollback.
    log_head: SeenHead = yield from ask(Call(partial(heads.look, parent.at(tenant, chosen), last_head)))
    refuse_unusable((yield from ask(Write(partial(_moved, row=row, place=chosen, log_head=log_head)))))
    return moved


def _moved_to(parent: Parent, row: TenantRow, chosen: str, progress: Progress | None) -> TenantMoved:
    source = parent.place_of(row)
    target = parent.at(row.name, chosen)
    _ensure_database(target)
    _refuse_foreign(target, _SPACES)
    with open_tenants.released(source):
        if target.url is None:
            _clear_sealed(target)
        here, there = (each.direct_url or each.url or SQLITE for each in (source, target))
        moved = maintenance.move(here, there, source.home, progress=progress)
    return TenantMoved(row.name, chosen, generation(moved.origin)[0], moved.size, moved.verdict, moved.source)


def _clear_sealed(place: TenantPlace) -> None:
    """Remove what an earlier move left in the home of a tenant that comes back: sealed files, no longer its own."""
    files = {"kernel": place.paths.kernel_db, "membrane": place.paths.membrane_db}
    target = transfer.open_target(place.target, files)
    for space, file in files.items():
        if MOVED in (target.ledger(space) or {}):
            for each in (file, *(file.with_name(f"{file.name}{end}") for end in ("-wal", "-shm"))):
                each.unlink(missing_ok=True)
    folders.sync(place.home)


def _moved(tx: Tx, row: TenantRow, place: str, log_head: SeenHead) -> TenantRow:
    current = tenants.find(tx, row.name)
    if current is None or current.leaf_ver != row.leaf_ver:
        raise ConflictError(f"somebody else changed the tenant {row.name} meanwhile", tenant=row.name)
    changed = tenants.change(tx, current, place=place, finding=log_head.finding)
    last_head = tenants.last_head(tx, row.id)
    if log_head.finding is None and log_head.head and (last_head is None or last_head.head != log_head.head):
        tenants.record_head(tx, changed, log_head.head, log_head.keys)
    return changed


# --- deleting ----------------------------------------------------------------------------------------------------


def delete(context: Context, tenant: str, *, reason: str) -> Work[Tenant]:
    """Delete a tenant for good: its database, keys and files; the parent keeps that it was, and its recorded heads.

    Nobody may have it open. RetentionHeldError where a legal hold or a retention floor keeps something in it,
    LockedError where it is locked. Backups of it stay where they are.
    """
    validation.words("reason", reason.strip(), least=1, most=1000)
    parent = Parent(context.paths, context.settings)
    row: TenantRow = yield from ask(Read(partial(tenants.require, tenant=tenant)))
    place = parent.place_of(row)
    yield from ask(Call(partial(_refuse_shared, place)))
    is_begun_here = row.status == "active"
    if is_begun_here:
        yield from ask(Call(partial(_refuse_held, place, row)))
        last_head = yield from ask(Read(partial(tenants.last_head, tenant_id=row.id)))
        log_head: SeenHead = yield from ask(Call(partial(_last_look, place, row, last_head)))
        row = yield from ask(Write(partial(_deleting, row=row, reason=reason.strip(), log_head=log_head)))
    try:
        row = yield from ask(Call(partial(_remove, context.database, place, row, reason.strip())))
    except BusyError:
        # Somebody opened it at the last moment: it stays. Where that somebody deletes it the row is theirs by now.
        if is_begun_here and not (yield from ask(Call(partial(heads.is_gone, place)))):
            with suppress(ConflictError):
                yield from ask(Write(partial(_take_back, row=row)))
        raise
    return (yield from ask(Write(partial(_deleted, row=row, reason=reason.strip()))))


def _take_back(tx: Tx, row: TenantRow) -> None:
    """Leave a tenant as it was before somebody wanted to delete it; ConflictError where the row was changed since."""
    tenants.change(tx, row, status="active", reason=None)


def _deleted(tx: Tx, row: TenantRow, reason: str) -> Tenant:
    last_head = tenants.last_head(tx, row.id)
    tenant = tenants.change(tx, row, status="deleted", reason=reason).value
    return tenant if last_head is None else replace(tenant, size=last_head.size, recorded_at=last_head.recorded_at)


def _last_look(place: TenantPlace, row: TenantRow, last_head: TenantHead | None) -> SeenHead:
    # What has a finding may not be readable at all; it can be deleted all the same.
    return heads.look(place, last_head) if row.finding is None else SeenHead("", 0, "", row.finding)


def _deleting(tx: Tx, row: TenantRow, reason: str, log_head: SeenHead) -> TenantRow:
    changed = tenants.change(tx, row, status="deleting", reason=reason, finding=log_head.finding)
    last_head = tenants.last_head(tx, row.id)
    if log_head.finding is None and log_head.head and (last_head is None or last_head.head != log_head.head):
        tenants.record_head(tx, changed, log_head.head, log_head.keys)
    return changed


def _refuse_shared(place: TenantPlace) -> None:
    """Raise where the home is a link to a folder in which there is something of the parent or of another tenant."""
    if not place.home.is_symlink():
        return
    home = place.home.resolve()
    data = place.home.parent.parent.resolve()
    others = [each.resolve() for each in place.home.parent.iterdir() if each.name != place.home.name]
    if any(home.is_relative_to(each) or each.is_relative_to(home) for each in (data, *others)):
        raise ConflictError(
            f"{place.home} is a link to {home}, which is not this tenant's alone: remove the link, then delete again",
            tenant=place.name,
            path=str(home),
        )


def _refuse_held(place: TenantPlace, row: TenantRow) -> None:
    """Raise where something in the tenant has to stay, or somebody has it open."""
    with open_tenants.released(place), _alone(place):
        if not heads.is_gone(place):
            _refuse_rules(place, row)


def _refuse_rules(place: TenantPlace, row: TenantRow) -> None:
    if row.store is None:
        return
    try:
        with closing(open_to_read(place.session_target)) as database:
            rules, recorded = database.read(lambda tx: (_rules(tx), lockdown.current(tx))).result()
    except (*heads.DAMAGE, DatabaseError) as error:
        # What has a finding may not be readable at all, and can be deleted all the same.
        if row.finding is None or isinstance(error, UnavailableError):
            raise
        return
    # One with a finding may well be locked because of it; a hold keeps it all the same.
    if row.finding is None and (locked := lockdown.read_flag(place.paths.lockdown) or recorded):
        raise LockedError(
            f"the tenant {place.name} is locked since {locked.locked_at}: {locked.reason}", **locked.to_dict()
        )
    for rule in rules:
        raise RetentionHeldError(f"a {rule.kind} of {rule.scope} keeps the tenant: {rule.reason}", rule=rule.id)


def _rules(tx: Tx) -> list[RetentionRule]:
    return retention_rules.every(tx, all=False, ns=EVERY)


@contextmanager
def _alone(place: TenantPlace) -> Iterator[None]:
    """Hold the lock of a tenant's home, so that nobody on this machine opens it; BusyError where somebody has."""
    if not place.home.exists():
        yield
        return
    lock = swap.StoreLock(place.paths, exclusive=True, timeout_s=0)
    try:
        yield
    finally:
        lock.release()


def _refuse_others(parent: Database, place: TenantPlace, row: TenantRow) -> None:
    """Raise where the database of a place is another's, though the tenant's row names it."""
    _, name = place.administration
    if heads.is_gone(place):
        # Without a store it is removed only empty, as it was found or created.
        _refuse_foreign(place, _SPACES if row.store is not None or place.paths.keys.exists() else ())
        return
    head = heads.look(place, None).head
    store = generation(checkpoint.parse(head.encode()).checkpoint.origin)[0] if head else row.store
    other = None
    if store is not None:
        other = parent.read(partial(tenants.other_of_store, store=store, tenant_id=row.id)).result()
    is_begun = row.store is not None or place.paths.keys.exists()
    if other is not None or not is_begun or store != (row.store or store):
        whose = f"of the tenant {other}" if other else f"{store}"
        raise ConflictError(
            f"in the database {name} is another store, {whose}, which is not removed: put the tenant's own back, or"
            " accept this one (`holdproof tenants accept`)",
            tenant=row.name,
            database=name,
        )


def _remove(parent: Database, place: TenantPlace, row: TenantRow, reason: str) -> TenantRow:
    """Remove the database and the home of a tenant, and return its row; what is gone already is no error.

    What stops it while nothing is removed, a rule or an open connection, leaves a tenant that was in use as it was.
    """
    aside = place.home.with_name(f"{_GOING}{row.id}")
    with open_tenants.released(place), _alone(place), disk.translated(place.home):
        try:
            if not heads.is_gone(place):
                _refuse_rules(place, row)
            # Whoever read the row before, to delete it or to take that back, is refused from here on: the lock of the
            # home holds on one machine only, and somebody may have deleted it and given the name to another.
            row = parent.write(partial(tenants.change, current=row, status="deleting", reason=reason)).result()
            if place.url is not None and transfer.server("databases").is_there(*place.administration):
                _refuse_others(parent, place, row)
                transfer.server("databases").drop(*place.administration)
        except (BusyError, RetentionHeldError, LockedError):
            if row.store is not None and not heads.is_gone(place):
                parent.write(partial(_take_back, row=row)).result()
            raise
        for file in disk.files(place.paths.keys, hidden=True):
            disk.shred(file)
        if os.path.lexists(place.home):
            place.home.rename(aside)
            folders.sync(aside.parent)
    _remove_home(aside)
    return row


def _remove_home(aside: Path) -> None:
    """Remove a home that was put aside; of one that is a link, what the link leads to and then the link."""
    home = aside.resolve()
    disk.remove_tree(home)
    # The folder itself stays where something is mounted on it.
    if home.exists() and any(home.iterdir()):
        raise ReadOnlyError(f"{home} cannot be removed: correct its permissions, then delete again", path=str(home))
    if aside.is_symlink():
        aside.unlink()
        folders.sync(aside.parent)
