"""`Remote` and `SyncRemote`: a store on a server, for coroutines and for threads.

They have the nouns and verbs of an embedded store. What belongs to the process that has the store open (functions of a
transaction, places on its disk) is refused with `use.remote`.
"""

from collections.abc import Callable
from inspect import Signature
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic

from holdproof.api import wire
from holdproof.api.awaitable import AwaitableStore
from holdproof.api.catalogue import MethodSpec, entries
from holdproof.api.flow_functions import FlowFunction
from holdproof.errors import RemoteError
from holdproof.executors import AsyncExecutor, SyncExecutor
from holdproof.model.namespaces import MAIN
from holdproof.model.status import Check, Status
from holdproof.remote.exchange import Exchange, Send, call
from holdproof.remote.flow_functions import Registered, Registry
from holdproof.remote.remote_contexts import FLOW, TRANSACTION, Block, Wire
from holdproof.remote.transport import AsyncTransport, SyncTransport
from holdproof.runtime.leases import LEASE_S


class RemoteVerb(Generic[Wire]):
    """A verb of a noun, called over the wire."""

    def __init__(self, wired: Wire, entry: MethodSpec) -> None:
        self._wire, self._entry = wired, entry

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the verb on the server."""
        perform = self._wire.stream if self._entry.streams else self._wire.run
        return perform(call(self._entry, args, kwargs))

    @property
    def __signature__(self) -> Signature:
        return self._entry.signature

    @property
    def __doc__(self) -> str:  # type: ignore[override]
        return self._entry.summary


class RemoteNoun(Generic[Wire]):
    """A noun of a store on a server."""

    def __init__(self, wired: Wire, name: str) -> None:
        self._wire, self._name = wired, name

    def __getattr__(self, verb: str) -> RemoteVerb[Wire]:
        """A verb of the noun."""
        if verb.startswith("_"):
            raise AttributeError(verb)
        entry = entries().get((self._name, verb))
        if entry is None:
            raise RemoteError(f"{self._name}.{verb} is not there over the wire", verb=verb)
        return RemoteVerb(self._wire, entry)


class RemoteFlows(RemoteNoun[Wire]):
    """Flows on a server; those in hand are worked on here."""

    def __init__(self, wired: Wire, registry: Registry[Wire]) -> None:
        super().__init__(wired, "flows")
        self._registry = registry

    def recover(self, worker: str | None = None, *, limit: int = 100, ns: str = MAIN) -> Any:
        """Run orphaned flows again whose function is registered here, `limit` at most; the rest is left, and named."""
        return self._wire.run(self._registry.recover(worker, limit, ns))

    def run(self, agent_id: str | None = None, *, resume: str | None = None, **opening: Any) -> Block[Wire]:
        """A new flow of an agent as a block, or one to resume; `opening` is what `flows.start` takes, and `lease_s`."""
        given = {"agent_id": agent_id, "resume": resume, **opening}
        return Block(self._wire, "/v1/flows/run", {k: v for k, v in given.items() if v is not None}, FLOW)


class RemoteTables(RemoteNoun[Wire]):
    """The relational store on a server."""

    def transaction(self, **given: Any) -> Block[Wire]:
        """Several calls as one: committed at the end, rolled back by an exception."""
        return Block(self._wire, "/v1/relational/transaction", given, TRANSACTION)


class Nouns(Generic[Wire]):
    """The nouns of a store on a server."""

    def __init__(self, wired: Wire) -> None:
        self._wire = wired
        for name in {noun for noun, _ in entries()}:
            setattr(self, name, RemoteNoun(wired, name))
        self._registry = Registry(wired)
        self.flows = RemoteFlows(wired, self._registry)
        self.relational = RemoteTables(wired, "relational")

    def _ask(self, path: str, kind: Any) -> Exchange[Any]:
        answer = yield Send(path, {}, reads=True)
        return wire.shape(kind).load(answer, "")

    def write(self, *_: Any, **__: Any) -> Any:
        """Refused: a function of a transaction runs where the store is."""
        raise RemoteError("a function of a transaction runs where the store is; call its verbs instead")

    read = scan = begin = hear = run = stream = write

    def flow(
        self,
        *,
        name: str | None = None,
        version: str = "1.0",
        agent: str | None = None,
        lease_s: float = LEASE_S,
        **opening: Any,
    ) -> Callable[[Callable[..., Any]], FlowFunction[..., Any]]:
        """Register a function as a flow, so that `flows.recover` can run it again on any worker."""
        begun = {"agent_id": agent, **opening}
        return lambda fn: self._registry.register(Registered(name or fn.__name__, version, lease_s, agent, fn), begun)


if TYPE_CHECKING:
    from holdproof.api import Resources as Embedded

    class _Async(Nouns[AsyncTransport], Embedded[AsyncExecutor]): ...  # type: ignore[misc]

    class _Sync(Nouns[SyncTransport], Embedded[SyncExecutor]): ...  # type: ignore[misc]
else:
    _Async = _Sync = Nouns


class Remote(_Async):
    """A store on a server, for coroutines. Close it, or use it as a context manager."""

    async def status(self) -> Status:
        """Where everything lives, versions and sizes, and what is degraded."""
        found: Status = await self._wire.run(self._ask("/v1/status", Status))
        return found

    async def check(self) -> Check:
        """The database's own integrity check, and its migrations against ours."""
        found: Check = await self._wire.run(self._ask("/v1/check", Check))
        return found

    async def close(self) -> None:
        """Close the connections; the store stays open where it is."""
        await self._wire.close()

    async def __aenter__(self) -> "Remote":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class SyncRemote(_Sync):
    """A store on a server, for threads. Close it, or use it as a context manager."""

    def status(self) -> Status:
        """Where everything lives, versions and sizes, and what is degraded."""
        found: Status = self._wire.run(self._ask("/v1/status", Status))
        return found

    def check(self) -> Check:
        """The database's own integrity check, and its migrations against ours."""
        found: Check = self._wire.run(self._ask("/v1/check", Check))
        return found

    def close(self) -> None:
        """Close the connections; the store stays open where it is."""
        self._wire.close()

    def __enter__(self) -> "SyncRemote":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def connect(url: str, token: str | None = None, **given: Any) -> AwaitableStore[Remote]:
    """A store on a server, for coroutines; further options are those of httpx, as `verify`."""

    async def opens() -> Remote:
        return Remote(AsyncTransport(url, token, **given))

    return AwaitableStore(opens)


def connect_sync(url: str, token: str | None = None, **given: Any) -> SyncRemote:
    """A store on a server, for threads."""
    return SyncRemote(SyncTransport(url, token, **given))
