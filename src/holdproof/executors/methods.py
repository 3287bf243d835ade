"""Nouns and verbs: operations declared once, shown by both faces with their own signature.

    class Locks(Noun[Face]):
        acquire = Runs(locks.acquire)     # await store.locks.acquire(dfid, {"seat": 1}), or without await

A noun of the async face answers with awaitables, a noun of the sync face with the values themselves; streams with
async and with plain iterators. Type checkers and `inspect.signature` see the operation without its `tx`.

On a store that was opened for one namespace, verbs work in that one; those that know no namespace are duties of the
whole store, and are refused.
"""

import inspect
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import Future
from functools import partial
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, overload

from holdproof.db.effects import Stream, Work
from holdproof.db.tx import Refused, Tx
from holdproof.errors import HoldproofError, NamespaceError
from holdproof.executors.async_executor import AsyncExecutor
from holdproof.executors.sync_executor import SyncExecutor

P = ParamSpec("P")
T = TypeVar("T")
Executor = TypeVar("Executor", bound=AsyncExecutor | SyncExecutor, covariant=True)  # noqa: PLC0105


class Resource(Generic[Executor]):
    """Something a store has; its verbs are class attributes."""

    def __init__(self, face: Executor) -> None:
        self._face = face

    @property
    def kind(self) -> "type[Resource[Any]]":
        """The class whose verbs it shows."""
        return type(self)

    @property
    def held(self) -> Any:
        """What `RunsWith` hands on: the store's context, or what the noun stands for."""
        return self._face.context  # type: ignore[union-attr]

    @property
    def ns(self) -> str | None:
        """The namespace that its verbs are held to: the one that the store was opened for, if it was for one."""
        return self._face.ns


def with_namespace(face: AsyncExecutor | SyncExecutor, given: dict[str, Any]) -> dict[str, Any]:
    """The keywords of a call, in the namespace that the store was opened for, if it was for one."""
    if face.ns is not None and given.setdefault("ns", face.ns) != face.ns:
        raise NamespaceError(f"the store is open for the namespace {face.ns} only", ns=face.ns)
    return given


class Method(ABC, Generic[P, T]):
    """A declared operation; bound to a store it looks like the operation without its hidden first parameters.

    One that `reads` changes nothing; one that gives a `secret` is answered once, and its answer is kept nowhere.
    """

    hidden = 0

    def __init__(self, fn: Callable[..., Any], *, reads: bool = False, secret: bool = False) -> None:
        self.fn, self.reads, self.secret = fn, reads, secret

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, noun: Resource[AsyncExecutor], owner: type) -> Callable[P, Awaitable[T]]: ...
    @overload
    def __get__(self, noun: Resource[SyncExecutor], owner: type) -> Callable[P, T]: ...
    def __get__(self, noun: Any, owner: type) -> Any:
        bound = noun.__dict__[self.name] = BoundMethod(self, self.bind(noun))
        return bound

    @abstractmethod
    def bind(self, noun: Any) -> Callable[..., Any]:
        """What runs the operation on the noun's store."""

    def scoped(self, noun: Any) -> Callable[..., Any]:
        """The operation as the noun's store may use it."""
        fn = self.fn
        if noun.ns is None:
            return fn
        if "ns" not in inspect.signature(fn).parameters:
            return partial(_refuse, noun.ns)
        return lambda *args, **kwargs: fn(*args, **with_namespace(noun._face, kwargs))


def _refuse(ns: str, *_: Any, **__: Any) -> Any:
    raise NamespaceError(f"a duty of the whole store, which is open for the namespace {ns} only", ns=ns)


def require_whole_store(face: AsyncExecutor | SyncExecutor) -> None:
    """Refuse a duty of the whole store where it was opened for one namespace."""
    if face.ns is not None:
        _refuse(face.ns)


