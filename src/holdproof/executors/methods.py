"""Resources and methods: operations declared once, offered by both clients with their own signature.

    class Locks(Resource[Executor]):
        acquire = Runs(locks.acquire, agent=OWN_FLOW)     # await store.locks.acquire(flow_id, {"seat": 1}), or without

A resource of the async client answers with awaitables, one of the sync client with the values themselves; streams with
async and with plain iterators. Type checkers and `inspect.signature` see the operation without its `tx`.

The keywords of a declaration (exposure.py) say who may call the method at the server, whether it is a tool, and how
the command line shows it. There is no other place for these facts.

On a store that was opened for one namespace, methods work in that one; those that have no namespace concern the whole
store, and are refused.
"""

import inspect
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Concatenate, Generic, ParamSpec, TypeVar, overload

from holdproof.db.effects import Stream, Work
from holdproof.db.tx import Refused, Tx
from holdproof.errors import HoldproofError, NamespaceError
from holdproof.executors.accesses import AccessWatch, watch_of
from holdproof.executors.driver import SyncRunner
from holdproof.executors.exposure import Exposure
from holdproof.executors.sync_executor import SyncExecutor
from holdproof.lazy import LazyFunction

if TYPE_CHECKING:  # it needs asyncio, and a program of threads does not
    from holdproof.executors.async_executor import AsyncExecutor

P = ParamSpec("P")
T = TypeVar("T")
Executor = TypeVar("Executor", bound="AsyncExecutor | SyncExecutor", covariant=True)  # noqa: PLC0105


class Resource(Generic[Executor]):
    """Something a store has; its methods are class attributes."""

    grantable: ClassVar[bool] = False
    """Whether a token of an agent may grant it, beside what agents may do anyway."""
    namespaced: ClassVar[bool] = True
    """Whether it is divided by namespaces."""
    group: ClassVar[str] = "More"
    """The heading of `holdproof --help` that it stands under."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor

    @property
    def kind(self) -> "type[Resource[Any]]":
        """The class that declares its methods."""
        return type(self)

    @property
    def held(self) -> Any:
        """The first argument of `RunsWith` functions: the store's context, or what the resource stands for."""
        return self._executor.context  # type: ignore[union-attr]

    @property
    def ns(self) -> str | None:
        """The namespace that the store was opened for, if it was for one; its methods work in no other."""
        return self._executor.ns

    def __repr__(self) -> str:
        kind = self.kind
        names = [name for name, each in inspect.getmembers_static(kind) if isinstance(each, Method)]
        return f"<{kind.__name__}: {', '.join(names)}>"


def with_namespace(executor: "AsyncExecutor | SyncExecutor", kwargs: dict[str, Any]) -> dict[str, Any]:
    """Add the namespace that the store was opened for, if it was for one, to the keywords of a call."""
    if executor.ns is not None and kwargs.setdefault("ns", executor.ns) != executor.ns:
        raise NamespaceError(f"the store is open for the namespace {executor.ns} only", ns=executor.ns)
    return kwargs


