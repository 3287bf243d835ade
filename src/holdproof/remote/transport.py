"""How exchanges are performed over HTTP, by coroutines and by threads.

`Transport` and `ExchangePerformer` are the whole of it, written once (executors/driver.py says how). `AsyncTransport`
and `SyncTransport` add what a single call of the HTTP client looks like on their side.

Both speak HTTP/1.1 over pooled connections (connection_pool.py). A connection that breaks before the answer has come
raises: a call that only reads can be repeated, of a change nobody knows whether it happened.
"""

import asyncio
import json
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Final, Generic, TypeVar

import httpx

from holdproof.api import problems
from holdproof.db.effects import Call, Together, WorkOutcome
from holdproof.errors import ConnectionLostError, HoldproofError, OutcomeUnknownError, UnreachableError
from holdproof.executors.driver import AsyncRunner, CallThreads, Performer, SyncRunner, complete
from holdproof.remote.connection_pool import TIMEOUT, C, ConnectionPool
from holdproof.remote.exchange import LAST, ReadLine, Send
from holdproof.urls import redact

T = TypeVar("T")

_NO_ANSWER: Final = 300
"""From this status on it is none: a redirect is not followed, since the token is for nobody else."""
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
    if response.status_code >= _NO_ANSWER:
        # Only problem details are ours; a proxy's error page must not pass for an answer of the server.
        if kind == problems.MEDIA_TYPE:
            raise problems.error(response.json())
        if response.has_redirect_location:
            to = redact(response.headers["location"])[:200]
            raise UnreachableError(
                f"that is no Holdproof server: it sends callers on to {to}; a token is not sent after them, so name the"
                " address that leads there"
            )
        raise UnreachableError(f"that is no Holdproof server: it answered {response.status_code}")
    if kind == "application/octet-stream":
        return response.content
    try:
        return response.json() if response.content else None
    except ValueError as error:
        raise UnreachableError("that is no Holdproof server: its answer is not JSON") from error


class Transport(ABC, Generic[C]):
    """The connections to a server, and the calls of an HTTP client that need a form for coroutines and for threads.

    Those of `SyncTransport` are `async` only in form: they block and never suspend.
    """

    _room: asyncio.Semaphore | threading.Semaphore
    """Counts the connections that may still be taken."""

    def __init__(self, connections: ConnectionPool[C]) -> None:
        self.connections = connections

    async def acquire(self) -> C:
        """Return a connection that nobody uses."""
        # Waiting for one has a limit: a caller with too many streams open would otherwise wait for itself.
        if not await self.wait_for_room():
            most = self.connections.most
            raise UnreachableError(f"all {most} connections are in use", connections=most)
        return self.connections.take()

    async def release(self, connection: C) -> None:
        """Give a connection back."""
        self._room.release()
        if (spare := self.connections.give(connection)) is not None:
            await self.close_http(spare)

    async def close_all(self) -> None:
        """Close the connections."""
        for connection in self.connections.end():
            await self.close_http(connection)

    @abstractmethod
    async def wait_for_room(self) -> bool:
        """Wait until fewer connections are in use than there may be; False if that takes too long."""

    @abstractmethod
    async def call(self, fn: Callable[[], Any]) -> Any:
        """Call a function of the caller."""

    @abstractmethod
    async def run_together(self, works: Sequence[Any], limit: int | None) -> list[WorkOutcome]:
        """Run several exchanges at once."""

    @abstractmethod
    async def send(self, connection: C, request: httpx.Request, *, stream: bool) -> httpx.Response:
        """Send a request; the answer's body is read too unless it comes line by line and is no error."""

    @abstractmethod
    def lines(self, response: httpx.Response) -> Any:
        """Return an iterator over the lines of an answer."""

    @abstractmethod
    async def next_line(self, lines: Any) -> str | None:
        """Return the next line; None after the last."""

    @abstractmethod
    async def close_http(self, closing: Any) -> None:
        """Close a response or a client."""


