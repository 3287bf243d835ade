"""`Remote` and `SyncRemote`: a store on a server, for coroutines and for threads.

They have the resources and methods of an embedded store. What belongs to the process that has the store open
(functions of a transaction, places on its disk) is refused with `use.remote`.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic

from holdproof.api import wire
from holdproof.api.awaitable import AwaitableStore
from holdproof.api.catalogue import entries
from holdproof.api.flow_functions import FlowFunction
from holdproof.errors import RemoteError
from holdproof.executors import AsyncClosing, AsyncExecutor, SyncClosing, SyncExecutor
from holdproof.model.defaults import LEASE_S
from holdproof.model.namespaces import MAIN
from holdproof.model.status import Check, Status
from holdproof.remote.exchange import Exchange, Send
from holdproof.remote.flow_functions import Registry
from holdproof.remote.flow_handles import Wire, outcome
from holdproof.remote.remote_contexts import RemoteBlock, RemoteFunction, RemoteMethod
from holdproof.remote.transport import AsyncTransport, SyncTransport


class RemoteResource(Generic[Wire]):
    """A resource of a store on a server."""

    def __init__(self, wired: Wire, name: str) -> None:
        self._wire = wired
        self._name = name

    def __getattr__(self, method: str) -> RemoteMethod[Wire]:
        """Return a method of the resource; RemoteError if it is not offered over the wire."""
        # copy, pickle and inspect probe for dunder names and expect AttributeError.
        if method.startswith("_"):
            raise AttributeError(method)
        entry = entries().get((self._name, method))
        if entry is None:
            raise RemoteError(f"{self._name}.{method} is not there over the wire", method=method)
        return RemoteMethod(self._wire, entry)


class RemoteFlows(RemoteResource[Wire]):
    """Flows on a server; their functions run in this process."""

    def __init__(self, wired: Wire, registry: Registry[Wire]) -> None:
        super().__init__(wired, "flows")
        self._registry = registry

    def recover(self, worker: str | None = None, *, limit: int = 100, ns: str = MAIN) -> Any:
        """Run orphaned flows again whose function is registered here, `limit` at most; the rest is left, and named."""
        return self._wire.run(self._registry.recover(worker, limit, ns))

    def run(self, agent_id: str | None = None, *, resume: str | None = None, **opening: Any) -> RemoteBlock[Wire]:
        """A new flow of an agent as a block, or one to resume; `opening` is what `flows.start` takes, and `lease_s`."""
        arguments = {"agent_id": agent_id, "resume": resume, **opening}
        passed = {name: value for name, value in arguments.items() if value is not None}
        return RemoteBlock(self._wire, "/v1/flows/run", passed, "flow")

    def result(self, flow_id: str, *, timeout_s: float | None = None, ns: str = MAIN) -> Any:
        """Wait until a flow has ended, and return its result; see `flows.result` of an embedded store."""
        return self._wire.run(outcome(flow_id, timeout_s=timeout_s, ns=ns))


class RemoteTables(RemoteResource[Wire]):
    """The relational store on a server."""

    def transaction(self, **options: Any) -> RemoteBlock[Wire]:
        """Several calls as one: committed at the end, rolled back by an exception."""
        return RemoteBlock(self._wire, "/v1/relational/transaction", options, "transaction")


class RemoteResources(Generic[Wire]):
    """The resources of a store on a server."""

    def __init__(self, wired: Wire) -> None:
        self._wire = wired
        for name in {resource for resource, _ in entries()}:
            setattr(self, name, RemoteResource(wired, name))
        self._registry = Registry(wired)
        self.flows = RemoteFlows(wired, self._registry)
        self.relational = RemoteTables(wired, "relational")

    def _ask(self, path: str, kind: Any) -> Exchange[Any]:
        answer = yield Send(path, {}, reads=True)
        return wire.shape(kind).load(answer, "")

    def write(self, *_: Any, **__: Any) -> Any:
        """Refused: a function of a transaction runs where the store is."""
        raise RemoteError("a function of a transaction runs where the store is; call its methods instead")

    # Every entry point that takes a function of a transaction is refused the same way.
    read = scan = begin = hear = run = stream = write_in = write

    def worker(self, *_: Any, **__: Any) -> Any:
        """Refused: a worker takes due flows in transactions of its own, and so runs beside the database."""
        raise RemoteError(
            "a worker runs where it can open the store: `holdproof worker`, or store.worker() of an embedded store on"
            " the server's database; here `flows.recover()` runs flows again whose functions are registered here"
        )

    def flow(
        self,
        *,
        name: str | None = None,
        version: str = "1.0",
        agent: str | None = None,
        compatible: tuple[str, ...] = (),
        lease_s: float = LEASE_S,
        **opening: Any,
    ) -> Callable[[Callable[..., Any]], FlowFunction[..., Any]]:
        """Register a function as a flow, so that `flows.recover` can run it again on any worker."""
        defaults = {"agent_id": agent, **opening}
        return lambda fn: self._registry.register(
            RemoteFunction(fn.__name__ if name is None else name, version, lease_s, agent, tuple(compatible), fn=fn),
            defaults,
        )


if TYPE_CHECKING:
    from holdproof.api.resources import Resources as Embedded

    class _Async(RemoteResources[AsyncTransport], Embedded[AsyncExecutor], AsyncClosing): ...  # type: ignore[misc]

    class _Sync(RemoteResources[SyncTransport], Embedded[SyncExecutor], SyncClosing): ...  # type: ignore[misc]
else:

    class _Async(RemoteResources, AsyncClosing): ...

    class _Sync(RemoteResources, SyncClosing): ...


class Remote(_Async):
    """A store on a server, for coroutines. Close it, or use it as a context manager."""

    async def status(self) -> Status:
        """Where everything lives, versions and sizes, and what is degraded."""
        answer: Status = await self._wire.run(self._ask("/v1/status", Status))
        return answer

    async def check(self) -> Check:
        """The database's own integrity check, and its migrations against ours."""
        answer: Check = await self._wire.run(self._ask("/v1/check", Check))
        return answer

    async def close(self) -> None:
        """Close the connections; the store stays open where it is."""
        await self._wire.close()


class SyncRemote(_Sync):
    """A store on a server, for threads. Close it, or use it as a context manager."""

    def status(self) -> Status:
        """Where everything lives, versions and sizes, and what is degraded."""
        answer: Status = self._wire.run(self._ask("/v1/status", Status))
        return answer

    def check(self) -> Check:
        """The database's own integrity check, and its migrations against ours."""
        answer: Check = self._wire.run(self._ask("/v1/check", Check))
        return answer

    def close(self) -> None:
        """Close the connections; the store stays open where it is."""
        self._wire.close()


def connect(url: str, token: str | None = None, **httpx_options: Any) -> AwaitableStore[Remote]:
    """A store on a server, for coroutines; further options are those of httpx, as `verify`."""

    # Built when awaited, inside the loop that will use its semaphore and its connections.
    async def opens() -> Remote:
        return Remote(AsyncTransport(url, token, **httpx_options))

    return AwaitableStore(opens)


def connect_sync(url: str, token: str | None = None, **httpx_options: Any) -> SyncRemote:
    """A store on a server, for threads."""
    return SyncRemote(SyncTransport(url, token, **httpx_options))
