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
from holdfast.ops.async_face import AsyncFace
from holdfast.ops.sync_face import SyncFace

P = ParamSpec("P")
T = TypeVar("T")


class AsyncNoun:
    """A noun of the async face; its verbs are class attributes."""

    def __init__(self, face: AsyncFace) -> None:
        self._face = face


class SyncNoun:
    """A noun of the sync face; its verbs are class attributes."""

    def __init__(self, face: SyncFace) -> None:
        self._face = face


class Verb(Generic[P, T]):
    """A declared operation; bound to a store it looks like the operation without its transaction."""

    def __init__(self, fn: Callable[..., Any], run: str, *, hidden: int) -> None:
        signature = inspect.signature(fn)
        parameters = list(signature.parameters.values())[hidden:]
        self.fn, self.run = fn, run
        self.signature = signature.replace(parameters=parameters)

    def bind(self, noun: Any) -> Any:
        """The verb of one store, ready to call."""
        return Bound(self, getattr(noun._face, self.run))


class Bound:
    """A verb bound to a store."""

    __slots__ = ("_run", "_verb")

    def __init__(self, verb: Verb[Any, Any], run: Callable[..., Any]) -> None:
        self._verb, self._run = verb, run

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the operation on the store."""
        fn = self._verb.fn
        if self._verb.run == "run":
            return self._run(fn(*args, **kwargs))
        return self._run(lambda tx: fn(tx, *args, **kwargs))

    @property
    def __signature__(self) -> inspect.Signature:
        return self._verb.signature

    @property
    def __name__(self) -> str:
        return self._verb.fn.__name__

    @property
    def __doc__(self) -> str | None:  # type: ignore[override]
        return self._verb.fn.__doc__


class AsyncWrite(Verb[P, T]):
    """A verb that writes."""

    def __init__(self, fn: Callable[Concatenate[Tx, P], T | Refused]) -> None:
        super().__init__(fn, "write", hidden=1)

    def __get__(self, noun: AsyncNoun, owner: type[AsyncNoun]) -> Callable[P, Awaitable[T]]:
        bound: Callable[P, Awaitable[T]] = self.bind(noun)
        return bound


class AsyncRead(Verb[P, T]):
    """A verb that only reads."""

    def __init__(self, fn: Callable[Concatenate[Tx, P], T]) -> None:
        super().__init__(fn, "read", hidden=1)

    def __get__(self, noun: AsyncNoun, owner: type[AsyncNoun]) -> Callable[P, Awaitable[T]]:
        bound: Callable[P, Awaitable[T]] = self.bind(noun)
        return bound


class AsyncRun(Verb[P, T]):
    """A verb that spans transactions: a generator of effects."""

    def __init__(self, fn: Callable[P, Work[T]]) -> None:
        super().__init__(fn, "run", hidden=0)

    def __get__(self, noun: AsyncNoun, owner: type[AsyncNoun]) -> Callable[P, Awaitable[T]]:
        bound: Callable[P, Awaitable[T]] = self.bind(noun)
        return bound


class SyncWrite(Verb[P, T]):
    """A verb that writes."""

    def __init__(self, fn: Callable[Concatenate[Tx, P], T | Refused]) -> None:
        super().__init__(fn, "write", hidden=1)

    def __get__(self, noun: SyncNoun, owner: type[SyncNoun]) -> Callable[P, T]:
        bound: Callable[P, T] = self.bind(noun)
        return bound


class SyncRead(Verb[P, T]):
    """A verb that only reads."""

    def __init__(self, fn: Callable[Concatenate[Tx, P], T]) -> None:
        super().__init__(fn, "read", hidden=1)

    def __get__(self, noun: SyncNoun, owner: type[SyncNoun]) -> Callable[P, T]:
        bound: Callable[P, T] = self.bind(noun)
        return bound


class SyncRun(Verb[P, T]):
    """A verb that spans transactions: a generator of effects."""

    def __init__(self, fn: Callable[P, Work[T]]) -> None:
        super().__init__(fn, "run", hidden=0)

    def __get__(self, noun: SyncNoun, owner: type[SyncNoun]) -> Callable[P, T]:
        bound: Callable[P, T] = self.bind(noun)
        return bound
