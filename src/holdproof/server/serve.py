"""Running the server: where it listens, who may reach it, and how it ends.

Rules:
- It listens on this machine only, unless told otherwise; elsewhere only once there is a token, since without one
  nobody could log in, and nobody could be told apart.
- It is ready when it listens; only then is its address told, with a link that opens the console once.
- A signal ends it: no new requests, streams end, what is under way is finished, then the store is closed.
"""

import asyncio
import ipaddress
import logging
import signal
import ssl
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import util
from pathlib import Path
from socket import socket
from typing import Final
from urllib.parse import quote

import uvicorn
from fastapi import FastAPI

from holdproof.client import Holdproof
from holdproof.errors import ConfigError
from holdproof.model.value import Value
from holdproof.server import console as pages
from holdproof.server import mcp_mount, method_routes, otlp
from holdproof.server.app import create_app
from holdproof.server.protocol import TimeoutHttpProtocol
from holdproof.server.proxy_login import TrustedProxy
from holdproof.server.settings import LOOPBACK, ServerSettings
from holdproof.server.state import ServerState

_log = logging.getLogger("holdproof.server")

PORT: Final = 8420
_GRACE_S: Final = 10
_MOST_CONNECTIONS: Final = 1024
_KEEP_ALIVE_S: Final = 15
_ANY: Final = frozenset({"0.0.0.0", "::", ""})  # noqa: S104 (compared with, not bound to)

AppPart = Callable[[FastAPI], None]
"""Adds routes to the application: the API, the console."""
Beside = Callable[[ServerState], Awaitable[None]]
"""Something that runs beside the server until it ends: a demonstration."""


def parts(*, console: bool) -> tuple[AppPart, ...]:
    """What `holdproof up` serves beside health, log, events and login."""
    chosen: tuple[AppPart, ...] = (method_routes.part, otlp.part)
    if util.find_spec("mcp") is not None:  # an optional extra
        chosen += (mcp_mount.part,)
    return (*chosen, pages.part) if console else chosen


@dataclass(frozen=True, slots=True)
class Listening(Value):
    """Where a server can be reached; the link opens the console once, within ten minutes."""

    address: str
    link: str


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """Where to listen."""

    host: str = "127.0.0.1"
    port: int = PORT
    tls_cert: Path | None = None
    tls_key: Path | None = None
    names: frozenset[str] = frozenset()
    """Further names that the server goes by."""
    proxies: str | None = None
    """Addresses of proxies whose word on the caller's address counts."""

    @property
    def local(self) -> bool:
        """Whether only this machine can reach it."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    @property
    def hosts(self) -> frozenset[str]:
        """The names to answer to; none for any, where it listens on every address and no name is given."""
        if self.host in _ANY and not self.names:
            return frozenset()
        return LOOPBACK | self.names | ({self.host.lower()} - _ANY)


async def serve(
    store: Holdproof,
    place: ListenAddress,
    settings: ServerSettings | None = None,
    *,
    ready: Callable[[Listening], None],
    parts: Sequence[AppPart] = (),
    beside: Sequence[Beside] = (),
) -> None:
    """Serve a store until a signal comes; `ready` is told once, when it listens."""
    await admit(store, place)
    if settings is not None and settings.proxy_login is not None:
        settings.proxy_login.check(place.proxies)
    secure = place.tls_cert is not None
    chosen = replace(settings or ServerSettings(), hosts=place.hosts, secure=secure)
    app = create_app(store, chosen, parts=parts)
    state: ServerState = app.state.holdproof
    server = _Server(_config(app, place), state)
    running = asyncio.create_task(server.serve())
    tasks = [asyncio.create_task(_after(server, each, state)) for each in (_ended(server), *beside)]
    try:
        if await server.listening(running):
            listening = await _listening(store, place, server.port())
            _log.info("listening on %s", listening.address)
            ready(listening)
        await running
    finally:
        if server.began.is_set():
            _log.info("stopped: requests are answered, the store is closed next")
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _after(server: "_Server", work: Beside, state: ServerState) -> None:
    """Run something once the server listens."""
    await server.began.wait()
    await work(state)


def _ended(server: "_Server") -> Beside:
    """Return a task that ends the server once `stopping` is set."""

    async def wait(state: ServerState) -> None:
        await state.stopping.wait()
        server.should_exit = True

    return wait


async def admit(store: Holdproof, place: ListenAddress) -> None:
    """Refuse to listen where others reach it before there is a token, and to show half of a certificate."""
    if (place.tls_cert is None) != (place.tls_key is None):
        raise ConfigError("a certificate and its key go together: --tls-cert and --tls-key")
    # Without a token only links of this machine could log in; a server open to others must be able to refuse them.
    if not place.local and not (await store.tokens.list(limit=1)).items:
        raise ConfigError(
            f"{place.host} can be reached by others, and there is no token yet:"
            " make one with `holdproof tokens create NAME`, then start again",
            host=place.host,
        )


async def _listening(store: Holdproof, place: ListenAddress, port: int) -> Listening:
    scheme = "http" if place.tls_cert is None else "https"
    named = next(iter(sorted(place.names)), "") or ("127.0.0.1" if place.host in _ANY else place.host)
    address = f"{scheme}://{f'[{named}]' if ':' in named else named}:{port}"
    code = (await store.logins.create_link()).secret
    return Listening(address, f"{address}/login?code={quote(code)}")


def _config(app: FastAPI, place: ListenAddress) -> uvicorn.Config:
    config = uvicorn.Config(
        app if place.proxies is None else TrustedProxy(app, place.proxies),
        place.host,
        place.port,
        http=TimeoutHttpProtocol,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        # `TrustedProxy` reads the headers; the addresses here are those that may hold many connections.
        proxy_headers=False,
        forwarded_allow_ips=place.proxies or "",
        server_header=False,
        limit_concurrency=_MOST_CONNECTIONS,
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=_GRACE_S,
        ssl_certfile=place.tls_cert,
        ssl_keyfile=place.tls_key,
    )
    try:
        config.load()
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"the certificate or its key cannot be used: {error}") from error
    return config


def _is_no_bind_error(record: logging.LogRecord) -> bool:
    """Leave the port that cannot be had to the error that says what to do; uvicorn logs the system's words too."""
    return not isinstance(record.msg, OSError)


