"""The server's application: one store, its routes, and the layers around them."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any, Final

from fastapi import APIRouter, FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from holdproof.api.awaitable import AwaitableStore
from holdproof.api.problems import MEDIA_TYPE
from holdproof.client import Holdproof
from holdproof.errors import HoldproofError
from holdproof.server import docs, events, health, login, static_files, stream_events, tiles, witnessing
from holdproof.server.authentication import AuthenticationMiddleware
from holdproof.server.compression import CompressionMiddleware
from holdproof.server.middleware import (
    MetricsMiddleware,
    RateLimitMiddleware,
    RequestLimitsMiddleware,
    SecurityHeadersMiddleware,
)
from holdproof.server.problems import Errors, answer
from holdproof.server.settings import ServerSettings
from holdproof.server.state import ServerState
from holdproof.version import VERSION

_log = logging.getLogger("holdproof.server")

ROUTERS: Final[Sequence[APIRouter]] = (
    *(health.router, login.router, docs.router, tiles.router, witnessing.router),
    *(events.router, stream_events.router, static_files.router),
)
PROBLEMS: Final[dict[int | str, dict[str, Any]]] = {
    "default": {
        "description": "What went wrong.",
        "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
    }
}
LAYERS: Final = (
    MetricsMiddleware,
    SecurityHeadersMiddleware,
    CompressionMiddleware,
    Errors,
    RequestLimitsMiddleware,
    RateLimitMiddleware,
    AuthenticationMiddleware,
)
"""Around the routes, from the outside in."""


def create_app(
    store: Holdproof | AwaitableStore[Holdproof],
    settings: ServerSettings | None = None,
    *,
    parts: Sequence[Callable[[FastAPI], None]] = (),
) -> FastAPI:
    """The application over an open store, or over one that it opens and closes itself; `parts` add further routes."""
    chosen = settings or ServerSettings()
    app = FastAPI(
        title="Holdproof",
        version=VERSION,
        summary="What agents decide, know and owe, durable and provable.",
        # docs.py serves these itself, built once: FastAPI would build them for every request.
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        lifespan=_life(store, chosen),
        exception_handlers={HTTPException: _answered, RequestValidationError: _answered},
    )
    if isinstance(store, Holdproof):
        app.state.holdproof = ServerState(store, chosen)
    # Starlette puts the layer added last outermost; LAYERS is written from the outside in.
    for layer in reversed(LAYERS):
        app.add_middleware(layer)
    for router in ROUTERS:
        app.include_router(router, responses=PROBLEMS)
    for part in parts:
        part(app)
    return app


def _life(
    store: Holdproof | AwaitableStore[Holdproof], settings: ServerSettings
) -> Callable[[FastAPI], AbstractAsyncContextManager[None]]:
    @asynccontextmanager
    async def life(app: FastAPI) -> AsyncIterator[None]:
        if isinstance(store, Holdproof):
            async with _tended(app.state.holdproof):
                yield
            return
        async with store as opened:
            app.state.holdproof = ServerState(opened, settings)
            async with _tended(app.state.holdproof):
                yield

    return life


@asynccontextmanager
async def _tended(state: ServerState) -> AsyncIterator[None]:
    """Run periodic jobs while the server lives: look at the database, flush the access log, sweep, write images."""
    jobs = [
        _every(state.settings.watch_s, state.readiness.check),
        _every(state.settings.flush_s, state.access_log.flush),
        _every(state.settings.sweep_s, state.store.sweep.run),
        _every(state.settings.channels_s, state.store.channels.deliver),
        _every(state.settings.witness_s, lambda: witnessing.ask(state)),
        _every(state.settings.stamp_s, lambda: witnessing.stamp(state)),
        # Looks often; `images.every_s` of the settings says how often an image is written at most.
        _every(state.settings.images_s, state.store.image.beat),
        _every(state.settings.backups_s, partial(_rotate_backups, state.store)),
        _every(state.settings.flush_s, lambda: state.samples.take(state.store)),
    ]
    tasks = [asyncio.create_task(each) for each in jobs]
    try:
        async with state.commits.listening_to(state.store.database):
            yield
    finally:
        # In this order: streams end, periodic jobs stop, started work is cancelled, then the last counts are written.
        state.stopping.set()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await state.jobs.stop()
        await state.readiness.stop()
        state.scrapers.cancel()
        state.numbers.cancel()
        await state.access_log.flush(ending=True)


async def _rotate_backups(store: Holdproof) -> None:
    """Make the backup that is due by the settings; a failure is logged at every attempt: it needs somebody."""
    try:
        rotation = await store.backup.beat()
    except HoldproofError as error:
        _log.error("no backup could be made: %s", error)
        return
    if rotation is not None and rotation.backup is not None:
        _log.info("backup %s made and checked; %s removed", rotation.backup.path, len(rotation.removed))


async def _every(seconds: float, job: Callable[[], Awaitable[object]]) -> None:
    # Zero switches a job off.
    while seconds > 0:
        await asyncio.sleep(seconds)
        try:
            await job()
        except HoldproofError as error:  # locked, or not reachable: others tell of that
            _log.debug("a periodic job of the server could not run: %s", error)
        except Exception:
            _log.exception("a periodic job of the server failed")


async def _answered(request: Request, raised: Exception) -> Response:
    return await answer(request.scope, raised)
