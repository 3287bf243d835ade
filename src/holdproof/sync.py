"""The sync client: `with holdproof.sync.open() as store`, and what is done with a store that is closed."""

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from holdproof.api import Resources
from holdproof.executors import SyncExecutor, refuse_running_loop
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
    "restore",
    "storage",
    "verify",
]

P = ParamSpec("P")
T = TypeVar("T")

if TYPE_CHECKING:
    from holdproof.remote import SyncRemote


class Holdproof(SyncExecutor, Resources[SyncExecutor]):
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

    def __enter__(self) -> "Holdproof":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open(home: str | Path | None = None, url: str | None = None, *, ns: str | None = None, **options: Any) -> Holdproof:
    """Open the store at `home` or `url` (`postgresql://…`, `:memory:`), or where the environment says.

    A store opened for one namespace (`ns`) sees no other. Options are those of `open_store`: `keys`, `embedder`,
    `dimensions`, and those of the database.
    """
    refuse_running_loop()
    return Holdproof(open_store(home, url, **options), ns)


def connect(url: str, token: str | None = None, **options: Any) -> "SyncRemote":
    """Connect to a store on a server, with the resources and methods of an open one; options are those of httpx."""
    refuse_running_loop()
    from holdproof.remote import connect_sync  # noqa: PLC0415 (its HTTP client is only for those who connect)

    return connect_sync(url, token, **options)


def storage(home: str | Path | None = None, url: str | None = None) -> OpenStores:
    """Return the application stores without the kernel: `stores.open("blobs")` is a resource. Close it."""
    refuse_running_loop()
    return maintenance.open_services(home, url, SyncStorageExecutor)


def _blocking(function: Callable[P, T]) -> Callable[P, T]:
    """Return the same function, refusing to run where it would block an event loop (RunningLoopError)."""

    @wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        refuse_running_loop()
        return function(*args, **kwargs)

    return run


check = _blocking(maintenance.check)
copy = _blocking(maintenance.copy)
doctor = _blocking(maintenance.doctor)
migrate = _blocking(maintenance.migrate)
migrate_legacy = _blocking(maintenance.migrate_legacy)
reseal = _blocking(maintenance.reseal)
restore = _blocking(maintenance.restore)
verify = _blocking(maintenance.verify)
