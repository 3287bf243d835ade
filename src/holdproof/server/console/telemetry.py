"""Telemetry: events by what is asked for, and the spans of a trace below one another."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from holdproof.model.storage import TelemetryEvent
from holdproof.model.times import BEGINNING, END, to_micros
from holdproof.server.console import axes, charts, listing
from holdproof.server.console.charts import TraceSpan
from holdproof.server.console.desk import Desk
from holdproof.server.console.listing import TimeRange

router = APIRouter(include_in_schema=False)

Text = Annotated[str, Query(max_length=500)]
_PAGE: Final = 100
_MOST_SPANS: Final = 1000
_COLUMNS: Final = ("timestamp", "event_type", "instance_id", "span_id", "trace_id", "data")
_PARENTS: Final = ("parent_span_id", "parent_id", "parent")
_LENGTHS: Final = {"duration_s": 1e6, "duration_ms": 1e3, "duration_us": 1.0, "duration_ns": 1e-3}
_BAD: Final = frozenset({"ERROR", "error", "failed", "STATUS_CODE_ERROR"})


@router.get("/telemetry")
async def show(
    request: Request,
    *,
    type: Text = "",
    trace: Text = "",
    span: Text = "",
    range: Text = "",
    since: Text = "",
    until: Text = "",
) -> Response:
    """Events that match, the newest first."""
    desk = Desk(request)
    time = listing.time_range(desk.now, range=range, since=since, until=until, default="all")
    events = await _events(desk, {"event_type": type, "trace_id": trace, "span_id": span}, time, _PAGE + 1)
    query = {"type": type, "trace": trace, "span": span, **time.query}
    values = {
        "events": events[:_PAGE],
        "more": events[_PAGE - 1].timestamp if len(events) > _PAGE else "",
        "total": await desk.store.telemetry.count(),
        "query": query,
        "time": time,
        "ranges": listing.RANGES,
    }
    return await desk.render("telemetry.html", values)


@router.get("/telemetry.{format}")
async def rows(
    request: Request,
    format: str,
    *,
    type: Text = "",
    trace: Text = "",
    span: Text = "",
    range: Text = "",
    since: Text = "",
    until: Text = "",
) -> Response:
    """Events of the same query for programs."""
    desk = Desk(request)
    time = listing.time_range(desk.now, range=range, since=since, until=until, default="all")
    events = await _events(desk, {"event_type": type, "trace_id": trace, "span_id": span}, time, listing.MOST_ROWS)
    return listing.export("telemetry", format, events, _COLUMNS)


async def _events(desk: Desk, names: Mapping[str, str], time: TimeRange, limit: int) -> list[TelemetryEvent]:
    bounds = {"since": time.since if time.since > BEGINNING else "", "until": time.until if time.until < END else ""}
    filters = {name: text for name, text in {**names, **bounds}.items() if text}
    events: list[TelemetryEvent] = await desk.store.telemetry.query(limit=limit, **filters)
    return events


@router.get("/telemetry/trace")
async def trace(request: Request, id: Text) -> Response:
    """The spans of a trace, as they followed one another."""
    desk = Desk(request)
    events = await desk.store.telemetry.query(limit=_MOST_SPANS, trace_id=id)
    fall = charts.waterfall(spans(events))
    marks = axes.seconds(fall.total_s)
    values = {"id": id, "events": events[::-1], "fall": fall, "marks": marks, "most": _MOST_SPANS}
    return await desk.render("trace.html", values)


def spans(events: Sequence[TelemetryEvent]) -> list[TraceSpan]:
    """The spans that events tell of: those of one span id together, from the first moment to the last."""
    by_span: dict[str, list[TelemetryEvent]] = {}
    for number, event in enumerate(events):
        # Events without a span id stand for themselves, under a name that no id can have.
        by_span.setdefault(event.span_id or f"event {number}", []).append(event)
    return [_span(name, group) for name, group in by_span.items()]


def _span(name: str, events: Sequence[TelemetryEvent]) -> TraceSpan:
    bounds = [_bounds(each) for each in events]
    first = min(events, key=lambda each: each.timestamp)
    # The query returns the newest first; reversed, later facts overwrite earlier ones.
    facts: dict[str, Any] = {key: value for each in reversed(events) for key, value in each.data.items()}
    parent = next((str(facts[key]) for key in _PARENTS if facts.get(key)), None)
    status = facts.get("status", "")
    ended = str(status.get("code") if isinstance(status, Mapping) else status)
    bad = ended in _BAD or bool(facts.get("error"))
    title = str(facts.get("name") or first.event_type)
    return TraceSpan(name, parent, title, min(start for start, _ in bounds), max(end for _, end in bounds), bad)


def _bounds(event: TelemetryEvent) -> tuple[int, int]:
    start = to_micros(event.timestamp)
    return start, start + _length(event.data)


def _length(data: Mapping[str, Any]) -> int:
    """How long something took, in microseconds: between its times, as spans have them, or as it says itself."""
    match data.get("start_unix_nano"), data.get("end_unix_nano"):
        case int(start), int(end) if start <= end:
            return (end - start) // 1000
    for name, scale in _LENGTHS.items():
        value = data.get(name)
        # Senders write anything here: a bool is an int in Python, and huge numbers would break the chart.
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e15:
            return round(value * scale)
    return 0
