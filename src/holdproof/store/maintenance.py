"""Work on a store that is closed, or too damaged to open: check, verify, migrate, restore, copy, move, import.

Plain blocking functions, defined once. `holdproof.sync` offers them as they are, `holdproof.client` in a thread.
"""

from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from holdproof import validation
from holdproof.content import disk
from holdproof.crypto.keys import PrivateKey
from holdproof.db import MEMORY, open_database, transfer
from holdproof.db import migrate as migrations
from holdproof.db.sqlite import check_file, check_structure, reseal_file
from holdproof.errors import (
    CorruptError,
    HoldproofError,
    InvalidInputError,
    MovedError,
    NoStoreError,
    NotFoundError,
    ReadOnlyError,
    StoreGoneError,
    UnavailableError,
)
from holdproof.executors import SyncExecutor
from holdproof.lazy import lazy_module
from holdproof.model.backup import Drill, Restored, StartedOver
from holdproof.model.doctor import HealthCheck, HealthReport
from holdproof.model.legacy import LegacyReport
from holdproof.model.progress import Progress
from holdproof.model.status import Check, Migrated, Partitioned, Resealed, Roles
from holdproof.model.transfer import Copied, Moved
from holdproof.model.verify import Report
from holdproof.storage.executors import StorageExecutor, SyncStorageExecutor
from holdproof.storage.open_stores import OpenStores
from holdproof.store.opening import (
    Location,
    has_kernel,
    has_store,
    head_file_of,
    locate,
    open_at,
    open_located,
    open_store,
    refuse_absent,
    refuse_gone,
    require_store,
)
from holdproof.upkeep.backups import swap
from holdproof.upkeep.backups.backup_list import no_progress
from holdproof.upkeep.backups.staging import RestoreRequest
from holdproof.urls import redact

if TYPE_CHECKING:
    from holdproof.evidence import statements
    from holdproof.importers import kgents
    from holdproof.upkeep import doctor as examination
    from holdproof.upkeep.backups import copy as copying
    from holdproof.upkeep.backups import drill as rehearsing
    from holdproof.upkeep.backups import move as moving
    from holdproof.upkeep.backups import restore as restoring
    from holdproof.upkeep.backups import start_over as starting_over
    from holdproof.upkeep.verification import verify as verification
else:
    kgents = lazy_module("holdproof.importers.kgents")
    examination = lazy_module("holdproof.upkeep.doctor")
    copying = lazy_module("holdproof.upkeep.backups.copy")
    moving = lazy_module("holdproof.upkeep.backups.move")
    rehearsing = lazy_module("holdproof.upkeep.backups.drill")
    restoring = lazy_module("holdproof.upkeep.backups.restore")
    starting_over = lazy_module("holdproof.upkeep.backups.start_over")
    verification = lazy_module("holdproof.upkeep.verification.verify")
    statements = lazy_module("holdproof.evidence.statements")

_RECOVERY_BYTES: Final = 1 << 16


def open_services(
    where: str | Path | None, url: str | None, executor: StorageExecutor, *, create: bool = True
) -> OpenStores:
    """Return the application stores at `where` or `url` without the kernel; each is opened at its first use."""
    location = locate(where, url)
    swap.finish(location.paths)
    if not create:
        require_store(location)
    return OpenStores(location.settings, location.paths, executor)


def check(where: str | Path | None = None, url: str | None = None, *, home: str | Path | None = None) -> Check:
    """Check a store that may be too damaged to open: its file first, then the whole if that is sound.

    Like everything here that only reads, it raises NoStoreError where there is no store, and creates none.
    """
    location = locate(where, url, home=home)
    if not has_kernel(location):
        refuse_absent(location)
    if isinstance(location.target, Path):
        # A damaged file may still open and answer wrongly, so its pages are checked first.
        findings = check_file(location.target)
        if findings:
            return Check(findings)
    with closing(open_store(where, url, home=home)) as store:
        return store.check()


