"""The application tables as resources of a store: `store.blobs`, `store.vectors`, `store.telemetry` and others;
`store.sessions`, `store.shapes`, `store.dreams`, `store.selfgrow` and `store.instances` are built on the tables of
`store.relational`.

The methods are those of the provider's stores, on both clients. The first call opens its store; until then no file and
no server is touched. A store that is open for one namespace has none of them: application tables have no namespaces.
"""

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, cast

from holdproof.errors import MissingExtraError, NamespaceError
from holdproof.executors import (
    BoundMethod,
    Executor,
    Method,
    Resource,
    RunsWith,
    StreamsWith,
    SyncExecutor,
)
from holdproof.lazy import lazy_functions, lazy_module
from holdproof.model.defaults import IDLE_S, TOTAL_S
from holdproof.storage.projects import project_here

if TYPE_CHECKING:
    import asyncio

    from holdproof.storage import (
        blobs,
        dreams,
        executors,
        instances,
        open_stores,
        relational,
        selfgrow,
        sessions,
        shapes,
        telemetry,
    )
    from holdproof.storage.open_stores import OpenStores
    from holdproof.storage.vectors.store import Vectors
else:
    asyncio = lazy_module("asyncio")
    # Each is imported when its resource is first used.
    blobs = lazy_module("holdproof.storage.blobs")
    dreams = lazy_module("holdproof.storage.dreams")
    executors = lazy_module("holdproof.storage.executors")
    instances = lazy_module("holdproof.storage.instances")
    relational = lazy_module("holdproof.storage.relational")
    selfgrow = lazy_module("holdproof.storage.selfgrow")
    sessions = lazy_module("holdproof.storage.sessions")
    shapes = lazy_module("holdproof.storage.shapes")
    telemetry = lazy_module("holdproof.storage.telemetry")
    globals().update(lazy_functions("holdproof.storage", "open_stores"))


class LazyResource(Resource[Executor]):
    """A resource that is opened by the first call of one of its methods.

    Opening may wait for a disk or a server, so the async client does it in a thread.
    """

    grantable = True
    namespaced = False

    def __init__(
        self, executor: Executor, kind: Callable[[], type[Resource[Any]]], opening: Callable[[], Resource[Executor]]
    ) -> None:
        super().__init__(executor)
        self._kind = kind
        self._opening = opening
        self._resource: Resource[Executor] | None = None

    @property
    def kind(self) -> type[Resource[Any]]:
        """The class whose methods it has."""
        return self._kind()

    def _open(self) -> Resource[Executor]:
        self._refuse_namespace()
        # Two threads may open at the same time: `OpenStores` hands both the same store.
        self._resource = self._resource or self._opening()
        return self._resource

    @property
    def held(self) -> Any:
        """What the resource holds; opens it."""
        return self._open().held

    def _refuse_namespace(self) -> None:
        if self.ns is not None:
            raise NamespaceError(
                f"application tables have no namespaces, and this store is open for {self.ns}; open it without one",
                ns=self.ns,
            )

    def __getattr__(self, name: str) -> Any:
        """A method of the resource; other attributes exist once it is open."""
        # Copying and pickling look for special names; opening a store for them would be a surprise.
        if name.startswith("__"):
            raise AttributeError(name)
        if self._resource is not None:
            return getattr(self._resource, name)
        # Methods can be bound without opening: the signature is on the class.
        kind = self._kind()
        method = vars(kind).get(name)
        if not isinstance(method, Method):
            text = f"{name} is no method of {kind.__name__}; its other attributes exist after the first call"
            raise AttributeError(text, name=name, obj=self)  # noqa: TRY004 (an attribute is missing, no type is wrong)
        after = self._executor.open_then_stream if isinstance(method, StreamsWith) else self._executor.open_then

        def run(*args: Any, **kwargs: Any) -> Any:
            return after(self._open, lambda resource: getattr(resource, name)(*args, **kwargs))

        return BoundMethod(method, run)


