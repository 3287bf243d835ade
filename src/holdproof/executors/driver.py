"""The rim of every client: resuming generators of effects, for coroutines and for threads.

`db/effects.py` explains what a generator of effects is. The embedded clients run such generators on a database
(`AsyncExecutor`, `SyncExecutor`), the remote ones over HTTP (`AsyncTransport`, `SyncTransport`); all four are runners
of this module, and `Run` below is the only loop that resumes a generator. It is written with coroutines:

- For an `AsyncRunner` effects are awaited, and so is the coroutine, as usual.
- For a `SyncRunner` effects block and never suspend. A coroutine that never suspends runs to its end in one step, so
  `complete` can execute it without an event loop, and inside of one.

So nothing that spans several effects is written twice; a runner only says how a single effect is carried out.
"""

import inspect
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from threading import Thread
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from holdproof.db.effects import Give, WorkOutcome
from holdproof.errors import StepTimeoutError, WrongClientError
from holdproof.lazy import lazy_module

if TYPE_CHECKING:
    import asyncio
else:
    asyncio = lazy_module("asyncio")  # threads need none of it

T = TypeVar("T")
Effects = Generator[Any, Any, T]
"""A generator of effects that returns a `T`; which effects there are is between it and its runner."""

_CALL_THREADS = 32


class Performer(ABC):
    """Carries out the effects of one run; made for each run, so that it may remember things between effects."""

    @abstractmethod
    async def perform(self, effect: Any) -> Any:
        """Carry out one effect and return its result."""

    async def end(self) -> None:  # noqa: B027 (most leave nothing open)
        """Release what the effects of the run left open; called once, however the run ended."""


class Run(Generic[T]):
    """One run of a generator of effects."""

    def __init__(self, effects: Effects[T], performer: Performer) -> None:
        self._effects = effects
        self._performer = performer
        # What the generator is resumed with: the outcome of its last effect.
        self._value: Any = None
        self._error: BaseException | None = None
        self.result: T | None = None

    async def advance(self) -> Give[Any] | None:
        """Run to the next value of a stream; None once the generator has returned its `result`.

        An effect's error is raised inside the generator first; raises what the generator raises.
        """
        while True:
            effect = self._resume()
            if effect is None or isinstance(effect, Give):
                return effect
            try:
                self._value = await self._performer.perform(effect)
            # Everything, also a cancellation: the generator has `finally` blocks, and may turn one error into another.
            except BaseException as error:
                self._error = error

    def _resume(self) -> Any:
        value = self._value
        error = self._error
        self._value = None
        self._error = None
        try:
            return self._effects.send(value) if error is None else self._effects.throw(error)
        except StopIteration as stop:
            self.result = stop.value
            return None
        finally:
            # The error's traceback has this frame: without this they would keep each other alive.
            del error

    async def end(self) -> None:
        """Close the generator, which runs its `finally` blocks, and release what its effects left open."""
        try:
            self._effects.close()
        finally:
            await self._performer.end()


class CallThreads:
    """Threads for blocking functions of the caller; they exist from the first call on."""

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None

    def call(self, fn: Callable[[], T]) -> "asyncio.Future[T]":
        """Call a function in a thread, with the caller's context variables.

        The loop's default executor is left to the program: it has six threads on two cores.
        """
        if self._pool is None:
            self._pool = ThreadPoolExecutor(_CALL_THREADS, thread_name_prefix="holdproof-call")
        return asyncio.get_running_loop().run_in_executor(self._pool, copy_context().run, fn)

    def close(self) -> None:
        """Let the threads end when their functions have."""
        if self._pool is not None:
            self._pool.shutdown(wait=False)


class AsyncRunner(ABC):
    """Runs generators of effects for coroutines."""

    @abstractmethod
    def performer(self) -> Performer:
        """Return what carries out the effects of one run."""

    @abstractmethod
    def call_in_thread(self, fn: Callable[[], T]) -> "asyncio.Future[T]":
        """Call a function that may block."""

    async def run(self, work: Effects[T]) -> T:
        """Drive work that spans several effects and return its result."""
        run = Run(work, self.performer())
        try:
            await run.advance()
        finally:
            await run.end()
        return run.result  # type: ignore[return-value]

    async def stream(self, work: Effects[None]) -> AsyncGenerator[Any, None]:
        """Drive a stream, as fast as its values are requested."""
        run = Run(work, self.performer())
        try:
            while (item := await run.advance()) is not None:
                yield item.value
        finally:
            await run.end()

    def check_functions(self, *functions: Callable[..., Any] | None) -> None:  # noqa: B027 (any function will do)
        """Refuse functions that `call` could not call; here there are none."""

    async def call(self, fn: Callable[[], Any], timeout_s: float | None = None) -> Any:
        """Call a function of the caller: await an `async def`, run any other in a thread, since it may block."""
        if timeout_s is None:
            return await self._call(fn)
        try:
            async with asyncio.timeout(timeout_s) as limit:
                return await self._call(fn)
        except TimeoutError as error:
            # The function's own timeouts are its own errors.
            if limit.expired():
                raise overran(timeout_s) from error
            raise

    async def together(self, works: Sequence[Effects[Any]], limit: int | None) -> list[WorkOutcome]:
        """Run several works at once, each in a task of its own."""
        slots = asyncio.Semaphore(limit or max(1, len(works)))

        async def one(work: Effects[Any]) -> WorkOutcome:
            async with slots:
                try:
                    return WorkOutcome(await self.run(work), None)
                # A cancellation of the whole is not the outcome of a part.
                except asyncio.CancelledError:
                    raise
                except BaseException as error:
                    return WorkOutcome(None, error)

        return [*await asyncio.gather(*map(one, works))]

    async def _call(self, fn: Callable[[], Any]) -> Any:
        result = await (fn() if inspect.iscoroutinefunction(fn) else self.call_in_thread(fn))
        # A plain function may still have returned an awaitable, made in the thread: it runs here.
        return await result if inspect.isawaitable(result) else result


