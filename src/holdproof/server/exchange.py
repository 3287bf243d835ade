"""Answers that come line by line, and calling the caller back.

A call that needs a function of its caller, reports progress or streams its answer is answered with lines of JSON:

    {"progress": […]}                               how far it is
    {"give": …}                                     one of many answers
    {"call": {"id": …, "exchange": …, "fn": …, "args": […]}}
                                                    call this, and post to /v1/exchanges/{exchange}/{id} how it ended:
                                                    {"value": …}, {"error": "Kind: words"}, or {"unsayable": words};
                                                    with "final": true an error is not tried again
    {"done": …}                                     the answer: the last line
    {"raised": id} or {"failed": problem}           it failed, by the caller's own function or by itself: the last line

Rules:
- An exchange belongs to the caller that began it; nobody else answers its calls.
- It lives as long as its connection: a caller that goes away is a worker that was stopped, as in one process.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

from holdproof.api import wire
from holdproof.errors import HoldproofError, NotFoundError, RateLimitedError
from holdproof.server import ids

_HEARTBEAT_S: Final = 15.0
"""How often a quiet line says that it lives."""
_MOST_PER_CALLER: Final = 256


Tell = Callable[[HoldproofError], dict[str, Any]]
"""An error, as its caller may be told it."""


class CallerError(Exception):
    """What a function of the caller raised, told here by its words."""

    call = ""


class RepeatableError(CallerError):
    """One that its caller wants to be tried again, where a step is."""


def caller_error(words: Any, call: str = "", *, final: bool = False) -> CallerError:
    """An exception of the caller, under its own name: that is what steps and flows write down."""
    kind, _, message = str(words).partition(": ")
    # Steps and flows record the class name of what failed, so the caller's own name has to survive the wire.
    base = CallerError if final else RepeatableError
    error: CallerError = type(kind if kind.isidentifier() else "CallerError", (base,), {})(message)
    error.call = call
    return error


class Unsayable:
    """What a function of the caller gave and JSON cannot say."""

    def __init__(self, words: str) -> None:
        self._words = words

    def __repr__(self) -> str:
        return self._words


class Exchange:
    """One call whose answer comes line by line."""

    def __init__(self, who: str, problem: Tell) -> None:
        self.id = ids.random_token(16)
        self.who = who
        self._problem = problem
        self._loop = asyncio.get_running_loop()
        self._lines: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._pending_calls: dict[str, asyncio.Future[Any]] = {}

    def tell(self, *facts: Any) -> None:
        """How far it is; from any thread."""
        # Progress is reported from worker threads, where asyncio queues must not be touched.
        self._loop.call_soon_threadsafe(self._lines.put_nowait, {"progress": wire.dump(facts)})

    def caller(self, name: str) -> Callable[..., Awaitable[Any]]:
        """A function of the caller, to be called from here."""

        async def call(*args: Any, **kwargs: Any) -> Any:
            call_id = ids.random_token(8)
            answer = self._pending_calls[call_id] = self._loop.create_future()
            request = {"id": call_id, "exchange": self.id, "fn": name, "args": wire.dump(args)}
            await self._lines.put({"call": request | ({"kwargs": wire.dump(kwargs)} if kwargs else {})})
            try:
                return await answer
            finally:
                del self._pending_calls[call_id]

        return call

    def answer(self, call_id: str, how: dict[str, Any]) -> None:
        """How a function of the caller ended."""
        future = self._pending_calls.get(call_id)
        # Late or repeated answers: the call was already answered, or its exchange has ended.
        if future is None or future.done():
            raise NotFoundError("nobody waits for this answer", call=call_id)
        if "error" in how:
            future.set_exception(caller_error(how["error"], call_id, final=how.get("final") is True))
        elif "unsayable" in how:
            future.set_result(Unsayable(str(how["unsayable"])))
        else:
            future.set_result(wire.shape(Any).load(how.get("value"), "value"))

    async def lines(self, work: Awaitable[Any]) -> AsyncIterator[bytes]:
        """What goes out until the work has ended; it is stopped if nobody listens any more."""
        task = asyncio.ensure_future(self._conduct(work))
        try:
            while True:
                try:
                    line = await asyncio.wait_for(self._lines.get(), _HEARTBEAT_S)
                except TimeoutError:
                    # An empty line keeps proxies from closing a connection on which a person takes an hour to decide.
                    yield b"\n"
                    continue
                yield json.dumps(line, separators=(",", ":")).encode() + b"\n"
                if line.keys() & {"done", "raised", "failed"}:
                    return
        finally:
            # Also when the caller has gone away: the generator is closed then, and its work has to stop.
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def _conduct(self, work: Awaitable[Any]) -> None:
        try:
            await self._lines.put({"done": wire.dump(await work)})
        except CallerError as error:
            await self._lines.put({"raised": error.call})
        except HoldproofError as error:
            await self._lines.put({"failed": self._problem(error)})
        except Exception:
            await self._lines.put({"failed": self._problem(HoldproofError("the server failed; its log says how"))})
            raise

    async def give(self, answers: AsyncIterator[Any]) -> None:
        """Hand on many answers, as fast as they are taken."""
        async for each in answers:
            # The queue itself is unbounded, since progress must never block; only streamed answers wait for the reader.
            while self._lines.qsize() > 64:
                await asyncio.sleep(0.005)
            await self._lines.put({"give": wire.dump(each)})


class Exchanges:
    """The exchanges under way."""

    def __init__(self) -> None:
        self._open: dict[str, Exchange] = {}

    def begin(self, who: str, problem: Tell) -> Exchange:
        """A new one, for one caller; RateLimitedError if it has too many open."""
        if sum(each.who == who for each in self._open.values()) >= _MOST_PER_CALLER:
            raise RateLimitedError("too many calls of this caller wait for their answers", retry_after_s=_HEARTBEAT_S)
        exchange = Exchange(who, problem)
        self._open[exchange.id] = exchange
        return exchange

    @contextmanager
    def opened(self, who: str, problem: Tell) -> Iterator[Exchange]:
        """A new one, over at once if its answer cannot be begun."""
        exchange = self.begin(who, problem)
        try:
            yield exchange
        except BaseException:
            self.end(exchange)
            raise

    def end(self, exchange: Exchange) -> None:
        """It is over."""
        self._open.pop(exchange.id, None)

    def find(self, id: str, who: str) -> Exchange:
        """One that is under way, for its own caller only."""
        exchange = self._open.get(id)
        if exchange is None or exchange.who != who:
            raise NotFoundError("there is no such exchange", exchange=id)
        return exchange
