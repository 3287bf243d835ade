"""The application tables as resources of a store: `store.blobs`, `store.vectors`, `store.telemetry` and others;
`store.sessions`, `store.shapes`, `store.dreams`, `store.selfgrow` and `store.instances` are built on the tables of
`store.relational`.

The methods are those of the provider's stores, on both clients. The first call opens its store; until then no file and
no server is touched. A store that is open for one namespace has none of them: application tables have no namespaces.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, cast

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
from holdproof.storage.dreams import DreamsResource
from holdproof.storage.executors import AsyncStorageExecutor, SyncStorageExecutor
from holdproof.storage.instances import Instances
from holdproof.storage.open_stores import OpenStores
from holdproof.storage.projects import project_here
from holdproof.storage.relational import IDLE_S, TOTAL_S, Relational
from holdproof.storage.selfgrow import SelfGrow
from holdproof.storage.sessions import Sessions
from holdproof.storage.shapes import ShapesResource
from holdproof.storage.telemetry import Telemetry

if TYPE_CHECKING:
    from holdproof.storage.vectors.store import Vectors


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
            return cast("Relational[Any]", self._open()).transaction(idle_s=idle_s, total_s=total_s)

        return _async_block(begin) if isinstance(self._executor, AsyncExecutor) else _sync_block(begin)


@asynccontextmanager
async def _async_block(begin: Callable[[], Any]) -> AsyncIterator[Any]:
    async with await asyncio.to_thread(begin) as transaction:
        yield transaction


@contextmanager
def _sync_block(begin: Callable[[], Any]) -> Iterator[Any]:
    with begin() as transaction:
        yield transaction


def _status(stores: Callable[[], OpenStores]) -> Work[StorageStatus]:
    """What each store runs on and holds, what is running, and what is degraded."""
    return (yield from call(lambda: stores().measure()))


class StorageResource(Resource[Executor]):
    """The four stores together."""

    group = "Operate"
    grantable = True
    namespaced = False

    status = RunsWith(_status, reads=True)

    def __init__(self, executor: Executor, stores: Callable[[], OpenStores]) -> None:
        super().__init__(executor)
        self._stores = stores

    @property
    def held(self) -> Callable[[], OpenStores]:
        """The stores."""
        return self._stores


ON_TABLES: Final[Mapping[str, Callable[[Any, Callable[[], Any]], Resource[Any]]]] = {
    "sessions": lambda executor, _: Sessions(executor, project_here()),
    "shapes": ShapesResource,
    "dreams": DreamsResource,
    "selfgrow": lambda executor, _: SelfGrow(executor),
    "instances": lambda executor, _: Instances(executor),
}
"""The resources on the tables of the relational store, by name: made of its executor, and of what opens the vectors."""


class StorageResources(Generic[Executor]):
    """The resources of application tables, on one executor."""

    def __init__(self, executor: Any) -> None:
        executor_type = SyncStorageExecutor if isinstance(executor, SyncExecutor) else AsyncStorageExecutor

        # The core is asked at each call: it refuses once the store is closed.
        def stores() -> OpenStores:
            return cast("OpenStores", executor.core.services(executor_type))

        def open_store(name: str) -> Any:
            return stores().open(name)

        def on_tables(name: str) -> Any:
            return ON_TABLES[name](open_store("relational").held, lambda: open_store("vectors"))

        self.blobs = cast("Blobs[Executor]", LazyResource(executor, lambda: Blobs, partial(open_store, "blobs")))
        self.telemetry = cast(
            "Telemetry[Executor]", LazyResource(executor, lambda: Telemetry, partial(open_store, "telemetry"))
        )
        self.relational = cast(
            "Relational[Executor]", LazyRelational(executor, lambda: Relational, partial(open_store, "relational"))
        )
        self.sessions = cast(
            "Sessions[Executor]", LazyResource(executor, lambda: Sessions, partial(on_tables, "sessions"))
        )
        self.shapes = cast(
            "ShapesResource[Executor]", LazyResource(executor, lambda: ShapesResource, partial(on_tables, "shapes"))
        )
        self.dreams = cast(
            "DreamsResource[Executor]", LazyResource(executor, lambda: DreamsResource, partial(on_tables, "dreams"))
        )
        self.selfgrow = cast(
            "SelfGrow[Executor]", LazyResource(executor, lambda: SelfGrow, partial(on_tables, "selfgrow"))
        )
        self.instances = cast(
            "Instances[Executor]", LazyResource(executor, lambda: Instances, partial(on_tables, "instances"))
        )
        self.vectors = cast("Vectors[Executor]", LazyResource(executor, _vectors, partial(open_store, "vectors")))
        self.storage: StorageResource[Executor] = StorageResource(executor, stores)


def _vectors() -> "type[Vectors[Any]]":
    try:
        from holdproof.storage.vectors.store import Vectors  # noqa: PLC0415 (an optional extra)
    except ImportError as error:
        raise MissingExtraError("vectors need numpy: pip install 'holdproof[vectors]'") from error
    return Vectors