class _Server(uvicorn.Server):
    """A server that says when it listens, and that ends its streams before it waits for them."""

    def __init__(self, config: uvicorn.Config, state: ServerState) -> None:
        super().__init__(config)
        self._state = state
        self.began = asyncio.Event()

    async def startup(self, sockets: list[socket] | None = None) -> None:
        """Listen; what cannot be listened on is an error of the configuration."""
        logger = logging.getLogger("uvicorn.error")
        logger.addFilter(_is_no_bind_error)
        try:
            await super().startup(sockets)
        # uvicorn exits the process when it cannot bind.
        except SystemExit as error:
            raise ConfigError(
                f"cannot listen on {self.config.host} port {self.config.port}: it is in use, or not for this user",
                remedy="Choose another one with --port (0 for any that is free), or stop the program that has it.",
                host=self.config.host,
                port=self.config.port,
            ) from error
        finally:
            logger.removeFilter(_is_no_bind_error)
        self.began.set()

    async def listening(self, running: "asyncio.Task[None]") -> bool:
        """Wait until it listens, or has failed to."""
        began = asyncio.create_task(self.began.wait())
        await asyncio.wait({began, running}, return_when=asyncio.FIRST_COMPLETED)
        began.cancel()
        return self.began.is_set()

    def port(self) -> int:
        """The port it listens on; chosen by the system where 0 was asked for."""
        number: int = self.servers[0].sockets[0].getsockname()[1]
        return number

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """End on SIGINT or SIGTERM, and return to the caller instead of exiting, so that the store is closed."""
        loop = asyncio.get_running_loop()
        caught = (signal.SIGINT, signal.SIGTERM)
        try:
            for each in caught:
                loop.add_signal_handler(each, self.end)
        except (ValueError, RuntimeError):  # not the main thread: its owner ends it
            yield
            return
        try:
            yield
        finally:
            for each in caught:
                loop.remove_signal_handler(each)

    def end(self) -> None:
        """End gracefully; asked a second time, at once."""
        _log.info("stopping: %s", "at once" if self.should_exit else "no new requests, those under way are finished")
        # The first signal finds should_exit unset, the second one set: then nothing is waited for.
        self.force_exit = self.should_exit
        self.should_exit = True
        self._state.end_streams()
