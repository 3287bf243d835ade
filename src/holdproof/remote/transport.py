"""The two ways to perform an exchange: for coroutines and for threads.

Both speak HTTP/1.1 over pooled connections (connection_pool.py). A connection that breaks before the answer has come
raises: a call that only reads can be repeated, of a change nobody knows whether it happened.
"""

import asyncio
import inspect
import json
import threading
from collections.abc import AsyncGenerator, Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import Any, Final, Generic, TypeVar

import httpx

from holdproof.api import problems
from holdproof.errors import ConnectionLostError, HoldproofError, OutcomeUnknownError, UnreachableError
from holdproof.executors import refuse_running_loop
from holdproof.remote.connection_pool import TIMEOUT, C, ConnectionPool
from holdproof.remote.exchange import LAST, Act, Exchange, Local, ReadLine, Send, StreamItem

T = TypeVar("T")

_BAD: Final = 400
# Threads for blocking functions of the caller.
_CALLS: Final = 32
_JSON: Final = {"Content-Type": "application/json"}


def _encoded(body: dict[str, Any]) -> bytes:
    """JSON in ASCII, so that the server judges what is no text."""
    return json.dumps(body, separators=(",", ":")).encode()


def _lost(error: httpx.HTTPError | httpx.StreamError, send: Send) -> HoldproofError:
    """What a broken connection means."""
    if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.UnsupportedProtocol | httpx.PoolTimeout):
        return UnreachableError(f"the server cannot be reached: {error}")
    if send.reads:
        return ConnectionLostError(f"the connection broke: {error}")
    return OutcomeUnknownError(f"the connection broke before the server had answered: {error}", path=send.path)


def _answered(response: httpx.Response) -> Any:
    """What a whole answer says; an error is raised."""
    kind = response.headers.get("content-type", "").partition(";")[0]
    if response.status_code >= _BAD:
        # Only problem details are ours; a proxy's error page must not pass for an answer of the server.
        if kind == problems.MEDIA_TYPE:
            raise problems.error(response.json())
        raise UnreachableError(f"that is no Holdproof server: it answered {response.status_code}")
    if kind == "application/octet-stream":
        return response.content
    try:
        return response.json() if response.content else None
    except ValueError as error:
        raise UnreachableError("that is no Holdproof server: its answer is not JSON") from error


# Waiting for a free connection has a limit: a caller with too many streams open would otherwise wait for itself.
def _crowded(most: int) -> UnreachableError:
    return UnreachableError(f"all {most} connections are in use", connections=most)


class ExchangeState(Generic[C]):
    """One exchange under way: what comes next, and the answer that is read line by line, with its connection."""

    def __init__(self, exchange: Exchange[Any]) -> None:
        self._exchange = exchange
        self.request: Send | None = None
        self.lane: C | None = None
        self.response: httpx.Response | None = None
        self.lines: Any = None
        self.result: Any = None

    def next(self, answer: Any, error: BaseException | None) -> Act | None:
        """The next thing to do, or None when the exchange is over."""
        try:
            return self._exchange.throw(error) if error is not None else self._exchange.send(answer)
        except StopIteration as stop:
            self.result = stop.value
            return None

    def opened(self, send: Send, lane: C, response: httpx.Response, lines: Any) -> None:
        """The answer comes line by line."""
        self.request = send
        self.lane = lane
        self.response = response
        self.lines = lines

    def close(self) -> None:
        """Nothing more is asked."""
        self._exchange.close()


