"""Effects: the requests that work spanning several transactions makes to its executor.

How it works
------------
Code that needs more than one transaction, waits, or calls the network must run for coroutines and for threads. Instead
of writing it twice it is written once, as a generator that never performs I/O itself. Where it needs something done it
*yields an effect* and is resumed with the result:

    def acquire(resource, *, timeout_s):
        while True:
            lock = yield from ask(Write(lambda tx: try_acquire(tx, resource)))
            if lock:
                return lock
            yield Wait(f"lock:{resource}", until)

An executor (`holdproof.executors`) drives the generator: it performs each effect in its own way (`AsyncExecutor`
awaits, `SyncExecutor` blocks) and sends the result back, or throws the error into the generator at its `yield`. The
value that the generator returns is the result of the whole work.

A generator that also yields `Give(value)` is a stream: its caller iterates over the values, and it advances only when
the next one is requested.
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

from holdproof.db.tx import Tx

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Write(Generic[T]):
    """Run a function of a transaction and commit it; resumes with the function's result."""

    fn: Callable[[Tx], T]


@dataclass(frozen=True, slots=True)
class Read(Generic[T]):
    """Run a reading function of a transaction; resumes with the function's result.

    A short read is tried on the calling thread first. A `long` one goes to a reader thread at once, so that it never
    occupies the caller (an event loop, for instance).
    """

    fn: Callable[[Tx], T]
    long: bool = False


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """Call a function outside any transaction (network, a user's function); resumes with its result.

    The function may block; for an async executor it may also be a coroutine function. After `timeout_s` the work goes
    on with StepTimeoutError: a coroutine is cancelled then, a plain function runs on by itself.
    """

    fn: Callable[[], Any]
    timeout_s: float | None = None


@dataclass(frozen=True, slots=True)
class Wait:
    """Sleep until the topic is notified, the moment `until` comes, or a back-off step is over; check again after.

    Resumes with whether the topic was notified. A notification sent after the last Write or Read of the work began is
    never missed.
    """

    topic: str
    until: str | None = None


@dataclass(frozen=True, slots=True)
class Give(Generic[T_co]):
    """Hand a value of a stream to its consumer; the work resumes when the next value is requested."""

    value: T_co


@dataclass(frozen=True, slots=True)
class Together:
    """Run several works at once, `limit` of them at a time; resumes with the outcome of each, in their order."""

    works: "tuple[Work[Any], ...]"
    limit: int | None = None


class WorkOutcome(NamedTuple):
    """How one of several works ended: with a value, or by an error."""

    value: Any
    error: BaseException | None


Effect = Write[Any] | Read[Any] | Call[Any] | Wait | Together
Work = Generator[Effect, Any, T]
Stream = Generator[Effect | Give[T], Any, None]


def ask(effect: Write[T] | Read[T] | Call[T]) -> Generator[Effect, Any, T]:
    """Yield one effect and return its result with its static type."""
    result: T = yield effect
    return result


def call(fn: Callable[..., T], /, *args: Any) -> Generator[Effect, Any, T]:
    """Call a plain function outside any transaction and return its result with its static type."""
    result: T = yield Call(partial(fn, *args))
    return result
