"""The two ways to perform an exchange: for coroutines and for threads.

Both speak HTTP/1.1 over a pool of connections that are kept. A connection that breaks before the answer has come says
so: what only reads can be asked again, of a change nobody knows whether it happened.
"""

import inspect
import json
from collections.abc import AsyncGenerator, Generator
from typing import Any, Final, TypeVar

import httpx

from holdfast.content.addresses import apart
from holdfast.errors import ConnectionLostError, HoldfastError, OutcomeUnknownError, UnreachableError
from holdfast.faces import problems, refuse_running_loop
from holdfast.remote.exchange import Act, Exchange, Give, Line, Local, Send

T = TypeVar("T")

_TIMEOUT: Final = httpx.Timeout(30.0, connect=5.0, read=None)
"""An answer may take as long as its work: a lock, a person. A server that is gone breaks the connection."""
_LIMITS: Final = httpx.Limits(max_connections=256, max_keepalive_connections=64)
_BAD: Final = 400
_JSON: Final = {"Content-Type": "application/json"}


def options(url: str, token: str | None, given: dict[str, Any]) -> dict[str, Any]:
    """What the HTTP client is made with; `given` are further options of httpx, as `verify`."""
    bare, opens = apart(url)
    known: dict[str, Any] = {"headers": {"Authorization": f"Bearer {token}"}} if token else {"auth": opens}
    return {"base_url": bare, **known, "timeout": _TIMEOUT, "limits": _LIMITS, **given}


def _encoded(body: dict[str, Any]) -> bytes:
    """JSON in ASCII, so that the server judges what is no text."""
    return json.dumps(body, separators=(",", ":")).encode()


def _lost(error: httpx.HTTPError | httpx.StreamError, send: Send) -> HoldfastError:
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
        if kind == problems.MEDIA_TYPE:
            raise problems.error(response.json())
        raise UnreachableError(f"that is no Holdfast server: it answered {response.status_code}")
    if kind == "application/octet-stream":
        return response.content
    try:
        return response.json() if response.content else None
    except ValueError as error:
        raise UnreachableError("that is no Holdfast server: its answer is not JSON") from error


class _Talk:
    """One exchange under way: what comes next, and the answer that is read line by line."""

    def __init__(self, exchange: Exchange[Any]) -> None:
        self._exchange = exchange
        self.asked: Send | None = None
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

    def opened(self, send: Send, response: httpx.Response, lines: Any) -> None:
        """The answer comes line by line."""
        self.asked, self.response, self.lines = send, response, lines

    def close(self) -> None:
        """Nothing more is asked."""
        self._exchange.close()


class AsyncWire:
    """Exchanges for coroutines."""

    def __init__(self, url: str, token: str | None, **given: Any) -> None:
        self._http = httpx.AsyncClient(**options(url, token, given))

    async def run(self, exchange: Exchange[T]) -> T:
        """Perform an exchange to its end."""
        talk = _Talk(exchange)
        try:
            act = talk.next(None, None)
            while act is not None:
                act = await self._step(act, talk)
        finally:
            await self._end(talk)
        return talk.result  # type: ignore[no-any-return]

    async def stream(self, exchange: Exchange[Any]) -> AsyncGenerator[Any, None]:
        """Perform an exchange that gives many answers."""
        talk = _Talk(exchange)
        try:
            act = talk.next(None, None)
            while act is not None:
                if isinstance(act, Give):
                    yield act.value
                    act = talk.next(None, None)
                else:
                    act = await self._step(act, talk)
        finally:
            await self._end(talk)

    async def _step(self, act: Act, talk: _Talk) -> Act | None:
        try:
            answer = await self._perform(act, talk)
        except Exception as raised:
            return talk.next(None, raised)
        return talk.next(answer, None)

    async def _perform(self, act: Act, talk: _Talk) -> Any:
        match act:
            case Local(fn, args, kwargs):
                answer = fn(*args, **kwargs)
                return await answer if inspect.isawaitable(answer) else answer
            case Line():
                return await self._line(talk)
            case Send():
                return await self._send(act, talk)

    async def _send(self, send: Send, talk: _Talk) -> Any:
        request = self._http.build_request("POST", send.path, content=_encoded(send.body), headers=_JSON)
        try:
            response = await self._http.send(request, stream=send.lines)
            if send.lines and response.status_code < _BAD:
                return talk.opened(send, response, response.aiter_lines())
            await response.aread()
        except (httpx.HTTPError, httpx.StreamError) as error:
            raise _lost(error, send) from error
        return _answered(response)

    async def _line(self, talk: _Talk) -> Any:
        assert talk.asked is not None, "a line comes after a request for lines"
        try:
            async for line in talk.lines:
                if line:
                    return json.loads(line)
        except (httpx.HTTPError, httpx.StreamError) as error:
            raise _lost(error, talk.asked) from error
        return None

    async def _end(self, talk: _Talk) -> None:
        talk.close()
        if talk.response is not None:
            await talk.response.aclose()

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()


class SyncWire:
    """Exchanges for threads."""

    def __init__(self, url: str, token: str | None, **given: Any) -> None:
        self._http = httpx.Client(**options(url, token, given))

    def run(self, exchange: Exchange[T]) -> T:
        """Perform an exchange to its end."""
        refuse_running_loop()
        talk = _Talk(exchange)
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
        talk = _Talk(exchange)
        try:
            act = talk.next(None, None)
            while act is not None:
                if isinstance(act, Give):
                    yield act.value
                    act = talk.next(None, None)
                else:
                    act = self._step(act, talk)
        finally:
            self._end(talk)

    def _step(self, act: Act, talk: _Talk) -> Act | None:
        try:
            answer = self._perform(act, talk)
        except Exception as raised:
            return talk.next(None, raised)
        return talk.next(answer, None)

    def _perform(self, act: Act, talk: _Talk) -> Any:
        match act:
            case Local(fn, args, kwargs):
                return fn(*args, **kwargs)
            case Line():
                return self._line(talk)
            case Send():
                return self._send(act, talk)

    def _send(self, send: Send, talk: _Talk) -> Any:
        request = self._http.build_request("POST", send.path, content=_encoded(send.body), headers=_JSON)
        try:
            response = self._http.send(request, stream=send.lines)
            if send.lines and response.status_code < _BAD:
                return talk.opened(send, response, response.iter_lines())
            response.read()
        except (httpx.HTTPError, httpx.StreamError) as error:
            raise _lost(error, send) from error
        return _answered(response)

    def _line(self, talk: _Talk) -> Any:
        assert talk.asked is not None, "a line comes after a request for lines"
        try:
            for line in talk.lines:
                if line:
                    return json.loads(line)
        except (httpx.HTTPError, httpx.StreamError) as error:
            raise _lost(error, talk.asked) from error
        return None

    def _end(self, talk: _Talk) -> None:
        talk.close()
        if talk.response is not None:
            talk.response.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()
