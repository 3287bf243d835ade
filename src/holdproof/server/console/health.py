"""Health: how fast the store works, how it grows, and whether anything needs somebody."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from holdproof.evidence import growth as sizes
from holdproof.model.activity import ActivityCount
from holdproof.model.flows import Pace
from holdproof.model.log import StoreSize
from holdproof.model.page import Page
from holdproof.model.times import later
from holdproof.runtime import gauges
from holdproof.server.console import growth_chart, histogram, listing
from holdproof.server.console.desk import Desk, or_default
from holdproof.server.metrics import Metrics
from holdproof.validation import MOST_PAGE

router = APIRouter(include_in_schema=False)
_LASTING: Final = frozenset({"/v1/events", "unmatched"})
"""Routes whose time says nothing: a stream lasts as long as somebody listens."""
_BY_DAY: Final = frozenset({"30d", "all"})
_MOST_COLUMNS: Final = 400


@router.get("/health")
async def show(request: Request, *, range: Annotated[str, Query(max_length=10)] = "") -> Response:
    """Throughput, latencies, sizes, what is degraded, and what waits for somebody."""
    desk = Desk(request)
    state = desk.state
    # The numbers below come from the store as a whole, past the per-method checks of the desk.
    desk.require("storage", "status")
    time = listing.time_range(desk.now, range=range, default="24h")
    values: dict[str, Any] = {
        "query": {"range": range} if range else {},
        "time": time,
        "ranges": listing.RANGES,
        "status": await state.store.status(),
        "throughput": await _throughput(desk, time),
        "growth": growth(await _sizes(desk, time), time, desk.now),
        "counts": await state.store.read(lambda tx: gauges.read(tx) | gauges.troubles(tx, ns=desk.ns)),
        "open": await state.store.read(lambda tx: gauges.flows(tx, ns=desk.ns)),
        "latencies": latencies(state.metrics),
        "tenants": (await or_default(desk.store.limits.list(), Page([]))).items,
        "services": await or_default(desk.store.storage.status()),
        "jobs": desk.jobs()[:5],
        "notifications": await or_default(desk.store.channels.notifications(limit=10)),
    }
    return await desk.render("health.html", values)


@dataclass(frozen=True, slots=True)
class Throughput:
    """What was done in a range, as columns, and the same in words."""

    chart: histogram.Histogram
    says: str
    is_empty: bool


_KINDS: Final = ("completed", "failed", "cancelled", "running")


async def _throughput(desk: Desk, time: listing.TimeRange) -> Throughput:
    """What flows did, by the minute within an hour, else how they ended, by the hour or by the day."""
    if time.word == "1h":
        pace = await desk.store.flows.pace(minutes=60)
        points = [(each.minute, _transitions(each)) for each in pace]
        total = sum(each.transitions for each in pace)
        says = f"{total:,} transitions by the minute, {sum(each.failed for each in pace):,} to FAILED"
        return _columns(points, 60.0, "transitions", says)
    by, length_s = ("day", 86_400.0) if time.word in _BY_DAY else ("hour", 3_600.0)
    counts = {each.bucket: each for each in await desk.store.activity.stats(by=by, since=time.since)}
    buckets = _buckets(min(counts, default=""), time, desk.now, length_s)
    points = [(_moment(each), _ends(counts.get(each))) for each in buckets]
    ended = sum(each.ended for each in counts.values())
    says = f"{ended:,} flows ended, {sum(each.failed for each in counts.values()):,} failed, by the {by}"
    return _columns(points, length_s, "ended", says)


def _columns(points: Sequence[tuple[str, Mapping[str, float]]], bucket_s: float, unit: str, says: str) -> Throughput:
    is_empty = not any(value for _, amounts in points for value in amounts.values())
    return Throughput(histogram.lay_out(points, _KINDS, bucket_s=bucket_s, unit=unit), says, is_empty)


def _transitions(pace: Pace) -> Mapping[str, float]:
    others = pace.transitions - pace.completed - pace.failed
    return {"completed": pace.completed, "failed": pace.failed, "running": others}


def _ends(count: ActivityCount | None) -> Mapping[str, float]:
    if count is None:
        return {}
    return {"completed": count.completed, "failed": count.failed, "cancelled": count.cancelled}


def _buckets(first: str, time: listing.TimeRange, now: str, length_s: float) -> list[str]:
    """The hours or days of a range, the oldest first; of all time, those since the first that has something."""
    letters = 13 if length_s < 86_400 else 10
    start = time.since[:letters] if time.word != "all" else first or now[:letters]
    buckets = (later(now, -length_s * back)[:letters] for back in range(_MOST_COLUMNS))
    return [*takewhile(lambda bucket: bucket >= start, buckets)][::-1]


def _moment(bucket: str) -> str:
    return f"{bucket}:00:00Z" if len(bucket) > 10 else f"{bucket}T00:00:00Z"


async def _sizes(desk: Desk, time: listing.TimeRange) -> list[StoreSize]:
    """The sizes of the store in a range, oldest first: what the sweep kept, what this server saw since, and now."""
    by = "day" if time.word == "all" else "hour"
    page = await desk.store.log.growth(by=by, since=time.since, limit=MOST_PAGE)
    newest = await desk.state.store.read(sizes.now)
    # A range of months has no room for what was seen every few seconds.
    watched = [each for each in desk.state.samples.history if each.at >= time.since] if time.word == "1h" else []
    return sorted([*page.items, *watched, newest], key=lambda each: each.at)


def latencies(metrics: Metrics) -> list[tuple[str, int, float | None, float | None]]:
    """The busiest routes: how often they were asked, and within what time half and 99 of 100 were answered."""
    busiest = [
        (f"{method} {route}", total, half, most)
        for method, route, total, half, most in metrics.quantiles()
        if route not in _LASTING
    ]
    return sorted(busiest, key=lambda each: -each[1])[:10]


def growth(measured: Sequence[StoreSize], time: listing.TimeRange, now: str) -> list[growth_chart.GrowthChart]:
    """The sizes of the store within a range, from its beginning or from the first measurement of all."""
    begin = measured[0].at if time.word == "all" and measured else time.since
    entries = [(each.at, float(each.entries)) for each in measured]
    mebibytes = [(each.at, each.bytes / (1 << 20)) for each in measured]
    charts = (
        growth_chart.lay_out("Entries in the log", entries, begin=begin, end=now, unit="entries"),
        growth_chart.lay_out("Database, MiB", mebibytes, begin=begin, end=now, unit="MiB"),
    )
    return [each for each in charts if each is not None]


@router.post("/health/sweep")
async def sweep(request: Request) -> Response:
    """Put away what time has ended."""
    desk = Desk(request)
    swept = await desk.store.sweep.run()
    message = f"Swept: {swept.locks} locks, {swept.keys} keys, {swept.escalations} escalations past their deadline."
    return desk.after("/health", message)
