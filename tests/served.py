"""A store behind HTTP, on a real port, for tests: one server, whose store can be changed."""

import asyncio
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

import holdproof
from holdproof.api import problems
from holdproof.api.catalogue import MethodSpec
from holdproof.errors import HoldproofError
from holdproof.server import api, remote_contexts
from holdproof.server.exchange import Exchanges
from holdproof.server.permissions import Caller
from holdproof.server.settings import ServerSettings
from holdproof.store.opening import Store


class Refusing:
    """Errors of ours as answers, nothing written down."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._app(scope, receive, send)
        except HoldproofError as error:
            told = JSONResponse(problems.problem(error), error.status, media_type=problems.MEDIA_TYPE)
            await told(scope, receive, send)


class Stage:
    """The routes of the API alone, on a port: whoever comes may do everything to the store that is on."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._stores: dict[str, holdproof.Holdproof] = {}
        self.app = self._made()

    @contextmanager
    def showing(self, core: Store, ns: str | None = None) -> Iterator[str]:
        """A token under which a store is on."""
        token = f"store-{id(core)}-{ns}"
        self._stores[token] = holdproof.Holdproof(core, ns)
        try:
            yield token
        finally:
            del self._stores[token]

    def _made(self) -> FastAPI:
        app, exchanges = FastAPI(), Exchanges()
        app.state.holdproof = SimpleNamespace(settings=ServerSettings(), stopping=asyncio.Event())

        async def who(request: Request) -> str:
            request.state.caller = Caller("operator", "test")
            return request.headers["Authorization"].removeprefix("Bearer ")

        async def guard(request: Request, entry: MethodSpec, given: Mapping[str, Any]) -> api.Granted:
            token = await who(request)
            return api.Granted(self._stores[token], token)

        app.add_middleware(api.MethodEndpoints, guard, exchanges)
        app.add_middleware(Refusing)
        app.include_router(remote_contexts.router(guard, who, exchanges))
        return app


@contextmanager
def staged(*layers: Any) -> Iterator[Stage]:
    """A server, as long as it is needed, with layers around it."""
    listening = socket.socket(proto=socket.IPPROTO_TCP)  # said, or what it accepts waits for company before it sends
    listening.bind(("127.0.0.1", 0))
    # Before the server runs: who comes earlier waits in line instead of being refused.
    listening.listen(128)
    stage = Stage(f"http://127.0.0.1:{listening.getsockname()[1]}")
    for layer in layers:
        stage.app.add_middleware(layer)
    server = uvicorn.Server(uvicorn.Config(stage.app, log_level="warning", lifespan="off"))
    thread = threading.Thread(target=asyncio.run, args=(server.serve(sockets=[listening]),))
    thread.start()
    try:
        yield stage
    finally:
        server.should_exit = True
        thread.join()
        listening.close()
