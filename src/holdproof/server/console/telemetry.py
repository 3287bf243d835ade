"""Telemetry: events by what is asked for, and the spans of a trace below one another."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from holdproof.model.storage import TelemetryEvent
from holdproof.model.times import to_micros
from holdproof.server.console import charts
from holdproof.server.console.charts import TraceSpan
from holdproof.server.console.desk import Desk

router = APIRouter(include_in_schema=False)

Text = Annotated[str, Query(max_length=500)]
_MOST_SPANS: Final = 1000
_PARENTS: Final = ("parent_span_id", "parent_id", "parent")
_LENGTHS: Final = {"duration_s": 1e6, "duration_ms": 1e3, "duration_us": 1.0, "duration_ns": 1e-3}
_BAD: Final = frozenset({"ERROR", "error", "failed", "STATUS_CODE_ERROR"})


@router.get("/telemetry")
async def show(
    request: Request, *, type: Text = "", trace: Text = "", span: Text = "", since: Text = "", until: Text = ""
) -> Response:
    """Events that match, the newest first."""
    desk = Desk(request)
    filters = {"event_type": type, "trace_id": trace, "span_id": span, "since": _moment(since), "until": _moment(until)}
    events = await desk.store.telemetry.query(limit=100, **{name: text for name, text in filters.items() if text})
    query = {"type": type, "trace": trace, "span": span, "since": since, "until": until}
    return await desk.render("telemetry.html", {"events": events, "query": query})


def _moment(text: str) -> str:
    """A time as a form gives it, which knows no zone: UTC."""
    return f"{text}Z" if len(text) in (16, 19) and text[10:11] == "T" else text


@router.get("/telemetry/trace")
async def trace(request: Request, id: Text) -> Response:
    """The spans of a trace, as they followed one another."""
    desk = Desk(request)
    events = await desk.store.telemetry.query(limit=_MOST_SPANS, trace_id=id)
    values = {"id": id, "events": events[::-1], "fall": charts.waterfall(spans(events)), "most": _MOST_SPANS}
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
