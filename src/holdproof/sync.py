"""The sync client: `with holdproof.sync.open() as store`, and what is done with a store that is closed."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdproof.api import Resources
from holdproof.executors import SyncClosing, SyncExecutor
from holdproof.model.status import Check, Status
from holdproof.storage.executors import SyncStorageExecutor
from holdproof.storage.open_stores import OpenStores
from holdproof.store import maintenance
from holdproof.store.opening import Store, open_store

__all__ = [
    "Holdproof",
    "check",
    "connect",
    "copy",
    "doctor",
    "migrate",
    "migrate_legacy",
    "reseal",
    "open",
    "move",
    "restore",
    "storage",
    "verify",
]

if TYPE_CHECKING:
    from holdproof.remote import SyncRemote


class Holdproof(SyncExecutor, SyncClosing, Resources[SyncExecutor]):
    """An open store for threads. Close it, or use it as a context manager."""

    def __init__(self, core: Store, ns: str | None = None) -> None:
        SyncExecutor.__init__(self, core.database, ns)
        Resources.__init__(self, self)
        self.core = core
        self.context = core.context

    def status(self) -> Status:
        """Report where everything lives, versions and sizes, and what is degraded."""
        return self.core.status()

    def check(self) -> Check:
        """Run the database's own integrity check, and compare its migrations with those of this version."""
        return self.core.check()

    def close(self) -> None:
        """Finish queued work and close; may be called twice."""
        self.core.close()


def open(home: str | Path | None = None, url: str | None = None, *, ns: str | None = None, **options: Any) -> Holdproof:
    """Open the store at `home` or `url` (`postgresql://…`, `:memory:`), or where the environment says.

    A store opened for one namespace (`ns`) sees no other. Options are those of `open_store`: `keys`, `embedder`,
    `dimensions`, and those of the database.
    """
    return Holdproof(open_store(home, url, **options), ns)


def connect(url: str, token: str | None = None, **options: Any) -> "SyncRemote":
    """Connect to a store on a server, with the resources and methods of an open one; options are those of httpx."""
    from holdproof.remote import connect_sync  # noqa: PLC0415 (its HTTP client is only for those who connect)

    return connect_sync(url, token, **options)


def storage(home: str | Path | None = None, url: str | None = None) -> OpenStores:
    """Return the application stores without the kernel: `stores.open("blobs")` is a resource. Close it."""
    return maintenance.open_services(home, url, SyncStorageExecutor)


check = maintenance.check
copy = maintenance.copy
doctor = maintenance.doctor
migrate = maintenance.migrate
migrate_legacy = maintenance.migrate_legacy
move = maintenance.move
reseal = maintenance.reseal
restore = maintenance.restore
verify = maintenance.verify
