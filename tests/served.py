"""A store behind HTTP, on a real port, for tests."""

import asyncio
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse

import holdfast
from holdfast.errors import HoldfastError
from holdfast.faces import problems
from holdfast.ops.catalogue import Entry
from holdfast.server import api, blocks
from holdfast.server.exchange import Exchanges
from holdfast.store import Store


def _app(core: Store) -> FastAPI:
    """The routes of the API alone: whoever comes may do everything."""
    app, store, exchanges = FastAPI(), holdfast.Holdfast(core), Exchanges()

    async def guard(request: Request, entry: Entry, given: Mapping[str, Any]) -> api.Granted:
        return api.Granted(store, "tester")

    async def who(request: Request) -> str:
        return "tester"

    async def refused(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, HoldfastError)
        return JSONResponse(problems.problem(error), error.status, media_type=problems.MEDIA_TYPE)

    app.add_exception_handler(HoldfastError, refused)
    app.include_router(blocks.router(guard, who, exchanges))
    app.include_router(api.router(guard, exchanges))
    return app


@contextmanager
def served(core: Store) -> Iterator[str]:
    """The address of a server for an open store."""
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(_app(core), log_level="warning", lifespan="off"))
    thread = threading.Thread(target=asyncio.run, args=(server.serve(sockets=[listening]),))
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
