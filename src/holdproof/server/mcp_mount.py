"""`/mcp`: the tools of mcp.py at the door, brought in when somebody first asks for them.

The library behind them takes longer to import than everything else a server needs; whoever opens a page does not wait
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

from holdproof.errors import MissingExtraError
from holdproof.server.state import caller_of


def part(app: FastAPI) -> None:
    """Add `/mcp` to a server; nobody is answered whom the door does not know."""
    tools = Tools()
    app.router.routes.append(Mount("/mcp", app=tools))
    inner = app.router.lifespan_context

    @asynccontextmanager
    async def life(served: FastAPI) -> AsyncIterator[Any]:
        async with inner(served) as found:
            try:
                yield found
            finally:
                await tools.close()

    app.router.lifespan_context = life


class Tools:
    """What answers at `/mcp`; one task has it from the first request to the end of the server."""

    def __init__(self) -> None:
        self._held: asyncio.Task[None] | None = None
        self._made: asyncio.Future[ASGIApp] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        caller_of(Request(scope))
        if self._made is None:
            self._made = asyncio.get_running_loop().create_future()
            self._held = asyncio.create_task(self._hold(self._made))
        answer = await asyncio.shield(self._made)
        await answer(scope, receive, send)

    async def _hold(self, made: "asyncio.Future[ASGIApp]") -> None:
        """Keep it open: what was entered in a task has to be left in the same one."""
        try:
            mcp = await asyncio.to_thread(import_module, "holdproof.server.mcp")
            async with mcp.over_http() as answer:
                made.set_result(answer)
                await asyncio.Event().wait()
        except ImportError as error:
            made.set_exception(MissingExtraError(f"tools need the extra: pip install 'holdproof[mcp]' ({error})"))
        except Exception as error:
            if made.done():
                raise
            made.set_exception(error)  # or whoever asked would wait for ever

    async def close(self) -> None:
        """End what still runs."""
        if self._held is not None:
            self._held.cancel()
            await asyncio.gather(self._held, return_exceptions=True)