class BoundMethod:
    """A verb bound to a store."""

    __slots__ = ("_call", "_fn", "_hidden", "reads")

    def __init__(self, verb: Method[Any, Any], call: Callable[..., Any]) -> None:
        self._fn, self._hidden, self._call = verb.fn, verb.hidden, call
        self.reads = verb.reads

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the operation on the store."""
        return self._call(*args, **kwargs)

    @property
    def __signature__(self) -> inspect.Signature:
        signature = inspect.signature(self._fn)
        return signature.replace(parameters=list(signature.parameters.values())[self._hidden :])

    @property
    def __name__(self) -> str:
        return self._fn.__name__

    @property
    def __doc__(self) -> str | None:  # type: ignore[override]
        return self._fn.__doc__


class Writes(Method[P, T]):
    """A verb that writes: a function of a transaction."""

    hidden = 1

    def __init__(self, fn: Callable[Concatenate[Tx, P], T | Refused], *, secret: bool = False) -> None:
        super().__init__(fn, secret=secret)

    def bind(self, noun: Any) -> Callable[..., Any]:
        """Each call is a transaction that writes."""
        fn, write = self.scoped(noun), noun._face.write
        return lambda *args, **kwargs: write(lambda tx: fn(tx, *args, **kwargs))


class WritesWith(Method[P, T]):
    """A verb that writes what is made ready before: a function of what its noun holds that gives one of a transaction.

    What it checks and packs is done once, on the caller's thread, however often the transaction runs.
    """

    hidden = 1

    def __init__(self, fn: Callable[Concatenate[Any, P], Callable[[Tx], T | Refused]]) -> None:
        super().__init__(fn)

    def bind(self, noun: Any) -> Callable[..., Any]:
        """Each call is a transaction that writes."""
        fn, face = self.scoped(noun), noun._face

        def call(*args: Any, **kwargs: Any) -> Any:
            try:
                made = fn(noun.held, *args, **kwargs)
            except HoldproofError as error:
                return face.reject(error)
            return face.write(made)

        return call


class Reads(Method[P, T]):
    """A verb that only reads: a function of a transaction."""

    hidden = 1

    def __init__(self, fn: Callable[Concatenate[Tx, P], T]) -> None:
        super().__init__(fn, reads=True)

    def bind(self, noun: Any) -> Callable[..., Any]:
        """Each call reads one snapshot."""
        fn, read = self.scoped(noun), noun._face.read
        return lambda *args, **kwargs: read(lambda tx: fn(tx, *args, **kwargs))


class Runs(Method[P, T]):
    """A verb that spans transactions: a generator of effects."""

    def __init__(self, fn: Callable[P, Work[T]], *, reads: bool = False) -> None:
        super().__init__(fn, reads=reads)

    def bind(self, noun: Any) -> Callable[..., Any]:
        """Each call drives the work to its end."""
        fn, run = self.scoped(noun), noun._face.run
        return lambda *args, **kwargs: run(fn(*args, **kwargs))


class Awaits(Method[P, T]):
    """A verb whose answer comes from another thread: a function of what its noun holds that gives a future."""

    hidden = 1

    def __init__(self, fn: Callable[Concatenate[Any, P], Future[T]], *, secret: bool = False) -> None:
        super().__init__(fn, secret=secret)

    def bind(self, noun: Any) -> Callable[..., Any]:
        """Each call waits for its answer."""
        fn, hear = self.scoped(noun), noun._face.wait_for
        return lambda *args, **kwargs: hear(fn(noun.held, *args, **kwargs))


class RunsWith(Method[P, T]):
    """A verb that spans transactions; its first parameter is what its noun holds."""

    hidden = 1

    def __init__(self, fn: Callable[Concatenate[Any, P], Work[T]], *, reads: bool = False) -> None:
        super().__init__(fn, reads=reads)

    def bind(self, noun: Any) -> Callable[..., Any]:
        """Each call drives the work to its end."""
        fn, run = self.scoped(noun), noun._face.run
        return lambda *args, **kwargs: run(fn(noun.held, *args, **kwargs))


MethodWrapper = Callable[[str, Callable[..., Any]], Callable[..., Any]]


def wrap_methods(face: AsyncExecutor | SyncExecutor, watcher: MethodWrapper) -> None:
    """Let every verb of a store go through a watcher: given a name (`locks.acquire`) and the call, it answers a call.

    What answers bit by bit is not watched, nor what is called in a transaction.
    """
    for name, noun, verb in _verbs(face):
        noun.__dict__[verb.name] = BoundMethod(verb, watcher(f"{name}.{verb.name}", verb.bind(noun)))


def unwrap_methods(face: AsyncExecutor | SyncExecutor) -> None:
    """Call the verbs of a store as they are again."""
    for _, noun, verb in _verbs(face):
        noun.__dict__.pop(verb.name, None)


def _verbs(face: AsyncExecutor | SyncExecutor) -> Iterator[tuple[str, Resource[Any], Method[Any, Any]]]:
    for name, noun in vars(face).items():
        if isinstance(noun, Resource):
            for verb in vars(type(noun)).values():
                if isinstance(verb, Method) and not isinstance(verb, StreamsWith):
                    yield name, noun, verb


class StreamsWith(Method[P, T]):
    """A verb that answers bit by bit: work that gives; its first parameter is what its noun holds."""

    hidden = 1

    def __init__(self, fn: Callable[Concatenate[Any, P], Stream[T]], *, reads: bool = False) -> None:
        super().__init__(fn, reads=reads)

    @overload  # type: ignore[override]
    def __get__(self, noun: Resource[AsyncExecutor], owner: type) -> Callable[P, AsyncIterator[T]]: ...
    @overload
    def __get__(self, noun: Resource[SyncExecutor], owner: type) -> Callable[P, Iterator[T]]: ...
    def __get__(self, noun: Any, owner: type) -> Any:
        return super().__get__(noun, owner)

    def bind(self, noun: Any) -> Callable[..., Any]:
        """Each call is an iterator that drives the work as far as it is asked."""
        fn, stream = self.scoped(noun), noun._face.stream
        return lambda *args, **kwargs: stream(fn(noun.held, *args, **kwargs))
