"""The async client: `async with holdproof.open() as store`, and what is done with a store that is closed."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeAlias, TypeVar, Unpack

from holdproof.api.awaitable import AwaitableStore
from holdproof.api.resources import Resources
from holdproof.executors import AsyncClosing, AsyncExecutor, with_namespace
from holdproof.lazy import lazy_module
from holdproof.model.defaults import CONCURRENCY
from holdproof.model.namespaces import MAIN, tenant_address
from holdproof.store.opening import OpenOptions, Store, open_store, refuse_unknown

if TYPE_CHECKING:
    from holdproof.api import flow_block, worker
    from holdproof.api.worker import AsyncWorker
    from holdproof.model import status as status_model
    from holdproof.remote import Remote
    from holdproof.storage import executors
    from holdproof.storage.open_stores import OpenStores
    from holdproof.store import maintenance

    OpenFlow: TypeAlias = flow_block.OpenFlow[AsyncExecutor]
    """The type of an open flow: what `flows.run` hands out, and the first parameter of a function of `store.flow`."""
else:
    # Work on closed stores, workers and application tables: a program that opens a store and reads needs none of them.
    executors = lazy_module("holdproof.storage.executors")
    flow_block = lazy_module("holdproof.api.flow_block")
    maintenance = lazy_module("holdproof.store.maintenance")
    status_model = lazy_module("holdproof.model.status")
    worker = lazy_module("holdproof.api.worker")

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

P = ParamSpec("P")
T = TypeVar("T")


class Holdproof(AsyncExecutor, AsyncClosing, Resources[AsyncExecutor]):
    """An open store for coroutines. Close it, or use it as a context manager."""

    def __init__(self, core: Store, ns: str | None = None) -> None:
        AsyncExecutor.__init__(self, core.database, ns)
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
    ) -> "AsyncWorker":
        """Return a worker: it runs due flows of these queues, or of all, and of no queue, `concurrency` at a time.

        It runs the functions that are registered on this store. `run` works until `stop`; `start`, or `async with`,
        does so in the background.
        """
        options = with_namespace(self, {} if ns == MAIN else {"ns": ns})
        names = None if queues is None else tuple(queues)
        return worker.AsyncWorker(self, self._registry, queues=names, concurrency=concurrency, name=name, **options)

    def __repr__(self) -> str:
        return f"<{type(self).__module__}.{type(self).__name__} {self.core.label(self.ns)}>"

    async def status(self) -> "status_model.Status":
        """Report where everything lives, versions and sizes, and what is degraded."""
        return await asyncio.to_thread(self.core.status)

    async def check(self) -> "status_model.Check":
        """Run the database's own integrity check, and compare its migrations with those of this version."""
        return await asyncio.to_thread(self.core.check)

    async def close(self) -> None:
        """Finish queued work and close; may be called twice."""
        await asyncio.to_thread(self.core.close)


def connect(
    url: str, token: str | None = None, *, tenant: str | None = None, **options: Any
) -> "AwaitableStore[Remote]":
    """Connect to a store on a server, or to that of its tenant; it has the resources of an open one.

    Options are those of httpx, as `verify`.
    """
    from holdproof.remote import connect as connect_remote  # noqa: PLC0415 (its HTTP client is only for those who connect)

    return connect_remote(tenant_address(url, tenant), token, **options)


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
) -> AwaitableStore[Holdproof]:
    """Open the store at `where`: a folder, `postgresql://…` or `:memory:`; without it, where the environment says.

    `home` is the folder of keys and files of a store at a URL. `create=False` raises NoStoreError where there is no
    store; `readonly=True` does too, and writes nothing at all. `tenant` opens the store of that tenant of the one that
    is named. A store opened for one namespace (`ns`) sees no other.
    """
    refuse_unknown(options)

    async def opens() -> Holdproof:
        opening = partial(open_store, where, url, home=home, tenant=tenant, create=create, readonly=readonly, **options)
        return Holdproof(await asyncio.to_thread(opening), ns)

    return AwaitableStore(opens)


def storage(where: str | Path | None = None, url: str | None = None, *, create: bool = True) -> "OpenStores":
    """Return the application stores without the kernel: `stores.open("blobs")` is a resource. Close it."""
    return maintenance.open_services(where, url, executors.AsyncStorageExecutor, create=create)


def _in_thread(function: Callable[P, T]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Return a coroutine function that runs `function` in a thread, with the same arguments."""

    @wraps(function)
    async def run(*args: P.args, **kwargs: P.kwargs) -> T:
        return await asyncio.to_thread(function, *args, **kwargs)

    return run


if TYPE_CHECKING:
    check = _in_thread(maintenance.check)
    copy = _in_thread(maintenance.copy)
    doctor = _in_thread(maintenance.doctor)
    drill = _in_thread(maintenance.drill)
    migrate = _in_thread(maintenance.migrate)
    migrate_legacy = _in_thread(maintenance.migrate_legacy)
    partition = _in_thread(maintenance.partition)
    roles = _in_thread(maintenance.roles)
    move = _in_thread(maintenance.move)
    reseal = _in_thread(maintenance.reseal)
    restore = _in_thread(maintenance.restore)
    start_over = _in_thread(maintenance.start_over)
    verify = _in_thread(maintenance.verify)
else:
    _ON_CLOSED_STORES = (
        "check copy doctor drill migrate migrate_legacy partition roles move reseal restore start_over verify"
    )

    def __getattr__(name: str) -> Any:
        """Import what works on closed stores, and the type of an open flow, at their first use (PEP 562)."""
        if name == "OpenFlow":
            value = flow_block.OpenFlow[AsyncExecutor]
        elif name in _ON_CLOSED_STORES.split():
            value = _in_thread(getattr(maintenance, name))
        else:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = value
        return value
