"""Cost: what agents used, as telemetry says it: tokens, money and time, by model, agent, tool or type."""

from typing import Annotated, Final

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from holdproof.model.times import END
from holdproof.model.usage import Usage, UsageGroup
from holdproof.server.console import histogram, listing
from holdproof.server.console.desk import Desk
from holdproof.server.console.listing import TimeRange
from holdproof.storage.usage import BY

router = APIRouter(include_in_schema=False)

Text = Annotated[str, Query(max_length=500)]
_COLUMNS: Final = ("name", "events", "failed", "input_tokens", "output_tokens", "cost", "p50_ms", "p95_ms")
_CHARTS: Final = (
    ("Tokens", "tokens", ("input", "output")),
    ("Cost in USD", "cost", ("cost",)),
    ("Events", "events", ("ok", "failed")),
)


@router.get("/cost")
async def show(
    request: Request, *, by: Text = "model", range: Text = "", since: Text = "", until: Text = ""
) -> Response:
    """Tokens, cost and time, together, over time, and by what is asked for."""
    desk = Desk(request)
    time = listing.time_range(desk.now, range=range, since=since, until=until)
    usage = await _usage(desk, by, time)
    values = {
        "usage": usage,
        "by": by,
        "kinds": sorted(BY),
        "query": {"by": by, **time.query},
        "time": time,
        "ranges": listing.RANGES,
        "charts": _charts(usage),
    }
    return await desk.render("cost.html", values)


@router.get("/cost.{format}")
async def rows(
    request: Request, format: str, *, by: Text = "model", range: Text = "", since: Text = "", until: Text = ""
) -> Response:
    """The sums for programs."""
    desk = Desk(request)
    usage = await _usage(desk, by, listing.time_range(desk.now, range=range, since=since, until=until))
    return listing.export(f"cost-by-{by}", format, usage.groups, _COLUMNS)


async def _usage(desk: Desk, by: str, time: TimeRange) -> Usage:
    until = time.until if time.until < END else None
    usage: Usage = await desk.store.telemetry.usage(by=by, since=time.since, until=until)
    return usage


def _charts(usage: Usage) -> tuple[tuple[str, histogram.Histogram], ...]:
    """Tokens, cost and events over time; what no event says anything about is not drawn."""
    drawings: list[tuple[str, histogram.Histogram]] = []
    for title, name, kinds in _CHARTS:
        points = [(each.name, _amounts(each, name)) for each in usage.buckets]
        if any(sum(amounts.values()) for _, amounts in points):
            drawings.append((title, histogram.lay_out(points, kinds, bucket_s=usage.bucket_s, unit=title.lower())))
    return tuple(drawings)


def _amounts(group: UsageGroup, name: str) -> dict[str, float]:
    if name == "tokens":
        return {"input": group.input_tokens, "output": group.output_tokens}
    if name == "cost":
        return {"cost": group.cost}
    return {"ok": group.events - group.failed, "failed": group.failed}
