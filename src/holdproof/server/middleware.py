"""What every request passes before anybody looks at it: small layers of pure ASGI, each with one rule.

- `MetricsMiddleware`: a number for each request, its time and status for the metrics and the log.
- `SecurityHeadersMiddleware`: headers that keep browsers from doing more than a page of ours needs; no CORS.
- `RequestLimitsMiddleware`: the host's name, the length of address, headers and body, and how slowly a body may come.
- `RateLimitMiddleware`: so many requests a second for each address, before any token is looked at.
"""

import asyncio
import time
from collections.abc import Awaitable
from typing import Final, TypeVar

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdproof.errors import (
    HeadersTooLargeError,
    HostError,
    LongUrlError,
    RateLimitedError,
    RequestError,
    SlowRequestError,
    TooLargeError,
)
from holdproof.server import ids, logs
from holdproof.server.settings import ServerSettings
from holdproof.server.state import ServerState, caller_in, state_in

T = TypeVar("T")

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self';"
    " connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",  # with no-referrer a browser hides the origin of our own forms
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
_RAW: Final = [
    (name.lower().encode(), value.encode()) for name, value in {**HEADERS, "Cache-Control": "no-store"}.items()
]
_SECURE: Final = [*_RAW, (b"strict-transport-security", b"max-age=31536000")]
_NAMES: Final = frozenset(name for name, _ in _SECURE)
_MOST_HEADERS: Final = 100


class Middleware:
    """Something around an app that only looks at requests."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Let through what is no request: the beginning and the end of the server."""
        # Not a coroutine that awaits another: a request passes seven layers, each time that it goes on.
        if scope["type"] == "http":
            return self.handle(scope, receive, send)
        return self.app(scope, receive, send) if scope["type"] == "lifespan" else _ignored()

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """What the layer does with a request."""
        await self.app(scope, receive, send)


async def _ignored() -> None:
    """What is neither a request nor the server itself, as a web socket, is not answered."""


class MetricsMiddleware(Middleware):
    """Gives each request its number, and counts it when it is answered."""

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Count one request."""
        metrics = state_in(scope).metrics
        began = time.perf_counter()
        status = 500
        number = ids.request_id()
        scope.setdefault("state", {})["request_id"] = number

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], (b"x-request-id", number.encode())]
            await send(message)

        metrics.under_way += 1
        try:
            await self.app(scope, receive, sending)
        finally:
            metrics.under_way -= 1
            seconds = time.perf_counter() - began
            metrics.observe(scope["method"], _template(scope), status, seconds)
            caller = caller_in(scope)
            who = caller.who if caller else ""
            logs.request(scope["method"], scope["path"], status, seconds, number=number, caller=who)


def _template(scope: Scope) -> str:
    """The route as it was declared, so that ids in addresses make no series of their own."""
    return getattr(scope.get("route"), "path", None) or "unmatched"


class SecurityHeadersMiddleware(Middleware):
    """Adds the headers that a browser has to obey; an answer may bring its own."""

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer with them."""
        secure = state_in(scope).settings.secure

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                ours = _SECURE if secure else _RAW
                present = {name.lower() for name, _ in message["headers"]}
                if not present.isdisjoint(_NAMES):
                    ours = [each for each in ours if each[0] not in present]
                message["headers"] = [*message["headers"], *ours]
            await send(message)

        await self.app(scope, receive, sending)


class RequestLimitsMiddleware(Middleware):
    """Refuses what is too much, too slow, or for somebody else."""

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Look at the head of a request, then watch its body."""
        settings = state_in(scope).settings
        _look(scope, settings)
        await self.app(scope, _watched(receive, settings), send)


def _look(scope: Scope, settings: ServerSettings) -> None:
    headers: list[tuple[bytes, bytes]] = scope["headers"]
    # One pass: this is done for every request.
    size = 0
    hosts: list[bytes] = []
    lengths: list[bytes] = []
    for name, value in headers:
        size += len(name) + len(value)
        if name == b"host":
            hosts.append(value)
        elif name == b"content-length":
            lengths.append(value)
    if size > settings.header_bytes or len(headers) > _MOST_HEADERS:
        raise HeadersTooLargeError("too many headers", most=settings.header_bytes)
    if len(scope.get("raw_path") or b"") + len(scope["query_string"]) > settings.url_bytes:
        raise LongUrlError("the address is too long", most=settings.url_bytes)
    # Exactly one Host: with two, a proxy and this server could disagree on who is meant (DNS rebinding).
    if len(hosts) != 1 or (settings.hosts and _name(hosts[0]) not in settings.hosts):
        raise HostError("the server does not go by this name", host=b", ".join(hosts).decode("latin-1")[:100])
    if not _plain(scope["path"]):
        raise RequestError("an address has no dots for folders, no backslash and no control characters")
    # Refused by its announced length before a byte is read; without one, the body is measured as it comes.
    if any(not value.isdigit() or int(value) > settings.body_bytes for value in lengths):
        raise TooLargeError(f"a body has at most {settings.body_bytes} bytes", most=settings.body_bytes)


def _name(host: bytes) -> str:
    """The name of a Host header, without its port."""
    text = host.decode("latin-1").lower()
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.partition(":")[0]


def _plain(path: str) -> bool:
    return path.isprintable() and "\\" not in path and not {"..", "."} & set(path.split("/"))


def _watched(receive: Receive, settings: ServerSettings) -> Receive:
    """The body of a request, as long as it is short enough and comes fast enough."""
    size = 0
    waited = 0.0
    ended = False

    async def receiving() -> Message:
        nonlocal size, waited, ended
        if ended:
            return await receive()
        # A fixed stall time plus what the bytes so far have earned: steady uploads pass, a trickle does not.
        patience = settings.stall_s + size / settings.least_bytes_s - waited
        began = time.monotonic()
        message = await _within(receive(), patience)
        waited += time.monotonic() - began
        size += len(message.get("body", b""))
        ended = message["type"] != "http.request" or not message.get("more_body", False)
        if size > settings.body_bytes:
            raise TooLargeError(f"a body has at most {settings.body_bytes} bytes", most=settings.body_bytes)
        return message

    return receiving


async def _within(waiting: Awaitable[T], seconds: float) -> T:
    try:
        async with asyncio.timeout(max(seconds, 0.0)):
            return await waiting
    except TimeoutError as error:
        raise SlowRequestError("the body came too slowly") from error


class RateLimitMiddleware(Middleware):
    """Refuses an address that asks too often."""

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Take one from the bucket of the address."""
        pace(state_in(scope), f"address:{_address(scope)}")
        await self.app(scope, receive, send)


def pace(state: ServerState, key: str) -> None:
    """Take one request from a bucket; RateLimitedError if it is empty."""
    wait = state.buckets.take(key)
    if wait > 0:
        raise RateLimitedError(f"more than {state.settings.rate_s:g} requests a second", retry_after_s=wait)


def charge(scope: Scope) -> str:
    """Take from the bucket of a request's address what a refused request costs; return the address."""
    state = state_in(scope)
    state.buckets.charge(f"address:{_address(scope)}", state.settings.denied_cost)
    return _address(scope)


def _address(scope: Scope) -> str:
    return scope["client"][0] if scope.get("client") else ""