class LazyRelational(LazyResource[Executor]):
    """The relational store, which `transaction` opens too."""

    def transaction(self, *, idle_s: float = IDLE_S, total_s: float = TOTAL_S) -> Any:
        """Run several calls as one transaction: committed at the end of the block, rolled back by an exception."""
        self._refuse_namespace()

        def begin() -> Any:
            return cast("relational.Relational[Any]", self._open()).transaction(idle_s=idle_s, total_s=total_s)

        return _sync_block(begin) if isinstance(self._executor, SyncExecutor) else _async_block(begin)


@asynccontextmanager
async def _async_block(begin: Callable[[], Any]) -> AsyncIterator[Any]:
    async with await asyncio.to_thread(begin) as transaction:
        yield transaction


@contextmanager
def _sync_block(begin: Callable[[], Any]) -> Iterator[Any]:
    with begin() as transaction:
        yield transaction


class StorageResource(Resource[Executor]):
    """The four stores together."""

    group = "Operate"
    grantable = True
    namespaced = False

    status = RunsWith(open_stores.status, reads=True)

    def __init__(self, executor: Executor, stores: "Callable[[], OpenStores]") -> None:
        super().__init__(executor)
        self._stores = stores

    @property
    def held(self) -> "Callable[[], OpenStores]":
        """The stores."""
        return self._stores


ON_TABLES: Final[Mapping[str, Callable[[Any, Callable[[], Any]], Resource[Any]]]] = {
    "sessions": lambda executor, _: sessions.Sessions(executor, project_here()),
    # Not the classes themselves: they are imported when one is opened.
    "shapes": lambda *of: shapes.ShapesResource(*of),  # noqa: PLW0108
    "dreams": lambda *of: dreams.DreamsResource(*of),  # noqa: PLW0108
    "selfgrow": lambda executor, _: selfgrow.SelfGrow(executor),
    "instances": lambda executor, _: instances.Instances(executor),
}
"""The resources on the tables of the relational store, by name: made of its executor, and of what opens the vectors."""


class StorageResources(Generic[Executor]):
    """The resources of application tables, on one executor."""

    def __init__(self, executor: Any) -> None:
        # The core is asked at each call: it refuses once the store is closed.
        def stores() -> "OpenStores":
            is_sync = isinstance(executor, SyncExecutor)
            executor_type = executors.SyncStorageExecutor if is_sync else executors.AsyncStorageExecutor
            return cast("OpenStores", executor.core.services(executor_type))

        def open_store(name: str) -> Any:
            return stores().open(name)

        def on_tables(name: str) -> Any:
            return ON_TABLES[name](open_store("relational").held, lambda: open_store("vectors"))

        def service(kind: Callable[[], type[Resource[Any]]], name: str) -> Any:
            return LazyResource(executor, kind, partial(open_store, name))

        def on_relational(kind: Callable[[], type[Resource[Any]]], name: str) -> Any:
            return LazyResource(executor, kind, partial(on_tables, name))

        # Annotated here, since `service` cannot say it: which resource comes of it is known once it is used.
        self.blobs: blobs.Blobs[Executor] = service(lambda: blobs.Blobs, "blobs")
        self.telemetry: telemetry.Telemetry[Executor] = service(lambda: telemetry.Telemetry, "telemetry")
        self.vectors: Vectors[Executor] = service(_vectors, "vectors")
        opening: Any = LazyRelational(executor, lambda: relational.Relational, partial(open_store, "relational"))
        self.relational: relational.Relational[Executor] = opening
        self.sessions: sessions.Sessions[Executor] = on_relational(lambda: sessions.Sessions, "sessions")
        self.shapes: shapes.ShapesResource[Executor] = on_relational(lambda: shapes.ShapesResource, "shapes")
        self.dreams: dreams.DreamsResource[Executor] = on_relational(lambda: dreams.DreamsResource, "dreams")
        self.selfgrow: selfgrow.SelfGrow[Executor] = on_relational(lambda: selfgrow.SelfGrow, "selfgrow")
        self.instances: instances.Instances[Executor] = on_relational(lambda: instances.Instances, "instances")
        self.storage: StorageResource[Executor] = StorageResource(executor, stores)


def _vectors() -> "type[Vectors[Any]]":
    try:
        from holdproof.storage.vectors.store import Vectors  # noqa: PLC0415 (an optional extra)
    except ImportError as error:
        raise MissingExtraError("vectors need numpy: pip install 'holdproof[vectors]'") from error
    return Vectors