class Method(ABC, Generic[P, T]):
    """A declared operation; bound to a store it looks like the operation without its hidden first parameters.

    One that `reads` changes nothing; one that gives a `secret` is answered once, and its answer is stored nowhere.
    `calls` names parameters that are functions, which the executor calls. All other keywords are the facts of
    `Exposure`.
    """

    hidden = 0
    """How many parameters of the function are not the caller's: the transaction, or what the resource holds."""

    def __init__(
        self,
        fn: Callable[..., Any],
        *,
        reads: bool = False,
        secret: bool = False,
        calls: tuple[str, ...] = (),
        **exposure: Any,
    ) -> None:
        self._fn: Callable[..., Any] | LazyFunction = fn
        self.reads = reads
        self.secret = secret
        self.calls = calls
        self.exposure = Exposure(**exposure)

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @property
    def fn(self) -> Callable[..., Any]:
        """The operation; its module is imported when this is first asked for."""
        if isinstance(self._fn, LazyFunction):
            self._fn = self._fn.load()
        return self._fn

    @overload
    def __get__(self, resource: None, owner: type) -> "Method[P, T]": ...
    @overload
    def __get__(self, resource: "Resource[AsyncExecutor]", owner: type) -> Callable[P, Awaitable[T]]: ...
    @overload
    def __get__(self, resource: Resource[SyncExecutor], owner: type) -> Callable[P, T]: ...
    def __get__(self, resource: Any, owner: type) -> Any:
        # Of the class itself, as `help(Flows)` and editors ask.
        if resource is None:
            return self
        # Cached on the resource: the next access does not come here.
        bound = resource.__dict__[self.name] = BoundMethod(self, self.bind(resource))
        return bound

    @abstractmethod
    def bind(self, resource: Any) -> Callable[..., Any]:
        """Return the callable that runs the operation on the resource's store."""

    def scoped(self, resource: Any) -> Callable[..., Any]:
        """The operation as the resource's store may use it."""
        fn = self.fn
        if resource.ns is None:
            return fn
        # Refused when it is called: the attribute itself exists on every store, for `inspect` and for help.
        if "ns" not in inspect.signature(fn).parameters:
            return partial(_refuse, resource.ns)
        # At each call: the caller may pass the namespace itself, and is refused if it is another.
        return lambda *args, **kwargs: fn(*args, **with_namespace(resource._executor, kwargs))

    def watch(self, resource: Any) -> AccessWatch | None:
        """Return what records whom the method gives content to; None for one that reads nothing, or keeps no log."""
        if not self.reads and not self.exposure.exports:
            return None
        subject = next(iter(_visible_signature(self).parameters), "") if self.exposure.exports else ""
        return watch_of(resource, self.name, subject=subject, exports=self.exposure.exports)

    def checked(self, resource: Any, call: Callable[..., Any]) -> Callable[..., Any]:
        """The call, which refuses functions that its executor could never call before anything has begun.

        A compensation, for one, would else be refused when its step has to be undone.
        """
        if not self.calls or not isinstance(resource._executor, SyncRunner):
            return call
        executor = resource._executor
        signature = _visible_signature(self)

        def check(*args: Any, **kwargs: Any) -> Any:
            arguments = signature.bind(*args, **kwargs).arguments
            passed = [arguments.get(name) for name in self.calls]
            # Of `*args` the first: a step's function may follow its name.
            executor.check_functions(*(next(iter(each), None) if isinstance(each, tuple) else each for each in passed))
            return call(*args, **kwargs)

        return check


def _visible_signature(method: Method[Any, Any]) -> inspect.Signature:
    """The signature of the operation without its hidden first parameters."""
    signature = inspect.signature(method.fn)
    return signature.replace(parameters=list(signature.parameters.values())[method.hidden :])


def _refuse(ns: str, *_: Any, **__: Any) -> Any:
    raise NamespaceError(f"this concerns the whole store, which is open for the namespace {ns} only", ns=ns)


def require_whole_store(executor: "AsyncExecutor | SyncExecutor") -> None:
    """Refuse what concerns the whole store where it was opened for one namespace."""
    if executor.ns is not None:
        _refuse(executor.ns)


class BoundMethod(partial[Any]):
    """A method bound to a store: the call that runs the operation there, with the operation's own signature.

    A `partial`, so that calling it costs no frame of its own.
    """

    def __new__(cls, method: Method[Any, Any], call: Callable[..., Any]) -> "BoundMethod":
        """Bind a declared method to the call that runs it on a store."""
        bound = super().__new__(cls, call)
        bound._method = method
        bound.reads = method.reads
        return bound

    # Any: a declaration is a descriptor, which a type checker would take for a method of this class.
    _method: Any
    reads: bool

    def __repr__(self) -> str:
        return f"<method {self.__name__}{self._parameters}>"

    @property
    def _parameters(self) -> inspect.Signature:
        # Without what the operation returns: a generator of effects is not what a caller gets.
        return self.__signature__.replace(return_annotation=inspect.Signature.empty)

    # Computed when they are asked for: methods are bound on the way to a call, which needs none of these.
    @property
    def __signature__(self) -> inspect.Signature:
        return _visible_signature(self._method)

    @property
    def __name__(self) -> str:
        return str(self._method.fn.__name__)

    @property
    def __doc__(self) -> str | None:  # type: ignore[override]
        # With the signature, which `help` shows for functions only.
        return f"{self.__name__}{self._parameters}\n\n    {self._method.fn.__doc__ or ''}"