def verify(
    where: str | Path | None = None,
    url: str | None = None,
    *,
    home: str | Path | None = None,
    full: bool = False,
    since_last: bool = False,
    lock: bool = False,
    readonly: bool = False,
    progress: Progress | None = None,
) -> Report:
    """Verify a store, also one that is too damaged to open; with `lock` tampering locks it.

    A `readonly` store, such as evidence on media that cannot be written, is not changed, and so not locked either.
    Raises NoStoreError where there is no store and never was one, and whatever else kept it from opening if that is
    no damage: a wrong URL, a server that is down.
    """
    location = locate(where, url, home=home)
    lock = lock and not readonly
    # The kernel itself: the application stores may still be there when it is gone, and opening would create another.
    if not has_kernel(location):
        # A head that was kept here proves that there was a store: then its absence is the finding.
        try:
            refuse_gone(location)
        except StoreGoneError as error:
            return verification.damaged(error, location.paths, location.target, lock=lock)
        refuse_absent(location)
    try:
        with closing(open_store(where, url, home=home, readonly=readonly)) as store:
            # Only who may lock the store leaves a report in it: a plain check changes nothing.
            work = verification.check(
                store.context,
                full=full,
                since_last=since_last,
                lock=lock,
                who="operator" if lock else None,
                progress=progress,
            )
            return SyncExecutor(store.database).run(work)
    except ReadOnlyError as error:
        place = redact(str(location.target))
        message = f"{place} cannot be written: verify it with `readonly=True`"
        if lock:
            message = f"{place} cannot be written, so tampering could not lock it: verify without --lock"
        raise ReadOnlyError(message, remedy="", path=place) from error
    except HoldproofError as error:
        if verification.is_foreign_writer(error, location.target):
            # In full: what that program wrote may be of any age.
            return verify(
                where, url, home=home, full=full or since_last, lock=lock, readonly=readonly, progress=progress
            )
        return verification.damaged(error, location.paths, location.target, lock=lock)


def reseal(
    where: str | Path | None = None,
    url: str | None = None,
    *,
    home: str | Path | None = None,
    progress: Progress | None = None,
) -> Resealed:
    """Write the page checksums of a closed SQLite store anew, where another SQLite program left pages without.

    The kernel is verified in full first: CorruptError if its content is not what the log says. Application tables and
    telemetry are under no log; of those only the structure is checked.
    """
    location = locate(where, url, home=home)
    if not isinstance(location.target, Path):
        raise InvalidInputError("page checksums are SQLite's: a store on a server has none to write")
    if not has_kernel(location):
        refuse_absent(location)
    report = verify(where, url, home=home, full=True, lock=False, progress=progress)
    wrong = [each for each in report.findings if each.verdict.locks and not each.outside]
    if wrong:
        what = f"the content is not what the log says ({wrong[0].place}: {wrong[0].what})"
        raise CorruptError(
            f"nothing was resealed: {what}; restore a backup", findings=[each.to_dict() for each in wrong]
        )
    files = (location.target, location.paths.membrane_db, location.paths.telemetry_db)
    return Resealed({path.name: _reseal(path) for path in files if path.exists()})


def _reseal(path: Path) -> int:
    if problems := check_structure(path):
        raise CorruptError(f"{path} is damaged: {problems[0]}; restore a backup", path=str(path))
    return reseal_file(path)


def doctor(where: str | Path | None = None, url: str | None = None, *, home: str | Path | None = None) -> HealthReport:
    """Examine a store and its surroundings, also one that cannot be opened; NoStoreError where there is none."""
    location = locate(where, url, home=home)
    if isinstance(location.target, Path):
        require_store(location)
    try:
        # The server may be what is wrong: then the report says so.
        store = open_store(where, url, home=home, create=False)
    except NoStoreError:
        raise
    except HoldproofError as error:
        return examination.unopened(location.paths, error)
    with closing(store):
        checks = examination.examine(store.context).checks
        # `status` repeats some of what the checks found.
        reported = {each.what for each in checks}
        reasons = [reason for reason in store.status().degraded if reason not in reported]
        return HealthReport([*checks, *(HealthCheck("warning", "degraded", reason) for reason in reasons)])


def migrate(
    where: str | Path | None = None,
    url: str | None = None,
    *,
    home: str | Path | None = None,
    dry_run: bool = False,
) -> Migrated:
    """Apply pending migrations without opening the store; with `dry_run` only list them."""
    location = locate(where, url, home=home)
    if dry_run:
        require_store(location)
    elif location.target != MEMORY:
        location.paths.create()
    target = location.target
    steps = migrations.shipped("kernel")
    with closing(open_database(target, migrate=False)) as database:
        applied = [] if dry_run else migrations.migrate(database, steps)
        return Migrated(applied=applied, pending=[step.name for step in migrations.pending(database, steps)])


