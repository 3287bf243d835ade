"""The sync client: `with holdproof.sync.open() as store`, and what is done with a store that is closed."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, Unpack

from holdproof.api.resources import Resources
from holdproof.executors import SyncClosing, SyncExecutor, with_namespace
from holdproof.lazy import lazy_module
from holdproof.model.defaults import CONCURRENCY
from holdproof.model.namespaces import MAIN, tenant_address
from holdproof.store.opening import OpenOptions, Store, open_store, refuse_unknown

__all__ = [
    "Holdproof",
    "OpenFlow",
    "check",
    "connect",
    "copy",
    "doctor",
    "drill",
    "migrate",
    "migrate_legacy",
    "reseal",
    "open",
    "move",
    "restore",
    "partition",
    "roles",
    "start_over",
    "storage",
    "verify",
]

if TYPE_CHECKING:
    from holdproof.api import flow_block, worker
    from holdproof.api.worker import SyncWorker
    from holdproof.model import status as status_model
    from holdproof.remote import SyncRemote
    from holdproof.storage import executors
    from holdproof.storage.open_stores import OpenStores
    from holdproof.store import maintenance

    OpenFlow: TypeAlias = flow_block.OpenFlow[SyncExecutor]
    """The type of an open flow: what `flows.run` hands out, and the first parameter of a function of `store.flow`."""
else:
    # Work on closed stores, workers and application tables: a program that opens a store and reads needs none of them.
    executors = lazy_module("holdproof.storage.executors")
    flow_block = lazy_module("holdproof.api.flow_block")
    maintenance = lazy_module("holdproof.store.maintenance")
    status_model = lazy_module("holdproof.model.status")
    worker = lazy_module("holdproof.api.worker")


class Holdproof(SyncExecutor, SyncClosing, Resources[SyncExecutor]):
    """An open store for threads. Close it, or use it as a context manager."""

    def __init__(self, core: Store, ns: str | None = None) -> None:
        SyncExecutor.__init__(self, core.database, ns)
        Resources.__init__(self, self)
        self.core = core
        self.context = core.context

    def worker(
        self,
        *,
        queues: Iterable[str] | None = None,
        concurrency: int = CONCURRENCY,
        name: str | None = None,
        ns: str = MAIN,
    ) -> "SyncWorker":
        """Return a worker: it runs due flows of these queues, or of all, and of no queue, `concurrency` at a time.

        It runs the functions that are registered on this store. `run` works until `stop`; `start`, or `with`, does
        so in the background.
        """
        options = with_namespace(self, {} if ns == MAIN else {"ns": ns})
        names = None if queues is None else tuple(queues)
        return worker.SyncWorker(self, self._registry, queues=names, concurrency=concurrency, name=name, **options)

    def __repr__(self) -> str:
        return f"<{type(self).__module__}.{type(self).__name__} {self.core.label(self.ns)}>"

    def status(self) -> "status_model.Status":
        """Report where everything lives, versions and sizes, and what is degraded."""
        return self.core.status()

    def check(self) -> "status_model.Check":
        """Run the database's own integrity check, and compare its migrations with those of this version."""
        return self.core.check()

    def close(self) -> None:
        """Finish queued work and close; may be called twice."""
        self.core.close()


def open(
    where: str | Path | None = None,
    url: str | None = None,
    *,
    home: str | Path | None = None,
    tenant: str | None = None,
    ns: str | None = None,
    create: bool = True,
    readonly: bool = False,
    **options: Unpack[OpenOptions],
) -> Holdproof:
    """Open the store at `where`: a folder, `postgresql://…` or `:memory:`; without it, where the environment says.

    `home` is the folder of keys and files of a store at a URL. `create=False` raises NoStoreError where there is no
    store; `readonly=True` does too, and writes nothing at all. `tenant` opens the store of that tenant of the one that
    is named. A store opened for one namespace (`ns`) sees no other.
    """
    refuse_unknown(options)
    return Holdproof(open_store(where, url, home=home, tenant=tenant, create=create, readonly=readonly, **options), ns)


def connect(url: str, token: str | None = None, *, tenant: str | None = None, **options: Any) -> "SyncRemote":
    """Connect to a store on a server, or to that of its tenant, with the resources and methods of an open one.

    Options are those of httpx.
    """
    from holdproof.remote import connect_sync  # noqa: PLC0415 (its HTTP client is only for those who connect)

    return connect_sync(tenant_address(url, tenant), token, **options)


def storage(where: str | Path | None = None, url: str | None = None, *, create: bool = True) -> "OpenStores":
    """Return the application stores without the kernel: `stores.open("blobs")` is a resource. Close it."""
    return maintenance.open_services(where, url, executors.SyncStorageExecutor, create=create)


if TYPE_CHECKING:
    check = maintenance.check
    copy = maintenance.copy
    doctor = maintenance.doctor
    drill = maintenance.drill
    migrate = maintenance.migrate
    migrate_legacy = maintenance.migrate_legacy
    partition = maintenance.partition
    roles = maintenance.roles
    move = maintenance.move
    reseal = maintenance.reseal
    restore = maintenance.restore
    start_over = maintenance.start_over
    verify = maintenance.verify
else:
    _ON_CLOSED_STORES = (
        "check copy doctor drill migrate migrate_legacy partition roles move reseal restore start_over verify"
    )

    def __getattr__(name: str) -> Any:
        """Import what works on closed stores, and the type of an open flow, at their first use (PEP 562)."""
        if name == "OpenFlow":
            value = flow_block.OpenFlow[SyncExecutor]
        elif name in _ON_CLOSED_STORES.split():
            value = getattr(maintenance, name)
        else:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = value
        return value
