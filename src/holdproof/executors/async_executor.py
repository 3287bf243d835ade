"""The async face: operations for coroutines."""

import asyncio
import inspect
from asyncio import get_running_loop
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from concurrent.futures import Future
from contextlib import aclosing
from typing import Any, TypeVar

from holdproof.db.database import Database
from holdproof.db.effects import Call, Effect, Give, Read, Stream, Wait, Work, Write
from holdproof.db.sql import Query
from holdproof.db.tx import Refused, Row, Tx
from holdproof.db.worker_pool import SERIALIZABLE
from holdproof.errors import HoldproofError
from holdproof.executors.driver import Driver
from holdproof.executors.loop_delivery import LoopDelivery

S = TypeVar("S")
T = TypeVar("T")


class AsyncExecutor:
    """Runs operations for coroutines; one per database is enough for any number of loops."""

    def __init__(self, database: Database, ns: str | None = None) -> None:
        self.database, self.ns = database, ns
        self._boxes: dict[asyncio.AbstractEventLoop, LoopDelivery] = {}

    def write(self, fn: Callable[[Tx], T | Refused], *, serializable: bool = False) -> "asyncio.Future[T]":
        """Run a function of a transaction; await the answer, which comes once the work is durable."""
        return self._box().write(fn, SERIALIZABLE if serializable else 0)

    def read(self, fn: Callable[[Tx], T]) -> "asyncio.Future[T]":
        """Run a reading function on a snapshot that holds everything acknowledged before."""
        return self._box().read(fn)

    def fail(self, error: HoldproofError) -> "asyncio.Future[Any]":
        """The answer of a call that was refused before anything was asked."""
        refused: asyncio.Future[Any] = get_running_loop().create_future()
        refused.set_exception(error)
        return refused

    def begin(self, fn: Callable[[Tx], T]) -> "Future[T]":
        """Start a writing function that runs once, driven from outside; `hear` its end."""
        return self.database.write(fn, once=True)

    def hear(self, future: "Future[T]") -> "asyncio.Future[T]":
        """The answer of another thread, to be awaited."""
        return asyncio.wrap_future(future)

    def _box(self) -> LoopDelivery:
        return self._boxes.get(get_running_loop()) or self._new_box()

    def _new_box(self) -> LoopDelivery:
        loop = get_running_loop()
        self._boxes = {known: box for known, box in self._boxes.items() if not known.is_closed()}
        return self._boxes.setdefault(loop, LoopDelivery(loop, self.database))

    async def scan(
        self, query: Query, *, by: Callable[[Row], Any], after: Any, page: int = 500, **params: Any
    ) -> AsyncIterator[Row]:
        """Walk any number of rows in pages of `:limit` past `:after`; no snapshot is held between pages."""
        while True:
            rows = await self.read(lambda tx: tx.all(query, after=after, limit=page, **params))  # noqa: B023
            for row in rows:
                yield row
            if len(rows) < page:
                return
            after = by(rows[-1])

    async def run(self, work: Work[T]) -> T:
        """Drive work that spans transactions."""
        driver = Driver(work, self.database)
        effect = driver.next(None, None)
        while effect is not None:
            effect = await self._step(effect, driver)
        return driver.result  # type: ignore[return-value]

    async def stream(self, work: Stream[T]) -> AsyncIterator[T]:
        """Drive work that answers bit by bit, as fast as it is asked."""
        driver: Driver[None] = Driver(work, self.database)
        try:
            effect = driver.next(None, None)
            while effect is not None:
                if isinstance(effect, Give):
                    yield effect.value
                    effect = driver.next(None, None)
                else:
                    effect = await self._step(effect, driver)
        finally:
            work.close()

    async def after(self, opening: Callable[[], S], then: Callable[[S], Awaitable[T]]) -> T:
        """Open something in a thread, since that may take a while; then go on with it."""
        return await then(await asyncio.to_thread(opening))

    async def stream_after(
        self, opening: Callable[[], S], then: Callable[[S], AsyncGenerator[T, None]]
    ) -> AsyncIterator[T]:
        """The same for what answers bit by bit."""
        async with aclosing(then(await asyncio.to_thread(opening))) as answers:
            async for each in answers:
                yield each

    async def _step(self, effect: Effect, driver: Driver[Any]) -> Any:
        """Perform an effect; the next one."""
        try:
            answer = await self._perform(effect, driver)
        except BaseException as raised:
            return driver.next(None, raised)
        return driver.next(answer, None)

    async def _perform(self, effect: Effect, driver: Driver[Any]) -> Any:
        match effect:
            case Write(fn):
                return await self.write(fn)
            case Read(fn):
                return await self.read(fn)
            case Call(call):
                answer = await (call() if inspect.iscoroutinefunction(call) else self._box().call(call))
                return await answer if inspect.isawaitable(answer) else answer
            case Wait(topic):
                return await self._wait(topic, driver.since, driver.patience(effect))

    async def _wait(self, topic: str, since: int, seconds: float) -> bool:
        loop, woken = get_running_loop(), asyncio.Event()

        def wake() -> None:
            loop.call_soon_threadsafe(woken.set)

        if not self.database.topics.subscribe(topic, since, wake):
            return True
        try:
            await asyncio.wait_for(woken.wait(), seconds)
        except TimeoutError:
            return False
        finally:
            self.database.topics.unsubscribe(topic, wake)
        return True