def roles(
    where: str | Path | None = None,
    url: str | None = None,
    *,
    home: str | Path | None = None,
    owner: str = "holdproof_owner",
    application: str = "holdproof_app",
    services: str = "holdproof_services",
    reader: str = "holdproof_reader",
    apply: bool = False,
) -> Roles:
    """Return the SQL of four logins with the least rights on a server; with `apply` it is run, in one transaction.

    InvalidInputError for a store that is no server's.
    """
    location = locate(where, url, home=home)
    if location.settings.database_url in {None, MEMORY}:
        raise InvalidInputError("logins belong to a server: give the URL of a PostgreSQL database (--url)")
    server = transfer.server("roles")
    logins = server.ServerLogins(owner, application, services, reader)
    run = server.apply if apply else server.script
    return Roles(run(location.settings.session_url, logins), apply)


def partition(
    where: str | Path | None = None,
    url: str | None = None,
    *,
    home: str | Path | None = None,
    months: int = 24,
) -> Partitioned:
    """Divide the audit events of a store on PostgreSQL by months, and make the months up to so many ahead.

    The store may be in use. Run it again before the months end, as its owner. InvalidInputError for a store that is no
    server's: SQLite has no partitions.
    """
    location = locate(where, url, home=home)
    if location.settings.database_url in {None, MEMORY}:
        raise InvalidInputError(
            "SQLite has no partitions, and needs none: `holdproof retention archive` removes a month there too"
        )
    ahead = validation.count("months", months, least=1, most=120)
    layout = transfer.server("partitions").ensure(location.settings.session_url, ahead=ahead)
    return Partitioned(*layout)


