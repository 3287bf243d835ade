"""The sync face: `with holdfast.sync.open() as store`."""

from pathlib import Path
from types import TracebackType
from typing import Any

from holdfast.errors import HoldfastError
from holdfast.evidence import audit, battles, dbom, keys, log, trust, witness
from holdfast.model.backup import Restored
from holdfast.model.status import Check, Migrated, Status
from holdfast.model.verify import Report
from holdfast.ops import SyncNoun, SyncRead, SyncRun, SyncRunWith, SyncWrite, refuse_running_loop
from holdfast.ops.decisions_sync import SyncDecisions
from holdfast.store import Store, check_store, damaged_store, migrate_store, open_store, restore_store
from holdfast.upkeep import backup, bundle, erase, lockdown, spread
from holdfast.upkeep import verify as whole
from holdfast.upkeep.findings import Progress
from holdfast.upkeep.importers import green_agent


class Verify(SyncNoun):
    """Everything the store holds, against its log and the heads kept elsewhere."""

    run = SyncRunWith(whole.run)


class Bundle(SyncNoun):
    """Records with all that a stranger needs to check them."""

    export = SyncRunWith(bundle.export)


class Lockdown(SyncNoun):
    """The state that refuses writes after tampering was found."""

    status = SyncRunWith(lockdown.status)
    lock = SyncRunWith(lockdown.lock)
    statement = SyncRunWith(lockdown.statement)
    unlock = SyncRunWith(lockdown.unlock)


class Backup(SyncNoun):
    """Copies of the whole store, made while it is in use."""

    create = SyncRunWith(backup.create)
    check = SyncRun(backup.check)
    list = SyncRun(backup.list)


class Erase(SyncNoun):
    """Persons and records, for good; every proof stays whole."""

    subject = SyncRunWith(erase.subject)
    record = SyncRunWith(erase.record)
    list = SyncRead(erase.list)


class Battles(SyncNoun):
    """Evaluations, each with its signed DBOM."""

    submit = SyncRunWith(battles.submit)
    list = SyncRead(battles.list)
    get = SyncRead(battles.get)
    reveal = SyncRead(battles.reveal)


class Dbom(SyncNoun):
    """The signed decision records, as evidence."""

    get = SyncRead(dbom.get)
    envelope = SyncRead(dbom.envelope)
    verify = SyncRun(dbom.verify)
    repair = SyncRunWith(dbom.repair)
    check_intent = SyncRun(spread.check_intent)
    spread = SyncRead(spread.spread)


class Keys(SyncNoun):
    """Who signs, for what, and up to where in the log."""

    list = SyncRead(keys.list)
    get = SyncRead(keys.get)
    rotate = SyncRunWith(keys.rotate)
    revoke = SyncRunWith(keys.revoke)
    revocation = SyncRead(keys.revocation)
    statement = SyncRunWith(keys.statement)
    import_statement = SyncWrite(keys.import_statement)
    init_root = SyncRunWith(trust.init_root)
    recover_root = SyncRunWith(trust.recover_root)
    export_root = SyncRunWith(trust.export_root)
    trust = SyncRunWith(trust.trust)


class Imports(SyncNoun):
    """Data of other programs, taken over as it is."""

    green_agent = SyncRunWith(green_agent.run)


class Log(SyncNoun):
    """The append-only log: its head, proofs out of it, audits of it, and who else keeps it."""

    head = SyncRead(log.head)
    find = SyncRead(log.find)
    prove = SyncRead(log.prove)
    prove_consistency = SyncRead(log.prove_consistency)
    tile = SyncRead(log.tile)
    pending = SyncRead(log.pending)
    audit = SyncRunWith(audit.audit)
    level = SyncRunWith(witness.level)
    witness = SyncRunWith(witness.witness)


class Holdfast(SyncDecisions):
    """An open store for threads. Close it, or use it as a context manager."""

    def __init__(self, core: Store) -> None:
        super().__init__(core.database)
        self.core, self.context = core, core.context
        self.battles, self.dbom, self.keys, self.imports = Battles(self), Dbom(self), Keys(self), Imports(self)
        self.backup, self.erase = Backup(self), Erase(self)
        self.verify, self.bundle, self.lockdown = Verify(self), Bundle(self), Lockdown(self)
        self.log = Log(self)

    def status(self) -> Status:
        """Where everything lives, versions and sizes, and what is degraded."""
        return self.core.status()

    def check(self) -> Check:
        """The database's own integrity check, and its migrations against ours."""
        return self.core.check()

    def close(self) -> None:
        """Finish queued work and close; may be called twice."""
        self.core.close()

    def __enter__(self) -> "Holdfast":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open(home: str | Path | None = None, url: str | None = None, **options: Any) -> Holdfast:
    """Open the store at `home` or `url` (`postgresql://…`, `:memory:`), or where the environment says."""
    refuse_running_loop()
    return Holdfast(open_store(home, url, **options))


def migrate(home: str | Path | None = None, url: str | None = None, *, dry_run: bool = False) -> Migrated:
    """Apply pending migrations without opening the store, or only say what is pending."""
    return migrate_store(home, url, dry_run=dry_run)


def check(home: str | Path | None = None, url: str | None = None) -> Check:
    """Check a store that may be too damaged to open."""
    return check_store(home, url)


def verify(
    home: str | Path | None = None,
    url: str | None = None,
    *,
    full: bool = False,
    lock: bool = True,
    progress: Progress | None = None,
) -> Report:
    """Verify a store that may be too damaged to open."""
    try:
        with open(home, url) as store:
            return store.verify.run(full=full, lock=lock, progress=progress)
    except HoldfastError as error:
        return damaged_store(error, home, url, lock=lock)


def restore(src: str | Path, home: str | Path | None = None, url: str | None = None, **options: Any) -> Restored:
    """Put a backup in the place of a store that is closed, verified first; options are those of `restore_store`."""
    refuse_running_loop()
    return restore_store(src, home, url, **options)