class ExchangePerformer(Performer, Generic[C]):
    """One exchange under way: its connection while an answer is read line by line."""

    def __init__(self, transport: Transport[C]) -> None:
        self._transport = transport
        self._request: Send | None = None
        self._connection: C | None = None
        self._response: httpx.Response | None = None
        self._lines: Any = None

    async def perform(self, effect: Any) -> Any:
        """See Performer."""
        match effect:
            case Call(fn):
                return await self._transport.call(fn)
            case Together(works, limit):
                return await self._transport.run_together(works, limit)
            case ReadLine():
                return await self._read_line()
            case Send():
                return await self._send(effect)

    async def end(self) -> None:
        """Hang up: end an answer that was not read to its end, and give its connection back."""
        connection = self._connection
        response = self._response
        self._connection = None
        self._response = None
        if connection is not None and response is not None:
            try:
                await self._transport.close_http(response)
            finally:
                await self._transport.release(connection)

    async def _send(self, send: Send) -> Any:
        if send.lines:
            await self.end()
        connection = await self._transport.acquire()
        try:
            request = connection.build_request("POST", send.path, content=_encoded(send.body), headers=_JSON)
            response = await self._transport.send(connection, request, stream=send.lines)
            if send.lines and response.status_code < _NO_ANSWER:
                self._request = send
                self._connection = connection
                self._response = response
                self._lines = self._transport.lines(response)
                return None
        except (httpx.HTTPError, httpx.StreamError) as error:
            raise _lost(error, send) from error
        finally:
            if self._connection is not connection:
                await self._transport.release(connection)
        return _answered(response)

    async def _read_line(self) -> Any:
        assert self._request is not None, "a line comes after a request for lines"
        message = None
        try:
            while (line := await self._transport.next_line(self._lines)) is not None:
                if line:
                    message = json.loads(line)
                    if not message.keys() & LAST:
                        break  # else read on to the end, so that the connection can be used again
        except (httpx.HTTPError, httpx.StreamError) as error:
            raise _lost(error, self._request) from error
        return message


class AsyncTransport(AsyncRunner, Transport[httpx.AsyncClient]):
    """Exchanges for coroutines."""

    _room: asyncio.Semaphore

    def __init__(self, url: str, token: str | None, **httpx_options: Any) -> None:
        super().__init__(ConnectionPool(httpx.AsyncClient, url, token, httpx_options))
        self._room = asyncio.Semaphore(self.connections.most)
        self._threads = CallThreads()

    def performer(self) -> Performer:
        """See AsyncRunner."""
        return ExchangePerformer(self)

    def call_in_thread(self, fn: Callable[[], T]) -> "asyncio.Future[T]":
        """See AsyncRunner."""
        return self._threads.call(fn)

    async def close(self) -> None:
        """Close the connections; functions of the caller that run in threads end by themselves."""
        self._threads.close()
        await self.close_all()

    async def wait_for_room(self) -> bool:
        """See Transport."""
        try:
            async with asyncio.timeout(TIMEOUT.pool):
                return await self._room.acquire()
        except TimeoutError:
            return False

    async def run_together(self, works: Sequence[Any], limit: int | None) -> list[WorkOutcome]:
        """See Transport."""
        return await self.together(works, limit)

    async def send(self, connection: httpx.AsyncClient, request: httpx.Request, *, stream: bool) -> httpx.Response:
        """See Transport."""
        response = await connection.send(request, stream=stream)
        if stream and response.status_code >= _NO_ANSWER:
            await response.aread()
        return response

    def lines(self, response: httpx.Response) -> Any:
        """See Transport."""
        return response.aiter_lines()

    async def next_line(self, lines: Any) -> str | None:
        """See Transport."""
        line: str | None = await anext(lines, None)
        return line

    async def close_http(self, closing: Any) -> None:
        """See Transport."""
        await closing.aclose()


class SyncTransport(SyncRunner, Transport[httpx.Client]):
    """Exchanges for threads."""

    _room: threading.Semaphore

    def __init__(self, url: str, token: str | None, **httpx_options: Any) -> None:
        super().__init__(ConnectionPool(httpx.Client, url, token, httpx_options))
        self._room = threading.Semaphore(self.connections.most)

    def performer(self) -> Performer:
        """See SyncRunner."""
        return ExchangePerformer(self)

    def close(self) -> None:
        """Close the connections."""
        complete(self.close_all())

    async def call(self, fn: Callable[[], Any]) -> Any:
        """See Transport."""
        return self.call_plain(fn)

    async def wait_for_room(self) -> bool:
        """See Transport."""
        return self._room.acquire(timeout=TIMEOUT.pool)

    async def run_together(self, works: Sequence[Any], limit: int | None) -> list[WorkOutcome]:
        """See Transport."""
        return self.together(works, limit)

    async def send(self, connection: httpx.Client, request: httpx.Request, *, stream: bool) -> httpx.Response:
        """See Transport."""
        response = connection.send(request, stream=stream)
        if stream and response.status_code >= _NO_ANSWER:
            response.read()
        return response

    def lines(self, response: httpx.Response) -> Any:
        """See Transport."""
        return response.iter_lines()

    async def next_line(self, lines: Any) -> str | None:
        """See Transport."""
        line: str | None = next(lines, None)
        return line

    async def close_http(self, closing: Any) -> None:
        """See Transport."""
        closing.close()