def migrate_legacy(
    source: str | Path | None = None,
    home: str | Path | None = None,
    url: str | None = None,
    *,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> LegacyReport:
    """Import data of kgents from `source`, or from `~/.kgents` and its XDG home; nothing is deleted there.

    With `dry_run` everything is read and nothing is written.
    """
    roots = kgents.roots() if source is None else [kgents.required(Path(source).expanduser().absolute())]
    with closing(open_services(home, url, SyncStorageExecutor)) as stores:
        return kgents.migrate(stores, roots, dry_run=dry_run, progress=progress)


def restore(
    src: str | Path,
    home: str | Path | None = None,
    url: str | None = None,
    *,
    to_index: int | None = None,
    to_time: str | None = None,
    key: str | Sequence[str] | None = None,
    erasures: str | Path | None = None,
    root_recovery: str | Path | None = None,
    other: bool = False,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> Restored:
    """Replace the store at `home` or `url`, which must be closed, by that of a backup; the old one is kept aside.

    The backup, at a path or at `s3://bucket/folder`, is verified first; on any failure nothing has changed. `to_index`
    and `to_time` choose the newest backup of a folder that is not after that log index or moment. `key` is the id of
    the log key that must have signed it, and of the ML-DSA-44 key where its heads have a second signature; `erasures`
    is a file of erasures to apply again; `other` allows another store than the one here. `root_recovery` is a file with
    the recovery code of the store's root key: on a machine without keys of the store it vouches for new ones. The root
    key itself is not stored.
    """
    location = locate(home, url)
    listed = None if erasures is None else Path(erasures)
    root = None if root_recovery is None else _root(Path(root_recovery))
    named = (key,) if isinstance(key, str) else tuple(key or ())
    request = RestoreRequest(Path(src), to_index, to_time, named, listed, other, root, dry_run, progress)
    return restoring.restore(location.paths, location.target, request)


def _root(recovery: Path) -> PrivateKey:
    """Read a recovery code; NotFoundError without the file, FormatError for a text that is none."""
    try:
        text = disk.read(recovery, _RECOVERY_BYTES).decode()
    except FileNotFoundError:
        raise NotFoundError(f"{recovery}: no such file", path=str(recovery)) from None
    except (OSError, UnicodeDecodeError) as error:
        raise UnavailableError(f"cannot read {recovery}: {error}", path=str(recovery)) from error
    return statements.from_recovery(text)


def start_over(
    where: str | Path | None = None, url: str | None = None, *, home: str | Path | None = None, reason: str
) -> StartedOver:
    """Accept the store that is here, or begin a new one, in place of the one whose heads this home keeps.

    For a database that was deleted or replaced on purpose, and for a store that another machine restored. The log says
    so, with the reason; heads of another store are moved to `state/former-heads`. ConflictError where the heads are
    those of this very store: then a backup is to be restored.
    """
    if not reason.strip():
        raise InvalidInputError("say why the store that was here is given up", field="reason")
    location = locate(where, url, home=home)
    if location.target == MEMORY:
        raise InvalidInputError("a store in memory keeps no heads, so there is nothing to start over from")
    head_file = head_file_of(location)
    if not head_file.stores_here():
        refuse_absent(location)
    swap.finish(location.paths)
    if not has_store(location):
        open_located(location, replacing=True).close()
    store_lock = swap.StoreLock(location.paths, exclusive=True, timeout_s=0)
    try:
        return starting_over.start_over(location.paths, location.target, head_file, reason=reason.strip())
    finally:
        store_lock.release()


def drill(
    folder: str | Path,
    home: str | Path | None = None,
    url: str | None = None,
    *,
    root_recovery: str | Path | None = None,
    to_url: str | None = None,
    keep: bool = False,
    progress: Progress | None = None,
) -> Drill:
    """Rehearse the loss of a store: back it up, restore it as on a new machine, verify it there, and time each step.

    The store may be in use and is left alone. `folder` must not be there yet: it stands for the new machine, which has
    nothing of the old one but the backup and the recovery code of the root key (`root_recovery`). `to_url` names an
    empty database of a server to restore into; without it the new machine has a file. With `keep` the restored store
    and the backup stay; otherwise the folder is removed, and a database is yours to drop.
    """
    # Before anything is made, so that a wrong path leaves no folder that the next attempt would trip over.
    root = None if root_recovery is None else _root(Path(root_recovery))
    place = rehearsing.Rehearsal.prepare(Path(folder), to_url)
    tell = progress or no_progress
    try:
        with closing(open_store(home, url, create=False)) as store:
            backup = place.back_up(store.context, tell)
            place.lose()
            restored = place.timed("restore", lambda: place.restore(root, tell), lambda each: each.origin)
            with closing(open_at(place.paths, place.target)) as machine:
                work = verification.run(machine.context, full=True, progress=progress)
                executor = SyncExecutor(machine.database)
                report = place.timed("verify", lambda: executor.run(work), lambda each: each.verdict.word)
            written_since = rehearsing.log_size(store.context) - backup.size
    finally:
        if not keep:
            place.remove()
    return place.outcome(backup, restored, report, written_since, keep=keep)


def copy(
    src: str | Path,
    dst: str | Path,
    home: str | Path | None = None,
    *,
    to_home: str | Path | None = None,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> Copied:
    """Make a second store with everything of the first, which is left alone and may be in use.

    Each of `src` and `dst` is a home or the URL of a database; the home of a URL is `home` for the source and `to_home`
    for the copy. The copy is verified, and its log continues under a new origin. Its keys are those of the source.
    """
    plan = copying.plan(src, dst, home, to_home)
    copying.refuse(plan)
    swap.finish(plan.source_paths)
    with closing(open_located(Location(plan.source_paths, plan.settings, plan.source))) as store:
        copied = copying.run(plan, store.context, progress or no_progress, dry_run=dry_run)
    if dry_run:
        return copied
    with closing(open_at(plan.target_paths, plan.target)) as store:
        report = SyncExecutor(store.database).run(verification.check(store.context, progress=progress))
    return replace(copied, verdict=report.verdict.word)


def move(
    src: str | Path,
    dst: str | Path,
    home: str | Path | None = None,
    *,
    telemetry: bool = False,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> Moved:
    """Move a closed store to another database: each of `src` and `dst` is a URL, a home, or `sqlite` for the home's.

    The target is verified before the source is sealed, which then says where the store went. Telemetry stays in the
    home unless it is asked for.
    """
    plan = moving.plan(src, dst, home, telemetry=telemetry)
    plan.paths.create()
    swap.finish(plan.paths)
    moving.refuse_absent(plan)
    # Opening it once applies pending migrations and sequences pending leaves. A source that is sealed already refuses
    # that: a move was killed after the seal, and only its end is missing.
    with suppress(MovedError):
        open_at(plan.paths, plan.source).close()
    store_lock = swap.StoreLock(plan.paths, exclusive=True, timeout_s=0)
    try:
        moved = moving.move(plan, progress or no_progress, dry_run=dry_run)
    finally:
        store_lock.release()
    if dry_run:
        return moving.outcome(plan, moved, "not verified")
    with closing(open_at(plan.paths, plan.target)) as store:
        report = SyncExecutor(store.database).run(verification.check(store.context, progress=progress))
    return moving.outcome(plan, moved, report.verdict.word, dry_run=False)