class SyncRunner(ABC):
    """Runs generators of effects for threads, also for one that runs an event loop, which waits meanwhile."""

    @abstractmethod
    def performer(self) -> Performer:
        """Return what carries out the effects of one run; nothing in it may suspend."""

    def run(self, work: Effects[T]) -> T:
        """Drive work that spans several effects and return its result."""
        run = Run(work, self.performer())
        try:
            complete(run.advance())
        finally:
            complete(run.end())
        return run.result  # type: ignore[return-value]

    # A plain generator. An async one would be registered with the event loop that runs on this thread, if one does, and
    # be closed together with it.
    def stream(self, work: Effects[None]) -> Iterator[Any]:
        """Drive a stream, as fast as its values are requested."""
        run = Run(work, self.performer())
        try:
            while (item := complete(run.advance())) is not None:
                yield item.value
        finally:
            complete(run.end())

    def check_functions(self, *functions: Callable[..., Any] | None) -> None:
        """Raise WrongClientError for an `async def`, which the sync clients cannot await.

        They do not run it in a loop of their own either: what it shares with the caller's loop (sessions, locks, tasks)
        would fail there, or wait forever for a loop that waits for this call.
        """
        for fn in functions:
            if inspect.iscoroutinefunction(fn):
                raise _wrong_client(fn)

    def call_plain(self, fn: Callable[[], Any], timeout_s: float | None = None) -> Any:
        """Call a function of the caller on its own thread; WrongClientError if it returns a coroutine."""
        result = fn() if timeout_s is None else _call_limited(fn, timeout_s)
        # Nothing of it has run yet, as nobody awaited it; so there is no need to look at the function beforehand.
        if inspect.iscoroutine(result):
            result.close()
            raise _wrong_client(fn)
        return result

    def together(self, works: Sequence[Effects[Any]], limit: int | None) -> list[WorkOutcome]:
        """Run several works at once, each in a thread of its own."""

        def one(work: Effects[Any]) -> WorkOutcome:
            try:
                return WorkOutcome(self.run(work), None)
            except BaseException as error:
                return WorkOutcome(None, error)

        if not works:
            return []
        with ThreadPoolExecutor(limit or len(works), thread_name_prefix="holdproof-together") as pool:
            # Each in a copy of the caller's context: which steps it is in, and what tracing goes by.
            return [future.result() for future in [pool.submit(copy_context().run, one, work) for work in works]]


def overran(timeout_s: float) -> StepTimeoutError:
    """Return the error of a function that ran over its time limit."""
    return StepTimeoutError(f"it did not end within {timeout_s:g} s", timeout_s=timeout_s)


def _call_limited(fn: Callable[[], Any], timeout_s: float) -> Any:
    """Call a function in a thread of its own, and give up waiting for it after a while; it runs on by itself."""
    outcome: Future[Any] = Future()

    def call() -> None:
        try:
            outcome.set_result(fn())
        except BaseException as error:
            outcome.set_exception(error)

    # A daemon: a function that hangs must not keep the program from ending.
    Thread(target=copy_context().run, args=(call,), name="holdproof-limited", daemon=True).start()
    try:
        return outcome.result(timeout_s)
    except TimeoutError as error:
        # The function's own timeouts are its own errors.
        if outcome.done():
            raise
        raise overran(timeout_s) from error


def _wrong_client(fn: Callable[..., Any] | None) -> WrongClientError:
    name = getattr(inspect.unwrap(getattr(fn, "func", fn)), "__name__", "the function")  # type: ignore[arg-type]
    text = f"{name} is async, and the sync client cannot await it: pass a plain function, or use the async client"
    return WrongClientError(text, name=name)


def complete(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never suspends and return its result."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        result: T = stop.value
        return result
    raise AssertionError("an effect of a sync runner suspended")
