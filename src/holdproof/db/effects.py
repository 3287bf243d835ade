"""What work that spans transactions may ask for.

Such work is a plain generator that yields `Write | Read | Call | Wait` and gets each answer back; the async and the
sync face each own one driver (ops/). So `once`, `step` or waiting for a human is written once, without a colour:

    def acquire(resource, *, timeout_s):
        while True:
            lock = yield from ask(Write(lambda tx: try_acquire(tx, resource)))
            if lock: return lock
            yield Wait(f"lock:{resource}", until)

Work that answers bit by bit also yields `Give(value)`; the faces show it as an iterator.
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from holdproof.db.tx import Tx

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Write(Generic[T]):
    """Run a function of a transaction and commit; the answer is its result."""

    fn: Callable[[Tx], T]


@dataclass(frozen=True, slots=True)
class Read(Generic[T]):
    """Run a reading function of a transaction; the answer is its result."""

    fn: Callable[[Tx], T]


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """Call something outside any transaction (network, a user's function, blocking or async)."""

    fn: Callable[[], Any]


@dataclass(frozen=True, slots=True)
class Wait:
    """Sleep until the topic is notified, the moment `until` comes, or a back-off step is over; always look again after.

    The answer says whether the topic was notified. A notification that came after the work's last Write or Read
    began is never missed.
    """

    topic: str
    until: str | None = None


@dataclass(frozen=True, slots=True)
class Give(Generic[T_co]):
    """Hand a value to whoever iterates over the work; it goes on when the next one is asked for."""

    value: T_co


Effect = Write[Any] | Read[Any] | Call[Any] | Wait
Work = Generator[Effect, Any, T]
Stream = Generator[Effect | Give[T], Any, None]


def ask(effect: Write[T] | Read[T] | Call[T]) -> Generator[Effect, Any, T]:
    """Yield one effect and give its answer back with its type."""
    answer: T = yield effect
    return answer


def call(fn: Callable[..., T], /, *args: Any) -> Generator[Effect, Any, T]:
    """Call something plain outside any transaction and give its answer back with its type."""
    answer: T = yield Call(partial(fn, *args))
    return answer
