"""`Store`: one open Holdproof, whatever the face: its paths, its settings, its kernel database.

Rules:
- The kernel never falls back and never guesses: what is configured is opened, or a typed error says why not.
- The first run says where data lives.
"""

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from importlib import metadata
from pathlib import Path
from typing import Any

from holdproof import config
from holdproof.crypto.checkpoint import SignedCheckpoint
from holdproof.db import MEMORY, Hooks, Tx, migrate, open_database, sql
from holdproof.db.sqlite import check_file
from holdproof.errors import ClosedError, CorruptError, HoldproofError, InvalidInputError, MovedError
from holdproof.evidence import crash_recovery, lockdown, tree
from holdproof.evidence import startup as evidence
from holdproof.evidence.heads import HeadFile
from holdproof.evidence.key_files import KeyFolder, Keys, MemoryKeys
from holdproof.evidence.witness_client import level_of
from holdproof.executors import SyncExecutor
from holdproof.importers import kgents
from holdproof.memory.images import image
from holdproof.model.backup import Restored
from holdproof.model.copy import Copied
from holdproof.model.doctor import Examined, Symptom
from holdproof.model.legacy import LegacyReport
from holdproof.model.progress import Progress
from holdproof.model.status import Check, Migrated, Status
from holdproof.model.verify import Report
from holdproof.runtime import sagas
from holdproof.storage import degraded
from holdproof.storage.executors import SyncStorageExecutor
from holdproof.storage.lazy_stores import LazyStores
from holdproof.storage.open_stores import StorageExecutor
from holdproof.store.context import Context, Embedder
from holdproof.upkeep import doctor, erase, head_webhook, skill_watch
from holdproof.upkeep import lockdown as response
from holdproof.upkeep.backups import copy as copying
from holdproof.upkeep.backups import restore as restoring
from holdproof.upkeep.backups import swap
from holdproof.upkeep.backups.backup_list import silent
from holdproof.upkeep.backups.staging import Wanted
from holdproof.upkeep.head_webhook import HeadWebhook
from holdproof.upkeep.verification import verify

_log = logging.getLogger("holdproof")

VERSION = metadata.version("holdproof")


class Store:
    """What every face of one store shares."""

    def __init__(
        self, context: Context, presence: swap.StoreLock | None = None, carrying: HeadWebhook | None = None
    ) -> None:
        self.context, self._presence, self._courier = context, presence, carrying
        self.paths, self.settings, self.database = context.paths, context.settings, context.database
        self._closed = False

    def services(self, face: StorageExecutor) -> LazyStores:
        """What services store over the same home, for one of the faces; nothing is opened before its first use."""
        if self._closed:
            raise ClosedError("the store is closed")
        opened: LazyStores = self.context.services.setdefault(face, LazyStores(self.settings, self.paths, face))
        return opened

    def status(self) -> Status:
        """Where everything lives, versions and sizes, and what is degraded."""
        kept = self.context.marks.largest() if self.context.marks else {}
        facts, applied, log = self.database.read(
            lambda tx: (_facts(tx), migrate.applied(tx), level_of(tx, kept).text)
        ).result()
        where = self.database.backend.facts()
        return Status(
            version=VERSION,
            store_id=facts["store_id"],
            created_at=facts["created_at"],
            first_run=self.database.first_run and where.get("path") != MEMORY,
            paths={name: str(getattr(self.paths, name)) for name in ("data", "config", "state", "cache")},
            database=where,
            migrations=sorted(applied),
            log=log,
            degraded=self._degraded(where),
        )

    def _degraded(self, where: dict[str, Any]) -> list[str]:
        found = list(self.settings.warnings)
        found += response.warnings(self.context)
        found += degraded.warnings(degraded.read(self.paths)).values()
        found += image.warnings(self.paths)
        found += head_webhook.warnings(self._courier, os.environ)
        found += skill_watch.warnings(self.context)
        if where.get("path") == MEMORY:
            found.append("the store is in memory: nothing survives the end of this process")
        return found

    def check(self) -> Check:
        """The database's own integrity check, and its migrations against ours."""
        findings = list(self.database.backend.check())
        try:
            missing = migrate.pending(self.database, migrate.shipped("kernel"))
            findings += [f"migration {step.name} is not applied" for step in missing]
        except HoldproofError as error:
            findings.append(str(error))
        return Check(findings)

    def close(self) -> None:
        """Finish queued work and close; may be called twice."""
        if not self._closed:
            self._closed = True
            crash_recovery.at_closing(self.context)
        for stores in self.context.services.values():
            stores.close()
        self.context.log.stop()
        self.database.close()
        if self.context.marks is not None:
            self.context.marks.flush()
        if self._courier is not None:
            self._courier.close()
        if self._presence is not None:
            self._presence.end()