class Writes(Method[P, T]):
    """A method that writes: a function of a transaction."""

    hidden = 1

    def __init__(self, fn: Callable[Concatenate[Tx, P], T | Refused], **facts: Any) -> None:
        super().__init__(fn, **facts)

    def bind(self, resource: Any) -> Callable[..., Any]:
        """Return a function whose every call is a writing transaction."""
        fn = self.scoped(resource)
        write = resource._executor.write
        return lambda *args, **kwargs: write(lambda tx: fn(tx, *args, **kwargs))


class WritesWith(Method[P, T]):
    """A method that writes: a function of what its resource holds that returns a function of a transaction.

    It checks and encodes once, on the caller's thread, however often the transaction runs.
    """

    hidden = 1

    def __init__(self, fn: Callable[Concatenate[Any, P], Callable[[Tx], T | Refused]], **facts: Any) -> None:
        super().__init__(fn, **facts)

    def bind(self, resource: Any) -> Callable[..., Any]:
        """Return a function whose every call is a writing transaction."""
        fn = self.scoped(resource)
        executor = resource._executor

        def call(*args: Any, **kwargs: Any) -> Any:
            try:
                transaction = fn(resource.held, *args, **kwargs)
            # The async client must fail when it is awaited, like every other of its methods, not when it is called.
            except HoldproofError as error:
                return executor.reject(error)
            return executor.write(transaction)

        return call


class Reads(Method[P, T]):
    """A method that only reads: a function of a transaction."""

    hidden = 1

    def __init__(self, fn: Callable[Concatenate[Tx, P], T], **facts: Any) -> None:
        super().__init__(fn, reads=True, **facts)

    def bind(self, resource: Any) -> Callable[..., Any]:
        """Return a function whose every call reads one snapshot."""
        fn = self.scoped(resource)
        read = resource._executor.read
        watch = self.watch(resource)
        if watch is None:
            return lambda *args, **kwargs: read(lambda tx: fn(tx, *args, **kwargs))

        def call(*args: Any, **kwargs: Any) -> Any:
            return read(watch.reading(lambda tx: fn(tx, *args, **kwargs), args, kwargs))

        return call


class Runs(Method[P, T]):
    """A method that spans transactions: a generator of effects."""

    def __init__(self, fn: Callable[P, Work[T]], **facts: Any) -> None:
        super().__init__(fn, **facts)

    def bind(self, resource: Any) -> Callable[..., Any]:
        """Return a function whose every call drives the work to its end."""
        fn = self.scoped(resource)
        run = resource._executor.run
        watch = self.watch(resource)
        if watch is not None:
            return self.checked(resource, lambda *args, **kwargs: run(watch.working(fn(*args, **kwargs), args, kwargs)))
        return self.checked(resource, lambda *args, **kwargs: run(fn(*args, **kwargs)))


class Awaits(Method[P, T]):
    """A method whose answer comes from another thread: a function of what its resource holds that returns a future."""

    hidden = 1

    def __init__(self, fn: Callable[Concatenate[Any, P], Future[T]], **facts: Any) -> None:
        super().__init__(fn, **facts)

    def bind(self, resource: Any) -> Callable[..., Any]:
        """Return a function that waits for the result."""
        fn = self.scoped(resource)
        wait_for = resource._executor.wait_for
        return lambda *args, **kwargs: wait_for(fn(resource.held, *args, **kwargs))


