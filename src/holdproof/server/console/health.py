"""Health: how fast the store works, how it grows, and whether anything needs somebody."""

from collections.abc import Sequence
from typing import Any, Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from holdproof.runtime import gauges
from holdproof.server.console import charts
from holdproof.server.console.desk import Desk, or_default
from holdproof.server.metrics import Metrics
from holdproof.server.samples import Sample

router = APIRouter(include_in_schema=False)
_LASTING: Final = frozenset({"/v1/events", "unmatched"})
"""Routes whose time says nothing: a stream lasts as long as somebody listens."""


@router.get("/health")
async def show(request: Request) -> Response:
    """Throughput, latencies, sizes, what is degraded, and what waits for somebody."""
    desk = Desk(request)
    state = desk.state
    # The numbers below come from the store as a whole, past the per-method checks of the desk.
    desk.require("storage", "status")
    status = await state.store.status()
    pace = await desk.store.flows.pace(minutes=60)
    moves = [(each.minute[11:], each.transitions) for each in pace]
    values: dict[str, Any] = {
        "status": status,
        "pace": charts.columns("Transitions a minute, the last hour", moves),
        "moved": sum(each.transitions for each in pace),
        "failed": sum(each.failed for each in pace),
        "counts": await state.store.read(gauges.read),
        "latencies": latencies(state.metrics),
        "growth": growth([*state.samples.history]),
        "services": await or_default(desk.store.storage.status()),
        "jobs": desk.jobs()[:5],
        "notifications": await or_default(desk.store.channels.notifications(limit=10)),
    }
    return await desk.render("health.html", values)


def latencies(metrics: Metrics) -> list[tuple[str, int, float | None, float | None]]:
    """The busiest routes: how often they were asked, and within what time half and 99 of 100 were answered."""
    busiest = [
        (f"{method} {route}", total, half, most)
        for method, route, total, half, most in metrics.quantiles()
        if route not in _LASTING
    ]
    return sorted(busiest, key=lambda each: -each[1])[:10]


def growth(samples: Sequence[Sample]) -> dict[str, charts.Chart]:
    """The sizes of the store since the server began."""
    # A line needs two points.
    if len(samples) < 2:
        return {}
    return {
        "log": charts.line("Leaves in the log", [(each.at[11:19], each.leaves) for each in samples]),
        "size": charts.line("Database, MiB", [(each.at[11:19], each.bytes / (1 << 20)) for each in samples]),
        "wal": charts.line("WAL, MiB", [(each.at[11:19], each.wal / (1 << 20)) for each in samples]),
    }


@router.post("/health/sweep")
async def sweep(request: Request) -> Response:
    """Put away what time has ended."""
    desk = Desk(request)
    swept = await desk.store.sweep.run()
    message = f"Swept: {swept.locks} locks, {swept.keys} keys, {swept.escalations} questions past their deadline."
    return desk.after("/health", message)