def open_store(
    home: str | Path | None = None,
    url: str | None = None,
    *,
    keys: Keys | None = None,
    embedder: Embedder | None = None,
    dimensions: int | None = None,
    **options: Any,
) -> Store:
    """Open the store at `home` or `url`, or where the environment and the configuration say; migrated.

    `keys` replaces the key folder (a KMS), `embedder` makes intent vectors of `dimensions` numbers.
    """
    paths, settings, target = _locate(home, url)
    if target != MEMORY:
        paths.create()
    presence = swap.enter(paths) if target != MEMORY else None
    try:
        return _open(paths, settings, target, presence, keys=keys, embedder=embedder, dimensions=dimensions, **options)
    except BaseException:
        if presence is not None:
            presence.end()
        raise


def _open(
    paths: config.Paths,
    settings: config.Settings,
    target: str | Path,
    presence: swap.StoreLock | None,
    *,
    keys: Keys | None,
    embedder: Embedder | None,
    dimensions: int | None,
    **options: Any,
) -> Store:
    disk = target != MEMORY
    marks, carrying = (HeadFile(paths.heads), head_webhook.configured(os.environ)) if disk else (None, None)
    database = open_database(target, hooks=Hooks(), **options)
    context: Context | None = None
    try:
        store_id = database.write(_introduce).result()
        keys = keys or (KeyFolder(paths.keys) if disk else MemoryKeys())
        known = [*marks.largest().values()] if marks else []
        with _readable():
            log = evidence.start(database, keys, store_id, _publishing(marks, carrying), known)
            context = Context(paths, settings, database, keys, log, marks, embedder, dimensions)
            if disk:  # what a restore into a server that was killed left in the middle
                swap.settle(paths, database.read(tree.state).result().origin, str(target))
            lockdown.start(database, paths.lockdown if disk else None)
            if database.first_run and disk:
                _say_where(target, known)
            response.at_opening(context)
            crash_recovery.at_opening(context)
            erase.at_opening(context)
            sagas.at_opening(database)
    except BaseException:
        if context is not None:
            context.log.stop()
        database.close()
        raise
    return Store(context, presence, carrying)


@contextmanager
def _readable() -> Iterator[None]:
    """A value of another type than ours (SQLite keeps any in any column) is damage, not a defect of Holdproof."""
    try:
        yield
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise CorruptError(f"the store holds what Holdproof never writes: {error}") from error


def _say_where(target: str | Path, known: list[SignedCheckpoint]) -> None:
    _log.info("a new store was created; its data lives in %s", config.redact(str(target)))
    if known:
        names = ", ".join(each.checkpoint.origin for each in known)
        _log.warning("another store was here before: heads of %s were kept", names)


def _publishing(marks: HeadFile | None, carrying: HeadWebhook | None) -> Callable[[str], None]:
    """Where durable heads go; a store in memory keeps none elsewhere."""

    def publish(head: str) -> None:
        if carrying is not None:
            carrying.publish(head)
        if marks is not None:
            marks.publish(head)

    return publish


def open_services(home: str | Path | None = None, url: str | None = None) -> LazyStores:
    """What services store at `home` or `url`, for threads, without the kernel; each store is opened when asked for."""
    paths, settings, _ = _locate(home, url)
    return LazyStores(settings, paths, SyncStorageExecutor)