class AsyncTransport:
    """Exchanges for coroutines."""

    def __init__(self, url: str, token: str | None, **httpx_options: Any) -> None:
        self._connections = ConnectionPool(httpx.AsyncClient, url, token, httpx_options)
        self._room = asyncio.Semaphore(self._connections.most)
        self._threads: ThreadPoolExecutor | None = None

    async def run(self, exchange: Exchange[T]) -> T:
        """Perform an exchange to its end."""
        talk = ExchangeState[httpx.AsyncClient](exchange)
        try:
            act = talk.next(None, None)
            while act is not None:
                act = await self._step(act, talk)
        finally:
            await self._end(talk)
        return talk.result  # type: ignore[no-any-return]

    async def stream(self, exchange: Exchange[Any]) -> AsyncGenerator[Any, None]:
        """Perform an exchange that gives many answers."""
        talk = ExchangeState[httpx.AsyncClient](exchange)
        try:
            act = talk.next(None, None)
            while act is not None:
                if isinstance(act, StreamItem):
                    yield act.value
                    act = talk.next(None, None)
                else:
                    act = await self._step(act, talk)
        finally:
            await self._end(talk)

    async def _step(self, act: Act, talk: ExchangeState[httpx.AsyncClient]) -> Act | None:
        try:
            answer = await self._perform(act, talk)
        except Exception as raised:
            return talk.next(None, raised)
        return talk.next(answer, None)

    async def _perform(self, act: Act, talk: ExchangeState[httpx.AsyncClient]) -> Any:
        match act:
            case Local(fn, args, kwargs):
                called = partial(fn, *args, **kwargs)
                # A plain function may block, and a lambda may return a coroutine: thread first, then await its result.
                answer = await (called() if inspect.iscoroutinefunction(fn) else self._apart(called))
                return await answer if inspect.isawaitable(answer) else answer
            case ReadLine():
                return await self._line(talk)
            case Send():
                return await self._send(act, talk)

    def _apart(self, fn: Callable[[], T]) -> "asyncio.Future[T]":
        """Call a blocking function of the caller in a thread, as an open store does (executors/loop_delivery.py)."""
        if self._threads is None:
            self._threads = ThreadPoolExecutor(_CALLS, thread_name_prefix="holdproof-call")
        return asyncio.get_running_loop().run_in_executor(self._threads, copy_context().run, fn)

    async def _send(self, send: Send, talk: ExchangeState[httpx.AsyncClient]) -> Any:
        if send.lines:
            await self._hang_up(talk)
        lane = await self._take()
        try:
            request = lane.build_request("POST", send.path, content=_encoded(send.body), headers=_JSON)
            response = await lane.send(request, stream=send.lines)
            if send.lines and response.status_code < _BAD:
                talk.opened(send, lane, response, response.aiter_lines())
                return None
            await response.aread()
        except (httpx.HTTPError, httpx.StreamError) as error:
            raise _lost(error, send) from error
        finally:
            if talk.lane is not lane:
                await self._give(lane)
        return _answered(response)

    async def _line(self, talk: ExchangeState[httpx.AsyncClient]) -> Any:
        assert talk.request is not None, "a line comes after a request for lines"
        message = None
        try:
            async for line in talk.lines:
                if line:
                    message = json.loads(line)
                    if not message.keys() & LAST:
                        break  # else read on to the end, so that the connection can be used again
        except (httpx.HTTPError, httpx.StreamError) as error:
            raise _lost(error, talk.request) from error
        return message

    async def _end(self, talk: ExchangeState[httpx.AsyncClient]) -> None:
        talk.close()
        await self._hang_up(talk)

    async def _hang_up(self, talk: ExchangeState[httpx.AsyncClient]) -> None:
        if talk.lane is not None and talk.response is not None:
            lane = talk.lane
            talk.lane = None
            try:
                await talk.response.aclose()
            finally:
                await self._give(lane)

    async def _take(self) -> httpx.AsyncClient:
        try:
            async with asyncio.timeout(TIMEOUT.pool):
                await self._room.acquire()
        except TimeoutError as error:
            raise _crowded(self._connections.most) from error
        return self._connections.take()

    async def _give(self, lane: httpx.AsyncClient) -> None:
        self._room.release()
        if (spare := self._connections.give(lane)) is not None:
            await spare.aclose()

    async def close(self) -> None:
        """Close the connections."""
        if self._threads is not None:
            self._threads.shutdown(wait=False)
        for lane in self._connections.end():
            await lane.aclose()


class SyncTransport:
    """Exchanges for threads."""

    def __init__(self, url: str, token: str | None, **httpx_options: Any) -> None:
        self._connections = ConnectionPool(httpx.Client, url, token, httpx_options)
        self._room = threading.Semaphore(self._connections.most)

    def run(self, exchange: Exchange[T]) -> T:
        """Perform an exchange to its end."""
        refuse_running_loop()
        talk = ExchangeState[httpx.Client](exchange)
        try:
            act = talk.next(None, None)
            while act is not None:
                act = self._step(act, talk)
        finally:
            self._end(talk)
        return talk.result  # type: ignore[no-any-return]

    def stream(self, exchange: Exchange[Any]) -> Generator[Any, None, None]:
        """Perform an exchange that gives many answers."""
        refuse_running_loop()
        talk = ExchangeState[httpx.Client](exchange)
        try:
            act = talk.next(None, None)
            while act is not None:
                if isinstance(act, StreamItem):
                    yield act.value
                    act = talk.next(None, None)
                else:
                    act = self._step(act, talk)
        finally:
            self._end(talk)

    def _step(self, act: Act, talk: ExchangeState[httpx.Client]) -> Act | None:
        try:
            answer = self._perform(act, talk)
        except Exception as raised:
            return talk.next(None, raised)
        return talk.next(answer, None)

    def _perform(self, act: Act, talk: ExchangeState[httpx.Client]) -> Any:
        match act:
            case Local(fn, args, kwargs):
                return fn(*args, **kwargs)
            case ReadLine():
                return self._line(talk)
            case Send():
                return self._send(act, talk)

    def _send(self, send: Send, talk: ExchangeState[httpx.Client]) -> Any:
        if send.lines:
            self._hang_up(talk)
        lane = self._take()
        try:
            request = lane.build_request("POST", send.path, content=_encoded(send.body), headers=_JSON)
            response = lane.send(request, stream=send.lines)
            if send.lines and response.status_code < _BAD:
                talk.opened(send, lane, response, response.iter_lines())
                return None
            response.read()
        except (httpx.HTTPError, httpx.StreamError) as error:
            raise _lost(error, send) from error
        finally:
            if talk.lane is not lane:
                self._give(lane)
        return _answered(response)

    def _line(self, talk: ExchangeState[httpx.Client]) -> Any:
        assert talk.request is not None, "a line comes after a request for lines"
        message = None
        try:
            for line in talk.lines:
                if line:
                    message = json.loads(line)
                    if not message.keys() & LAST:
                        break
        except (httpx.HTTPError, httpx.StreamError) as error:
            raise _lost(error, talk.request) from error
        return message

    def _end(self, talk: ExchangeState[httpx.Client]) -> None:
        talk.close()
        self._hang_up(talk)

    def _hang_up(self, talk: ExchangeState[httpx.Client]) -> None:
        if talk.lane is not None and talk.response is not None:
            lane = talk.lane
            talk.lane = None
            try:
                talk.response.close()
            finally:
                self._give(lane)

    def _take(self) -> httpx.Client:
        if not self._room.acquire(timeout=TIMEOUT.pool):
            raise _crowded(self._connections.most)
        return self._connections.take()

    def _give(self, lane: httpx.Client) -> None:
        self._room.release()
        if (spare := self._connections.give(lane)) is not None:
            spare.close()

    def close(self) -> None:
        """Close the connections."""
        for lane in self._connections.end():
            lane.close()