class AwaitsUngated(Method[P, T]):
    """A method that writes while the store is locked too, since people log in to see why it is locked."""

    hidden = 1

    def __init__(self, fn: Callable[Concatenate[Tx, P], T | Refused], **facts: Any) -> None:
        super().__init__(fn, **facts)

    def bind(self, resource: Any) -> Callable[..., Any]:
        """Return a function whose every call is a writing transaction that no lockdown refuses."""
        fn = self.scoped(resource)
        executor = resource._executor
        write = resource.held.database.write
        return lambda *args, **kwargs: executor.wait_for(write(lambda tx: fn(tx, *args, **kwargs), ungated=True))


class RunsWith(Method[P, T]):
    """A method that spans transactions; its first parameter is what its resource holds."""

    hidden = 1

    def __init__(self, fn: Callable[Concatenate[Any, P], Work[T]], **facts: Any) -> None:
        super().__init__(fn, **facts)

    def bind(self, resource: Any) -> Callable[..., Any]:
        """Return a function whose every call drives the work to its end."""
        fn = self.scoped(resource)
        run = resource._executor.run
        watch = self.watch(resource)
        if watch is not None:
            return self.checked(
                resource, lambda *args, **kwargs: run(watch.working(fn(resource.held, *args, **kwargs), args, kwargs))
            )
        return self.checked(resource, lambda *args, **kwargs: run(fn(resource.held, *args, **kwargs)))


MethodWrapper = Callable[[str, Callable[..., Any]], Callable[..., Any]]


def wrap_methods(executor: "AsyncExecutor | SyncExecutor", watcher: MethodWrapper) -> None:
    """Wrap every method of a store: `watcher` takes a name (`locks.acquire`) and the call, and returns a call.

    Streams are not wrapped, nor is what is called inside a transaction.
    """
    for name, resource, method in _methods(executor):
        resource.__dict__[method.name] = BoundMethod(method, watcher(f"{name}.{method.name}", method.bind(resource)))


def unwrap_methods(executor: "AsyncExecutor | SyncExecutor") -> None:
    """Call the methods of a store as they are again."""
    for _, resource, method in _methods(executor):
        # The next access binds it anew, unwrapped (see Method.__get__).
        resource.__dict__.pop(method.name, None)


def _methods(executor: "AsyncExecutor | SyncExecutor") -> Iterator[tuple[str, Resource[Any], Method[Any, Any]]]:
    for name, resource in vars(executor).items():
        if isinstance(resource, Resource):
            for method in vars(type(resource)).values():
                if isinstance(method, Method) and not isinstance(method, StreamsWith):
                    yield name, resource, method


class StreamsWith(Method[P, T]):
    """A method that answers item by item; its first parameter is what its resource holds."""

    hidden = 1

    def __init__(self, fn: Callable[Concatenate[Any, P], Stream[T]], **facts: Any) -> None:
        super().__init__(fn, **facts)

    @overload  # type: ignore[override]
    def __get__(self, resource: None, owner: type) -> "StreamsWith[P, T]": ...
    @overload
    def __get__(self, resource: "Resource[AsyncExecutor]", owner: type) -> Callable[P, AsyncIterator[T]]: ...
    @overload
    def __get__(self, resource: Resource[SyncExecutor], owner: type) -> Callable[P, Iterator[T]]: ...
    def __get__(self, resource: Any, owner: type) -> Any:
        return super().__get__(resource, owner)

    def bind(self, resource: Any) -> Callable[..., Any]:
        """Return a function that returns an iterator; each step drives the work to its next value."""
        fn = self.scoped(resource)
        stream = resource._executor.stream
        watch = self.watch(resource)
        if watch is not None:
            return lambda *args, **kwargs: stream(watch.working(fn(resource.held, *args, **kwargs), args, kwargs))
        return lambda *args, **kwargs: stream(fn(resource.held, *args, **kwargs))