def migrate_legacy_store(
    home: str | Path | None = None,
    url: str | None = None,
    *,
    source: str | Path | None = None,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> LegacyReport:
    """Take over data of kgents: from `source`, else from `~/.kgents` and its XDG home; nothing is deleted.

    With `dry_run` everything is read and nothing is touched.
    """
    places = kgents.roots() if source is None else [kgents.required(Path(source).expanduser().absolute())]
    with closing(open_services(home, url)) as stores:
        return kgents.migrate(stores, places, dry_run=dry_run, progress=progress)


def check_store(home: str | Path | None = None, url: str | None = None) -> Check:
    """Check a store that may be too damaged to open: first its file, then, if that is sound, the whole."""
    _, _, target = _locate(home, url)
    if isinstance(target, Path) and target.exists():
        findings = check_file(target)
        if findings:
            return Check(findings)
    store = open_store(home, url)
    try:
        return store.check()
    finally:
        store.close()


def restore_store(
    src: str | Path,
    home: str | Path | None = None,
    url: str | None = None,
    *,
    to_index: int | None = None,
    to_time: str | None = None,
    key: str | None = None,
    erasures: str | Path | None = None,
    other: bool = False,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> Restored:
    """Put the store of a backup in the place of the one at `home`; verified first, the old one kept aside.

    `to_index` and `to_time` choose the newest backup of a folder that is not after that log index or moment. `key` is
    the id of the log key that must have signed; `other` allows another store than the one here.
    """
    paths, _, target = _locate(home, url)
    listed = None if erasures is None else Path(erasures)
    wanted = Wanted(Path(src), to_index, to_time, key, listed, other, dry_run, progress)
    return restoring.restore(paths, target, wanted)


def copy_store(
    src: str | Path,
    dst: str | Path,
    home: str | Path | None = None,
    *,
    telemetry: bool = False,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> Copied:
    """Move a store to another database: each of `src` and `dst` is a URL, a home, or `sqlite` for the home in use.

    The source is sealed and says where it went. Telemetry stays in the home unless it is asked for.
    """
    journey = copying.plan(src, dst, home, telemetry=telemetry)
    journey.paths.create()
    swap.finish(journey.paths)
    _settle(journey)
    presence = swap.StoreLock(journey.paths, alone=True, patience_s=0)
    try:
        moved = copying.move(journey, progress or silent, dry_run=dry_run)
    finally:
        presence.end()
    if dry_run:
        return copying.told(journey, moved, "not verified")
    with closing(_open_at(journey.paths, journey.target)) as store:
        report = SyncExecutor(store.database).run(verify.run(store.context, progress=progress))
    return copying.told(journey, moved, report.verdict.word, dry_run=False)


def _settle(journey: copying.Journey) -> None:
    """See that the source is up to date, sound at a glance, and that nothing of its log is pending."""
    copying.refuse_absent(journey)
    with suppress(MovedError):  # a copy that was killed after the seal: it is only to be finished
        _open_at(journey.paths, journey.source).close()


def _open_at(paths: config.Paths, target: str | Path) -> Store:
    """Open the database that is meant, whatever the environment says."""
    settings = config.load(paths=paths, url=str(target) if isinstance(target, str) else None, override={}, env={})
    presence = swap.enter(paths)
    try:
        return _open(paths, settings, target, presence, keys=None, embedder=None, dimensions=None)
    except BaseException:
        presence.end()
        raise


def damaged_store(
    error: HoldproofError, home: str | Path | None = None, url: str | None = None, *, lock: bool = True
) -> Report:
    """What verification says of a store that cannot be opened; raises the error again if it tells of no damage."""
    paths, _, target = _locate(home, url)
    return verify.damaged(error, paths, target, lock=lock)


def examine_store(home: str | Path | None = None, url: str | None = None) -> Examined:
    """What the doctor says of a store, even of one that cannot be opened."""
    paths, _, target = _locate(home, url)
    if isinstance(target, Path) and not target.exists():
        return doctor.absent(paths)
    try:
        store = open_store(home, url)
    except HoldproofError as error:
        return doctor.unopened(paths, error)
    try:
        found = doctor.examine(store.context).symptoms
        told = {each.what for each in found}
        found += [Symptom("note", "degraded", reason) for reason in store.status().degraded if reason not in told]
        return Examined(found)
    finally:
        store.close()


def migrate_store(home: str | Path | None = None, url: str | None = None, *, dry_run: bool = False) -> Migrated:
    """Apply what is pending, or only say what is."""
    _, _, target = _locate(home, url)
    steps = migrate.shipped("kernel")
    if dry_run and isinstance(target, Path) and not target.exists():
        return Migrated(applied=[], pending=[step.name for step in steps])
    database = open_database(target, migrate=False)
    try:
        applied = [] if dry_run else migrate.migrate(database, steps)
        return Migrated(applied=applied, pending=[step.name for step in migrate.pending(database, steps)])
    finally:
        database.close()


def _locate(home: str | Path | None, url: str | None) -> tuple[config.Paths, config.Settings, str | Path]:
    if str(home) == MEMORY:
        raise InvalidInputError(f"a store in memory is url={MEMORY!r}; home is a folder", home=MEMORY)
    paths = config.Paths.find(home)
    try:
        here: Path | None = Path.cwd()
    except FileNotFoundError:  # a deleted working folder holds no project
        here = None
    settings = config.load(paths=paths, url=url, project=here)
    swap.finish(paths)  # what a restore that was killed left in the middle
    return paths, settings, settings.database_url or paths.kernel_db


_ONCE = sql("INSERT INTO store_facts (key, value, updated_at) VALUES (:key, :value, :now) ON CONFLICT (key) DO NOTHING")


def _introduce(tx: Tx) -> str:
    """Give a new store its name, once."""
    tx.execute(_ONCE, key="store_id", value=tx.new_id(), now=tx.now)
    tx.execute(_ONCE, key="created_at", value=tx.now, now=tx.now)
    return _facts(tx)["store_id"]


_FACTS = sql("SELECT key, value FROM store_facts")


def _facts(tx: Tx) -> dict[str, str]:
    return dict(tx.all(_FACTS))
