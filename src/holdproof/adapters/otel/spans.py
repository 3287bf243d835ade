"""Spans as events of the telemetry store; pure.

An event of type `span` has the moment at which the span began, its trace and span ids, and as `instance_id` the
resource's `service.instance.id`, or else its `service.name`. Its data: name, kind, both times in nanoseconds, and what
there is of parent, status, attributes, events, links, resource and scope.
"""

from collections.abc import Iterator, Mapping, Sequence
from math import isfinite
from typing import Any, Final

from holdproof.adapters.otel import gen_ai
from holdproof.errors import FormatError
from holdproof.model.storage import TelemetryEvent
from holdproof.model.times import to_text

SPAN: Final = "span"
KINDS: Final = ("UNSPECIFIED", "INTERNAL", "SERVER", "CLIENT", "PRODUCER", "CONSUMER")
STATUSES: Final = ("UNSET", "OK", "ERROR")
_LAST_NANO: Final = 253_402_300_799_999_999_999
_DEEP: Final = 64


def event(trace_id: str, span_id: str, data: Mapping[str, Any]) -> TelemetryEvent:
    """The event of a span; what is empty in its data is left out. FormatError where it has no ids or no times."""
    began = data["start_unix_nano"]
    ended = data["end_unix_nano"]
    if not _is_id(trace_id, 32) or not _is_id(span_id, 16):
        raise FormatError("a span needs a trace id of 16 bytes and a span id of 8, not all zero")
    if not 0 < began <= _LAST_NANO or not 0 <= ended <= _LAST_NANO:
        raise FormatError("a span needs the time of its start")
    resource = data.get("resource") or {}
    # The telemetry store groups by instance; most SDKs set only the service's name.
    instance = resource.get("service.instance.id") or resource.get("service.name")
    # What a span says about a call to a model or a tool, under one name for each fact, whatever its instrumentation.
    facts = gen_ai.summary(data.get("attributes") or {})
    data = {**data, "gen_ai": facts} if facts else data
    body = {key: value for key, value in data.items() if value not in (None, "", {}, [])}
    return TelemetryEvent(
        SPAN,
        to_text(began // 1000),
        body,
        instance_id=None if instance is None else str(instance),
        span_id=span_id,
        trace_id=trace_id,
    )


def _is_id(text: str, size: int) -> bool:
    return len(text) == size and text.strip("0") != "" and all(sign in "0123456789abcdef" for sign in text)


def plain(value: Any, depth: int = 0) -> Any:
    """Return a value of an attribute as JSON can hold it."""
    # Before int and bool checks: JSON has no NaN and no infinity.
    if isinstance(value, float):
        return value if isfinite(value) else str(value)
    if value is None or isinstance(value, bool | int | str):
        return value
    if depth > _DEEP:
        raise FormatError(f"values are nested deeper than {_DEEP}")
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Mapping):
        return {str(key): plain(each, depth + 1) for key, each in value.items()}
    if isinstance(value, Sequence):
        return [plain(each, depth + 1) for each in value]
    return str(value)


def word(words: Sequence[str], number: Any) -> str:
    """Return the word of an enum's number; of one that is not known, the number."""
    in_range = isinstance(number, int) and 0 <= number < len(words)
    return words[number] if in_range else str(number)


# --- a request in OTLP's JSON shape ------------------------------------------------------------------------------


def read(request: Any) -> tuple[list[TelemetryEvent], list[str]]:
    """Return the events of a request, and why some of its spans are none."""
    events = []
    refused = []
    for resource, scope, span in _spans(request):
        try:
            events.append(_event(resource, scope, span))
        except FormatError as error:
            refused.append(str(error))
    return events, refused


def _spans(request: Any) -> Iterator[tuple[dict[str, Any], dict[str, Any], Any]]:
    for group in _list(_map(request), "resourceSpans"):
        resource = attributes(_map(_map(group).get("resource") or {}))
        for part in _list(_map(group), "scopeSpans"):
            scope_fields = _map(_map(part).get("scope") or {})
            scope = {key: scope_fields[key] for key in ("name", "version") if scope_fields.get(key)}
            yield from ((resource, scope, span) for span in _list(_map(part), "spans"))


def _event(resource: dict[str, Any], scope: dict[str, Any], message: Any) -> TelemetryEvent:
    span = _map(message)
    status = _map(span.get("status") or {})
    code = word(STATUSES, status.get("code", 0))
    data = {
        "name": str(span.get("name", "")),
        "kind": word(KINDS, span.get("kind", 0)),
        "start_unix_nano": _whole(span.get("startTimeUnixNano", 0)),
        "end_unix_nano": _whole(span.get("endTimeUnixNano", 0)),
        # All zeros means no parent.
        "parent_span_id": str(span.get("parentSpanId", "")).lower().strip("0") and str(span["parentSpanId"]).lower(),
        "trace_state": span.get("traceState"),
        "status": {} if code == "UNSET" else {"code": code, "message": str(status.get("message", ""))},
        "attributes": attributes(span),
        "events": [_happening(_map(each)) for each in _list(span, "events")],
        "links": [_link(_map(each)) for each in _list(span, "links")],
        "resource": resource,
        "scope": scope,
    }
    return event(str(span.get("traceId", "")).lower(), str(span.get("spanId", "")).lower(), data)


def _happening(message: dict[str, Any]) -> dict[str, Any]:
    at = _whole(message.get("timeUnixNano", 0))
    return {"name": str(message.get("name", "")), "time_unix_nano": at, "attributes": attributes(message)}


def _link(message: dict[str, Any]) -> dict[str, Any]:
    ids = {"trace_id": str(message.get("traceId", "")).lower(), "span_id": str(message.get("spanId", "")).lower()}
    return {**ids, "attributes": attributes(message)}


def attributes(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes of a message, by key."""
    pairs = [_map(each) for each in _list(message, "attributes")]
    return {str(pair.get("key", "")): _any(_map(pair.get("value") or {})) for pair in pairs}


def _any(value: dict[str, Any], depth: int = 0) -> Any:
    if depth > _DEEP:
        raise FormatError(f"values are nested deeper than {_DEEP}")
    if "intValue" in value:
        return _whole(value["intValue"])
    if "arrayValue" in value:
        return [_any(_map(each), depth + 1) for each in _list(_map(value["arrayValue"]), "values")]
    if "kvlistValue" in value:
        pairs = [_map(each) for each in _list(_map(value["kvlistValue"]), "values")]
        return {str(pair.get("key", "")): _any(_map(pair.get("value") or {}), depth + 1) for pair in pairs}
    for key in ("stringValue", "boolValue", "doubleValue", "bytesValue"):
        if key in value:
            return plain(value[key])
    return None


def _map(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise FormatError(f"OTLP: an object is expected, not {type(value).__name__}")
    return value


def _list(message: Mapping[str, Any], key: str) -> list[Any]:
    value = message.get(key) or []
    if not isinstance(value, list):
        raise FormatError(f"OTLP: {key} is a list, not {type(value).__name__}")
    return value


def _whole(value: Any) -> int:
    try:
        return int(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise FormatError(f"OTLP: a whole number is expected, not {str(value)[:40]!r}") from error
