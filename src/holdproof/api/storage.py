"""What services store, on the store itself: `store.blobs`, `store.vectors`, `store.telemetry`, `store.relational`, and
`store.sessions` on the tables of the last.

The verbs are those of the provider's stores, on both faces. The first one that is used opens its store; until then
nothing is touched. A store that is open for one namespace has none of them: they know no namespaces.
"""

from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, cast

from holdproof.db import Work, call
from holdproof.errors import MissingExtraError, NamespaceError
from holdproof.executors import (
    AsyncExecutor,
    BoundMethod,
    Executor,
    Method,
    Resource,
    RunsWith,
    StreamsWith,
    SyncExecutor,
)
from holdproof.model.storage import StorageStatus
from holdproof.storage.blobs import Blobs
from holdproof.storage.executors import AsyncStorageExecutor, SyncStorageExecutor
from holdproof.storage.lazy_stores import LazyStores
from holdproof.storage.projects import project_here
from holdproof.storage.relational import IDLE_S, Relational
from holdproof.storage.sessions import Sessions
from holdproof.storage.telemetry import Telemetry

if TYPE_CHECKING:
    from holdproof.storage.vectors.store import Vectors


class LazyResource(Resource[Executor]):
    """A noun that is opened by the first of its verbs."""

    grantable = True
    namespaced = False

    def __init__(
        self, face: Executor, kind: Callable[[], type[Resource[Any]]], opening: Callable[[], Resource[Executor]]
    ) -> None:
        super().__init__(face)
        self._kind, self._opening = kind, opening
        self._noun: Resource[Executor] | None = None

    @property
    def kind(self) -> type[Resource[Any]]:
        """The class whose verbs it shows."""
        return self._kind()

    def _open(self) -> Resource[Executor]:
        self._refuse_namespace()
        self._noun = self._noun or self._opening()
        return self._noun

    @property
    def held(self) -> Any:
        """What the noun holds; opens it."""
        return self._open().held

    def _refuse_namespace(self) -> None:
        if self.ns is not None:
            raise NamespaceError(f"what services store has no namespaces; this store is open for {self.ns}", ns=self.ns)

    def __getattr__(self, name: str) -> Any:
        """A verb of the noun; anything else it has is known once it is open."""
        if name.startswith("__"):
            raise AttributeError(name)
        if self._noun is not None:
            return getattr(self._noun, name)
        kind = self._kind()
        verb = vars(kind).get(name)
        if not isinstance(verb, Method):
            text = f"{name} is no verb of {kind.__name__}; whatever else it has is known once a verb was used"
            raise AttributeError(text, name=name, obj=self)  # noqa: TRY004 (an attribute is missing, no type is wrong)
        after = self._face.open_then_stream if isinstance(verb, StreamsWith) else self._face.open_then

        def run(*args: Any, **kwargs: Any) -> Any:
            return after(self._open, lambda noun: getattr(noun, name)(*args, **kwargs))

        return BoundMethod(verb, run)


class LazyRelational(LazyResource[Executor]):
    """The relational store, whose blocks open it too."""

    def transaction(self, *, idle_s: float = IDLE_S) -> "LazyTransaction[Executor]":
        """Several calls as one: committed at the end, rolled back by an exception."""
        self._refuse_namespace()
        return LazyTransaction(self._face, partial(self._block, idle_s))

    def _block(self, idle_s: float) -> Any:
        return cast("Relational[Any]", self._open()).transaction(idle_s=idle_s)


class LazyTransaction(Resource[Executor]):
    """A block of calls on a store that may have to be opened for it."""

    def __init__(self, face: Executor, opening: Callable[[], Any]) -> None:
        super().__init__(face)
        self._opening = opening
        self._block: Any = None

    def _enter(self, block: Any) -> Any:
        self._block = block
        return block.__aenter__() if isinstance(self._face, AsyncExecutor) else block.__enter__()

    async def __aenter__(self: "LazyTransaction[AsyncExecutor]") -> Any:
        return await self._face.open_then(self._opening, self._enter)

    async def __aexit__(
        self: "LazyTransaction[AsyncExecutor]",
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._block.__aexit__(kind, error, trace)

    def __enter__(self: "LazyTransaction[SyncExecutor]") -> Any:
        return self._face.open_then(self._opening, self._enter)

    def __exit__(
        self: "LazyTransaction[SyncExecutor]",
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._block.__exit__(kind, error, trace)


def _status(stores: Callable[[], LazyStores]) -> Work[StorageStatus]:
    """What each store of services runs on and holds, what is under way, and what is degraded."""
    return (yield from call(lambda: stores().status()))


class Storage(Resource[Executor]):
    """The four stores of services together."""

    group = "Operate"
    grantable = True
    namespaced = False

    status = RunsWith(_status, reads=True)

    def __init__(self, face: Executor, stores: Callable[[], LazyStores]) -> None:
        super().__init__(face)
        self._stores = stores

    @property
    def held(self) -> Callable[[], LazyStores]:
        """The stores."""
        return self._stores


class StorageResources(Generic[Executor]):
    """The nouns of what services store, shown by a face."""

    def __init__(self, face: Any) -> None:
        shown = SyncStorageExecutor if isinstance(face, SyncExecutor) else AsyncStorageExecutor

        def stores() -> LazyStores:
            return cast("LazyStores", face.core.services(shown))

        def opened(noun: str) -> Any:
            return stores().open(noun)

        def sessions() -> Sessions[Any]:
            return Sessions(opened("relational").held, project_here())

        self.blobs = cast("Blobs[Executor]", LazyResource(face, lambda: Blobs, partial(opened, "blobs")))
        self.telemetry = cast(
            "Telemetry[Executor]", LazyResource(face, lambda: Telemetry, partial(opened, "telemetry"))
        )
        self.relational = cast(
            "Relational[Executor]", LazyRelational(face, lambda: Relational, partial(opened, "relational"))
        )
        self.sessions = cast("Sessions[Executor]", LazyResource(face, lambda: Sessions, sessions))
        self.vectors = cast("Vectors[Executor]", LazyResource(face, _vectors, partial(opened, "vectors")))
        self.storage: Storage[Executor] = Storage(face, stores)


def _vectors() -> "type[Vectors[Any]]":
    try:
        from holdproof.storage.vectors.store import Vectors  # noqa: PLC0415 (an optional extra)
    except ImportError as error:
        raise MissingExtraError("vectors need numpy: pip install 'holdproof[vectors]'") from error
    return Vectors
