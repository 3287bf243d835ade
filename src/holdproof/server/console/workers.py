"""Queues, schedules and workers: what waits, what runs by the clock, and who does it."""

from typing import Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from holdproof.errors import InvalidInputError
from holdproof.model.page import Page
from holdproof.server.console import listing
from holdproof.server.console.desk import Desk, or_default
from holdproof.server.pages import form

router = APIRouter(include_in_schema=False)

_MOST: Final = 1000
_QUEUE: Final = ("name", "concurrency", "worker_concurrency", "partition_concurrency", "rate_limit", "rate_period_s")
_SCHEDULE: Final = (
    "name",
    "cron",
    "timezone",
    "function",
    "function_version",
    "agent_id",
    "queue",
    "next_at",
    "paused",
)
_WORKER: Final = ("worker_id", "name", "state", "host", "pid", "running", "concurrency", "started_at", "heartbeat_at")
_ACTS: Final = {"queues": ("pause", "resume"), "schedules": ("pause", "resume", "trigger")}


@router.get("/workers")
@router.get("/queues")
@router.get("/schedules")
async def show(request: Request) -> Response:
    """Queues with their lengths and limits, schedules with their next moment, and workers."""
    desk = Desk(request)
    store = desk.store
    workers = await store.workers.list(limit=_MOST)
    lengths = {each.queue: each for each in await or_default(store.queues.lengths(), ())}
    limits = {each.name: each for each in (await or_default(store.queues.list(limit=_MOST), Page([]))).items}
    names = sorted({*lengths, *limits})
    values = {
        "workers": workers,
        "lost": sum(each.state == "LOST" for each in workers),
        "due": sum(each.due for each in lengths.values()),
        "queues": [(name, lengths.get(name), limits.get(name)) for name in names],
        "schedules": (await or_default(store.schedules.list(limit=_MOST), Page([]))).items,
    }
    return await desk.render("workers.html", values)


@router.get("/workers.{format}")
async def worker_rows(request: Request, format: str) -> Response:
    """Workers for programs."""
    return listing.export("workers", format, await Desk(request).store.workers.list(limit=_MOST), _WORKER)


@router.get("/queues.{format}")
async def queue_rows(request: Request, format: str) -> Response:
    """Queues with their limits for programs."""
    page = await Desk(request).store.queues.list(limit=_MOST)
    return listing.export("queues", format, page.items, (*_QUEUE, "paused"))


@router.get("/schedules.{format}")
async def schedule_rows(request: Request, format: str) -> Response:
    """Schedules for programs."""
    page = await Desk(request).store.schedules.list(limit=_MOST)
    return listing.export("schedules", format, page.items, _SCHEDULE)


@router.post("/queues/change")
async def change_queue(request: Request) -> Response:
    """Pause or resume a queue."""
    return await _change(Desk(request), "queues")


@router.post("/schedules/change")
async def change_schedule(request: Request) -> Response:
    """Pause or resume a schedule, or run it now."""
    return await _change(Desk(request), "schedules")


async def _change(desk: Desk, resource: str) -> Response:
    fields = await form(desk.request)
    act = fields.get("act", "")
    if act not in _ACTS[resource]:
        raise InvalidInputError(f"choose one of {', '.join(_ACTS[resource])}", field="act")
    name = fields.get("name", "")
    await getattr(getattr(desk.store, resource), act)(name)
    done = {"pause": "is paused", "resume": "goes on", "trigger": "runs now"}[act]
    return desk.after(f"/{resource}", f"{name} {done}.")
