"""The sync face: `with holdproof.sync.open() as store`."""

from pathlib import Path
from types import TracebackType
from typing import Any

from holdproof.api import Resources
from holdproof.errors import HoldproofError
from holdproof.executors import SyncExecutor, refuse_running_loop
from holdproof.model.backup import Restored
from holdproof.model.copy import Copied
from holdproof.model.doctor import Examined
from holdproof.model.legacy import LegacyReport
from holdproof.model.progress import Progress
from holdproof.model.status import Check, Migrated, Status
from holdproof.model.verify import Report
from holdproof.remote import SyncRemote, connect_sync
from holdproof.storage.open_stores import OpenStores
from holdproof.store.opening import (
    Store,
    check_store,
    copy_store,
    damaged_store,
    examine_store,
    migrate_legacy_store,
    migrate_store,
    open_services,
    open_store,
    restore_store,
)


class Holdproof(SyncExecutor, Resources[SyncExecutor]):
    """An open store for threads. Close it, or use it as a context manager."""

    def __init__(self, core: Store, ns: str | None = None) -> None:
        SyncExecutor.__init__(self, core.database, ns)
        Resources.__init__(self, self)
        self.core, self.context = core, core.context

    def status(self) -> Status:
        """Where everything lives, versions and sizes, and what is degraded."""
        return self.core.status()

    def check(self) -> Check:
        """The database's own integrity check, and its migrations against ours."""
        return self.core.check()

    def close(self) -> None:
        """Finish queued work and close; may be called twice."""
        self.core.close()

    def __enter__(self) -> "Holdproof":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open(home: str | Path | None = None, url: str | None = None, *, ns: str | None = None, **options: Any) -> Holdproof:
    """Open the store at `home` or `url` (`postgresql://…`, `:memory:`), or where the environment says.

    A store opened for one namespace (`ns`) sees no other.
    """
    refuse_running_loop()
    return Holdproof(open_store(home, url, **options), ns)


def connect(url: str, token: str | None = None, **options: Any) -> SyncRemote:
    """Connect to a store on a server, with the nouns and verbs of an open one; options are those of httpx."""
    refuse_running_loop()
    return connect_sync(url, token, **options)


def storage(home: str | Path | None = None, url: str | None = None) -> OpenStores:
    """What services store, without the kernel: `stores.open("blobs")` is its noun. Close it."""
    refuse_running_loop()
    return open_services(home, url)


def migrate(home: str | Path | None = None, url: str | None = None, *, dry_run: bool = False) -> Migrated:
    """Apply pending migrations without opening the store, or only say what is pending."""
    return migrate_store(home, url, dry_run=dry_run)


def migrate_legacy(
    source: str | Path | None = None, home: str | Path | None = None, url: str | None = None, **options: Any
) -> LegacyReport:
    """Take over data of kgents, from a folder or where it keeps things; options are those of `migrate_legacy_store`."""
    refuse_running_loop()
    return migrate_legacy_store(home, url, source=source, **options)


def check(home: str | Path | None = None, url: str | None = None) -> Check:
    """Check a store that may be too damaged to open."""
    return check_store(home, url)


def doctor(home: str | Path | None = None, url: str | None = None) -> Examined:
    """What the doctor says of a store, even of one that cannot be opened."""
    return examine_store(home, url)


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
    except HoldproofError as error:
        return damaged_store(error, home, url, lock=lock)


def restore(src: str | Path, home: str | Path | None = None, url: str | None = None, **options: Any) -> Restored:
    """Put a backup in the place of a store that is closed, verified first; options are those of `restore_store`."""
    refuse_running_loop()
    return restore_store(src, home, url, **options)


def copy(src: str | Path, dst: str | Path, home: str | Path | None = None, **options: Any) -> Copied:
    """Move a store that is closed to another database, verified; options are those of `copy_store`."""
    refuse_running_loop()
    return copy_store(src, dst, home, **options)
