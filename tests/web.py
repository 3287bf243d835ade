"""The whole server on a real port, for tests: in a thread, over a store of its own."""

import asyncio
import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from fastapi import FastAPI

import holdproof
from holdproof import sync
from holdproof.db.clock import Clock
from holdproof.model.access import AccessEvent
from holdproof.server import ServerSettings, serve
from holdproof.server.serve import AppPart, ListenAddress, Listening
from holdproof.server.state import ServerState
from holdproof.store.opening import OpenOptions


@dataclass
class Web:
    """A running server, its store, and a way to talk to it."""

    store: sync.Holdproof
    listening: Listening
    verify: Any = True
    token: str = ""
    """Of an operator, where a test has made one."""
    _clients: list[httpx.Client] = field(default_factory=list)

    @property
    def port(self) -> int:
        return int(self.listening.address.rsplit(":", 1)[1])

    def client(self, bearer: str | None = None, **headers: str) -> httpx.Client:
        """A caller, by a token or as nobody."""
        given = headers if bearer is None else {"Authorization": f"Bearer {bearer}", **headers}
        made = httpx.Client(base_url=self.listening.address, headers=given, verify=self.verify, timeout=60)
        self._clients.append(made)
        return made

    def logged_in(self, code: str | None = None) -> httpx.Client:
        """A person at the console."""
        client = self.client()
        answer = client.post("/login", data={"code": code or self.store.logins.create_link().secret})
        assert answer.status_code == 303, answer.text
        return client

    def raw(self, request: bytes, *, patience_s: float = 10.0) -> bytes:
        """What is answered to bytes on the wire, until the server closes or says no more for a moment."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=patience_s) as wire:
            wire.sendall(request)
            answer = b""
            while b"\r\n\r\n" not in answer:
                part = wire.recv(65_536)
                if not part:
                    break
                answer += part
            return answer

    def denied(self) -> list[AccessEvent]:
        """Who was refused up to now, newest last."""
        return [*self.store.access_log.list(event="denied", limit=1000).items][::-1]

    def close(self) -> None:
        for client in self._clients:
            client.close()


@contextmanager
def running(
    home: Path,
    settings: ServerSettings | None = None,
    *,
    url: str | None = None,
    clock: Clock | None = None,
    place: ListenAddress | None = None,
    parts: tuple[AppPart, ...] = (),
    verify: ssl.SSLContext | bool = True,
) -> Iterator[Web]:
    """A server over a new store, as long as it is needed; also ends what its clients left open."""
    told: list[Listening] = []
    failed: list[BaseException] = []
    shared: list[tuple[holdproof.Holdproof, ServerState, asyncio.AbstractEventLoop]] = []
    begun = threading.Event()

    def ready(at: Listening) -> None:
        told.append(at)

    async def watch(state: ServerState) -> None:
        shared.append((state.store, state, asyncio.get_running_loop()))
        while not told:
            await asyncio.sleep(0.005)
        begun.set()

    async def main() -> None:
        options: OpenOptions = {} if clock is None else {"clock": clock}
        async with holdproof.open(home, url, **options) as store:
            where = place or ListenAddress(port=0)
            whole = (*serve.parts(console=True), *parts)
            await serve.serve(store, where, settings, ready=ready, parts=whole, beside=[watch])

    def run() -> None:
        try:
            asyncio.run(main())
        except BaseException as error:
            failed.append(error)
        finally:
            begun.set()

    thread = threading.Thread(target=run)
    thread.start()
    begun.wait(30)
    if failed:
        thread.join()
        raise failed[0]
    store, state, loop = shared[0]
    web = Web(sync.Holdproof(store.core), told[0], verify)
    try:
        yield web
    finally:
        web.close()
        loop.call_soon_threadsafe(state.stopping.set)
        thread.join(30)
    assert not failed, failed
    assert not thread.is_alive()


def broken(message: str) -> Callable[[FastAPI], None]:
    """A part with a route that fails as nothing should."""

    def add(app: FastAPI) -> None:
        @app.get("/broken", include_in_schema=False)
        async def fail() -> None:
            raise RuntimeError(message)

    return add


def problem(answer: httpx.Response, status: int, code: str) -> dict[str, Any]:
    """The problem that an answer tells of, which is the one expected."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    told: dict[str, Any] = json.loads(answer.text)
    assert (told["status"], told["code"]) == (status, code)
    assert {"type", "title", "detail", "remedy", "instance"} <= told.keys()
    return told
