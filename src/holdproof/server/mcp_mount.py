"""`/mcp`: the tools of mcp.py over HTTP, imported at the first request for them.

The library behind them takes longer to import than everything else a server needs; a reader of a page does not wait
for it. It is imported on a thread, so that nobody else waits for it either.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module
from typing import Any

from fastapi import FastAPI
from starlette.requests import Request
from starlette.routing import Mount
from starlette.types import ASGIApp, Receive, Scope, Send

from holdproof.errors import MethodError, MissingExtraError
from holdproof.server.state import caller_of


def part(app: FastAPI) -> None:
    """Add `/mcp` to a server; only authenticated callers are answered."""
    tools = Tools()
    app.router.routes.append(Mount("/mcp", app=tools))
    inner = app.router.lifespan_context

    @asynccontextmanager
    async def life(served: FastAPI) -> AsyncIterator[Any]:
        async with inner(served) as value:
            try:
                yield value
            finally:
                await tools.close()

    app.router.lifespan_context = life


class Tools:
    """What answers at `/mcp`; one task has it from the first request to the end of the server."""

    def __init__(self) -> None:
        self._task: asyncio.Task[None] | None = None
        self._app: asyncio.Future[ASGIApp] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        caller_of(Request(scope))
        # Progress is told in answers: a stream beside them would carry nothing, and outlive its token.
        if scope["method"] != "POST":
            raise MethodError("tools are called by POST, and there is no stream beside their answers", allow="POST")
        if self._app is None:
            self._app = asyncio.get_running_loop().create_future()
            self._task = asyncio.create_task(self._hold(self._app))
        answer = await asyncio.shield(self._app)
        await answer(scope, receive, send)

    async def _hold(self, ready: "asyncio.Future[ASGIApp]") -> None:
        """Keep it open: what was entered in a task has to be left in the same one."""
        try:
            mcp = await asyncio.to_thread(import_module, "holdproof.server.mcp")
            async with mcp.over_http() as answer:
                ready.set_result(answer)
                await asyncio.Event().wait()
        except ImportError as error:
            ready.set_exception(MissingExtraError(f"tools need the extra: pip install 'holdproof[mcp]' ({error})"))
        except Exception as error:
            if ready.done():
                raise
            ready.set_exception(error)  # or whoever asked would wait for ever

    async def close(self) -> None:
        """End what still runs."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
