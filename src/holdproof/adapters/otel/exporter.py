"""Spans of the OpenTelemetry SDK into the telemetry store."""

import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from holdproof import sync
from holdproof.adapters.otel import spans
from holdproof.client import Holdproof
from holdproof.errors import HoldproofError
from holdproof.model.storage import TelemetryEvent

_log = logging.getLogger(__name__)


class HoldproofSpanExporter(SpanExporter):
    """Keeps spans, each an event; give it to a `BatchSpanProcessor`. What it returns as success is durable."""

    def __init__(self, store: sync.Holdproof | Holdproof) -> None:
        self._store = sync.Holdproof(store.core)
        # A processor may export on the thread of a running loop, which the sync client must not block: ours has none.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="holdproof-otel")
        self._over = False

    def export(self, spans: Sequence[Any]) -> SpanExportResult:
        """Keep spans, all or none; a failure is logged and told, as the SDK wants it, and not raised."""
        if self._over:
            return SpanExportResult.FAILURE
        try:
            self._thread.submit(self._store.telemetry.append, [event_of(span) for span in spans]).result()
        # RuntimeError is what the executor raises after shutdown.
        except (HoldproofError, RuntimeError) as error:
            _log.warning("%d spans were not kept: %s", len(spans), error)
            return SpanExportResult.FAILURE
        return SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        """Take no more spans; the store stays open."""
        self._over = True
        self._thread.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Nothing waits here."""
        del timeout_millis
        return True


def event_of(span: Any) -> TelemetryEvent:
    """Return the event of a span that has ended."""
    context = span.get_span_context()
    scope = span.instrumentation_scope
    status = span.status
    data = {
        "name": span.name,
        "kind": span.kind.name,
        "start_unix_nano": span.start_time or 0,
        "end_unix_nano": span.end_time or 0,
        "parent_span_id": None if span.parent is None else f"{span.parent.span_id:016x}",
        "trace_state": context.trace_state.to_header() if context.trace_state else None,
        "status": {"code": status.status_code.name, "message": status.description or ""}
        if status.status_code.name != "UNSET"
        else {},
        "attributes": _plain(span.attributes),
        "events": [
            {"name": each.name, "time_unix_nano": each.timestamp, "attributes": _plain(each.attributes)}
            for each in span.events
        ],
        "links": [
            {
                "trace_id": f"{each.context.trace_id:032x}",
                "span_id": f"{each.context.span_id:016x}",
                "attributes": _plain(each.attributes),
            }
            for each in span.links
        ],
        "resource": _plain(span.resource.attributes),
        "scope": {} if scope is None else {"name": scope.name, "version": scope.version or ""},
    }
    return spans.event(f"{context.trace_id:032x}", f"{context.span_id:016x}", data)


def _plain(attributes: Mapping[str, Any] | None) -> dict[str, Any]:
    return {key: spans.plain(value) for key, value in (attributes or {}).items()}
