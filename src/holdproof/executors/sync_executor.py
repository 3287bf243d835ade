"""The sync face: operations for threads."""

import asyncio
import inspect
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any, NoReturn, TypeVar

from holdproof.db.database import Database
from holdproof.db.effects import Call, Effect, Give, Read, Stream, Wait, Work, Write
from holdproof.db.sql import Query
from holdproof.db.tx import NOTHING, Refused, Row, Tx
from holdproof.db.worker_pool import WorkerPool
from holdproof.errors import HoldproofError, InvalidInputError, NestedCallError, RunningLoopError
from holdproof.executors.driver import Driver

S = TypeVar("S")
T = TypeVar("T")

_PEEK_S = 0.02


class SyncExecutor:
    """Runs operations for threads; refuses to block a running event loop."""

    def __init__(self, database: Database, ns: str | None = None) -> None:
        self.database, self.ns = database, ns

    def write(self, fn: Callable[[Tx], T | Refused], *, serializable: bool = False) -> T:
        """Run a function of a transaction; returns once the work is durable."""
        refuse_running_loop()
        _refuse_nested(self.database.backend.writer)
        future: Future[Any] = self.database.write(fn, serializable=serializable)
        return future.result()  # type: ignore[no-any-return]

    def read(self, fn: Callable[[Tx], T]) -> T:
        """Run a reading function on a snapshot that holds everything acknowledged before."""
        refuse_running_loop()
        answer = self.database.peek(fn, _PEEK_S)
        if answer is not NOTHING:
            return answer
        _refuse_nested(self.database.backend.reader)
        return self.database.read(fn).result()

    def fail(self, error: HoldproofError) -> NoReturn:
        """The answer of a call that was refused before anything was asked."""
        raise error

    def begin(self, fn: Callable[[Tx], T]) -> "Future[T]":
        """Start a writing function that runs once, driven from outside; `hear` its end."""
        refuse_running_loop()
        return self.database.write(fn, once=True)

    def hear(self, future: "Future[T]") -> T:
        """The answer of another thread."""
        return future.result()

    def scan(
        self, query: Query, *, by: Callable[[Row], Any], after: Any, page: int = 500, **params: Any
    ) -> Iterator[Row]:
        """Walk any number of rows in pages of `:limit` past `:after`; no snapshot is held between pages."""
        while True:
            rows = self.read(lambda tx: tx.all(query, after=after, limit=page, **params))  # noqa: B023
            yield from rows
            if len(rows) < page:
                return
            after = by(rows[-1])

    def run(self, work: Work[T]) -> T:
        """Drive work that spans transactions."""
        refuse_running_loop()
        driver = Driver(work, self.database)
        effect = driver.next(None, None)
        while effect is not None:
            effect = self._step(effect, driver)
        return driver.result  # type: ignore[return-value]

    def stream(self, work: Stream[T]) -> Iterator[T]:
        """Drive work that answers bit by bit, as fast as it is asked."""
        refuse_running_loop()
        driver: Driver[None] = Driver(work, self.database)
        try:
            effect = driver.next(None, None)
            while effect is not None:
                if isinstance(effect, Give):
                    yield effect.value
                    effect = driver.next(None, None)
                else:
                    effect = self._step(effect, driver)
        finally:
            work.close()

    def after(self, opening: Callable[[], S], then: Callable[[S], T]) -> T:
        """Open something; then go on with it."""
        refuse_running_loop()
        return then(opening())

    def stream_after(self, opening: Callable[[], S], then: Callable[[S], Iterator[T]]) -> Iterator[T]:
        """The same for what answers bit by bit."""
        refuse_running_loop()
        yield from then(opening())

    def _step(self, effect: Effect, driver: Driver[Any]) -> Any:
        """Perform an effect; the next one."""
        try:
            answer = self._perform(effect, driver)
        except BaseException as raised:
            return driver.next(None, raised)
        return driver.next(answer, None)

    def _perform(self, effect: Effect, driver: Driver[Any]) -> Any:
        match effect:
            case Write(fn):
                return self.write(fn)
            case Read(fn):
                return self.read(fn)
            case Call(call):
                answer = call()
                if inspect.iscoroutine(answer):
                    answer.close()
                    raise InvalidInputError("an async function cannot run in the sync face; pass a plain one")
                return answer
            case Wait(topic):
                return self._wait(topic, driver.since, driver.patience(effect))

    def _wait(self, topic: str, since: int, seconds: float) -> bool:
        woken = threading.Event()
        if not self.database.topics.subscribe(topic, since, woken.set):
            return True
        try:
            return woken.wait(seconds)
        finally:
            self.database.topics.unsubscribe(topic, woken.set)


def _refuse_nested(pump: WorkerPool) -> None:
    """An operation that asks its own store would wait for the thread it runs on: say so instead of hanging."""
    if pump.works_here():
        raise NestedCallError("the store was asked inside a function of one of its transactions")


def refuse_running_loop() -> None:
    """The sync face would block the event loop it is called in: say so instead of freezing it."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise RunningLoopError("the sync face was called inside a running event loop, which it would block")
