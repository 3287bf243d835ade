"""Nouns and verbs: operations declared once a face, with their own signature.

    class Locks(AsyncNoun):
        acquire = AsyncWrite(locks.acquire)     # store.locks.acquire(resource, flow=…, ttl_s=…)

Type checkers and `inspect.signature` see the operation without its `tx`.
"""

import inspect
from collections.abc import Awaitable, Callable
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from holdfast.db.effects import Work
from holdfast.db.tx import Refused, Tx
from holdfast.evidence.context import Context
from holdfast.ops.async_face import AsyncFace
from holdfast.ops.sync_face import SyncFace

P = ParamSpec("P")
T = TypeVar("T")
Call = Callable[..., Any]


class AsyncNoun:
    """A noun of the async face; its verbs are class attributes."""

    def __init__(self, face: AsyncFace) -> None:
        self._face = face


class SyncNoun:
    """A noun of the sync face; its verbs are class attributes."""

    def __init__(self, face: SyncFace) -> None:
        self._face = face


class Verb(Generic[P, T]):
    """A declared operation; bound to a store it looks like the operation without its first, hidden parameter."""

    def __init__(self, fn: Callable[..., Any], how: Callable[[Any, Callable[..., Any]], Call], *, hidden: int) -> None:
        signature = inspect.signature(fn)
        parameters = list(signature.parameters.values())[hidden:]
        self.fn, self.how = fn, how
        self.signature = signature.replace(parameters=parameters)

    def bind(self, noun: AsyncNoun | SyncNoun) -> Any:
        """The verb of one store, ready to call."""
        return Bound(self, self.how(noun._face, self.fn))


class Bound:
    """A verb bound to a store."""

    __slots__ = ("_call", "_verb")

    def __init__(self, verb: Verb[Any, Any], call: Call) -> None:
        self._verb, self._call = verb, call

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the operation on the store."""
        return self._call(*args, **kwargs)

    @property
    def __signature__(self) -> inspect.Signature:
        return self._verb.signature

    @property
    def __name__(self) -> str:
        return self._verb.fn.__name__

    @property
    def __doc__(self) -> str | None:  # type: ignore[override]
        return self._verb.fn.__doc__


def _write(face: Any, fn: Callable[..., Any]) -> Call:
    return lambda *args, **kwargs: face.write(lambda tx: fn(tx, *args, **kwargs))


def _read(face: Any, fn: Callable[..., Any]) -> Call:
    return lambda *args, **kwargs: face.read(lambda tx: fn(tx, *args, **kwargs))


def _run(face: Any, fn: Callable[..., Any]) -> Call:
    return lambda *args, **kwargs: face.run(fn(*args, **kwargs))


def _run_with(face: Any, fn: Callable[..., Any]) -> Call:
    return lambda *args, **kwargs: face.run(fn(face.context, *args, **kwargs))


class _AsyncVerb(Verb[P, T]):
    def __get__(self, noun: AsyncNoun, owner: type[AsyncNoun]) -> Callable[P, Awaitable[T]]:
        bound: Callable[P, Awaitable[T]] = self.bind(noun)
        return bound


class AsyncWrite(_AsyncVerb[P, T]):
    """A verb that writes: a function of a transaction."""

    def __init__(self, fn: Callable[Concatenate[Tx, P], T | Refused]) -> None:
        super().__init__(fn, _write, hidden=1)


class AsyncRead(_AsyncVerb[P, T]):
    """A verb that only reads: a function of a transaction."""

    def __init__(self, fn: Callable[Concatenate[Tx, P], T]) -> None:
        super().__init__(fn, _read, hidden=1)


class AsyncRun(_AsyncVerb[P, T]):
    """A verb that spans transactions: a generator of effects."""

    def __init__(self, fn: Callable[P, Work[T]]) -> None:
        super().__init__(fn, _run, hidden=0)


class AsyncRunWith(_AsyncVerb[P, T]):
    """A verb that spans transactions and needs the store's context, its first parameter."""

    def __init__(self, fn: Callable[Concatenate[Context, P], Work[T]]) -> None:
        super().__init__(fn, _run_with, hidden=1)


class _SyncVerb(Verb[P, T]):
    def __get__(self, noun: SyncNoun, owner: type[SyncNoun]) -> Callable[P, T]:
        bound: Callable[P, T] = self.bind(noun)
        return bound


class SyncWrite(_SyncVerb[P, T]):
    """A verb that writes: a function of a transaction."""

    def __init__(self, fn: Callable[Concatenate[Tx, P], T | Refused]) -> None:
        super().__init__(fn, _write, hidden=1)


class SyncRead(_SyncVerb[P, T]):
    """A verb that only reads: a function of a transaction."""

    def __init__(self, fn: Callable[Concatenate[Tx, P], T]) -> None:
        super().__init__(fn, _read, hidden=1)


class SyncRun(_SyncVerb[P, T]):
    """A verb that spans transactions: a generator of effects."""

    def __init__(self, fn: Callable[P, Work[T]]) -> None:
        super().__init__(fn, _run, hidden=0)


class SyncRunWith(_SyncVerb[P, T]):
    """A verb that spans transactions and needs the store's context, its first parameter."""

    def __init__(self, fn: Callable[Concatenate[Context, P], Work[T]]) -> None:
        super().__init__(fn, _run_with, hidden=1)
