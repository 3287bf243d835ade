"""OpenTelemetry on a store: spans are kept, and our own operations are spans and metrics, on every backend."""

import asyncio
from typing import Any

import pytest

from holdproof import errors, sync
from holdproof.client import Holdproof
from tests.conformance.decisions import InMemory, OnPostgres, OnSqlite, OnStore

trace: Any = pytest.importorskip("opentelemetry.sdk.trace", reason="not installed: pip install opentelemetry-sdk")
export: Any = pytest.importorskip("opentelemetry.sdk.trace.export")
kept: Any = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter")
metrics: Any = pytest.importorskip("opentelemetry.sdk.metrics")
reading: Any = pytest.importorskip("opentelemetry.sdk.metrics.export")
resources: Any = pytest.importorskip("opentelemetry.sdk.resources")
api: Any = pytest.importorskip("opentelemetry.trace")
adapter: Any = pytest.importorskip("holdproof.adapters.otel")


def provider(exporter: Any) -> Any:
    made = trace.TracerProvider(resource=resources.Resource({"service.name": "shop", "odd": (1.5, 2.5)}))
    made.add_span_processor(export.SimpleSpanProcessor(exporter))
    return made


class Otel(OnStore):
    def test_spans_are_kept_as_they_ended(self, live: sync.Holdproof) -> None:
        tracer = provider(adapter.HoldproofSpanExporter(live)).get_tracer("agents", "1.0")
        with tracer.start_as_current_span("turn", kind=api.SpanKind.SERVER) as turn:
            with pytest.raises(ZeroDivisionError), tracer.start_as_current_span("tool", attributes={"n": 1}) as tool:
                1 / 0  # noqa: B018
            turn.add_event("said", {"words": ["a", "b"]})
        trace_id, span_id = (f"{turn.get_span_context().trace_id:032x}", f"{turn.get_span_context().span_id:016x}")
        found = {event.data["name"]: event for event in live.telemetry.query(trace_id=trace_id)}
        assert found.keys() == {"turn", "tool"}
        assert found["turn"].data["events"][0]["attributes"] == {"words": ["a", "b"]}
        assert found["turn"].data["kind"] == "SERVER"
        assert found["turn"].instance_id == "shop"
        assert found["turn"].data["resource"]["odd"] == [1.5, 2.5]
        assert found["tool"].data["parent_span_id"] == span_id
        assert found["tool"].data["status"]["code"] == "ERROR"
        assert found["tool"].span_id == f"{tool.get_span_context().span_id:016x}"
        assert found["tool"].data["attributes"] == {"n": 1}

    def test_an_exporter_works_inside_a_running_loop_and_tells_of_failures(self, live: sync.Holdproof) -> None:
        exporter = adapter.HoldproofSpanExporter(live)

        async def work() -> None:
            with provider(exporter).get_tracer("agents").start_as_current_span("turn"):
                pass

        asyncio.run(work())
        assert len(live.telemetry.query(event_type="span")) == 1
        span = trace.ReadableSpan(
            "no ids", context=api.SpanContext(0, 0, is_remote=False), resource=resources.Resource({})
        )
        assert exporter.export([span]) is export.SpanExportResult.FAILURE
        exporter.shutdown()
        assert exporter.export([]) is export.SpanExportResult.FAILURE
        assert exporter.force_flush()

    def test_operations_are_spans_and_metrics_with_the_code_of_what_was_refused(self, live: sync.Holdproof) -> None:
        memory, reader = kept.InMemorySpanExporter(), reading.InMemoryMetricReader()
        meters = metrics.MeterProvider(metric_readers=[reader])
        live.transcripts.append("before", [1])
        adapter.instrument(live, tracer_provider=provider(memory), meter_provider=meters)
        live.transcripts.append("chat", [1])
        with pytest.raises(errors.NotFoundError):
            live.transcripts.get("nothing")
        adapter.uninstrument(live)
        live.transcripts.append("after", [1])
        spans = memory.get_finished_spans()
        assert [span.name for span in spans] == ["holdproof.transcripts.append", "holdproof.transcripts.get"]
        assert [span.status.status_code.name for span in spans] == ["UNSET", "ERROR"]
        assert spans[1].attributes["error.type"] == "not_found"
        [scope] = reader.get_metrics_data().resource_metrics[0].scope_metrics
        counted = {metric.name: metric.data.data_points[0] for metric in scope.metrics if metric.data.data_points}
        assert counted.keys() == {"holdproof.transcripts.append", "holdproof.transcripts.get"}
        assert counted["holdproof.transcripts.get"].attributes == {"error.type": "not_found"}

    def test_awaited_operations_end_when_they_end(self, live: sync.Holdproof) -> None:
        memory = kept.InMemorySpanExporter()

        async def work() -> None:
            face = Holdproof(live.core)
            adapter.instrument(face, tracer_provider=provider(memory), meter_provider=metrics.MeterProvider())
            await face.transcripts.append("chat", [1])
            assert await face.idempotency.once("key", 1, lambda: 5) == 5
            with pytest.raises(errors.NotFoundError):
                await face.transcripts.get("nothing")
            lasting = asyncio.ensure_future(face.locks.acquire("nobody", {"r": 1}))
            with pytest.raises(errors.NotFoundError):
                await lasting

        asyncio.run(work())
        told = {span.name: span.status.status_code.name for span in memory.get_finished_spans()}
        assert told == {
            "holdproof.transcripts.append": "UNSET",
            "holdproof.idempotency.once": "UNSET",
            "holdproof.transcripts.get": "ERROR",
            "holdproof.locks.acquire": "ERROR",
        }

    def test_a_store_can_keep_the_spans_of_its_own_operations(self, live: sync.Holdproof) -> None:
        adapter.instrument(live, tracer_provider=provider(adapter.HoldproofSpanExporter(live)))
        live.transcripts.append("chat", [1])
        adapter.uninstrument(live)
        assert [event.data["name"] for event in live.telemetry.query()] == ["holdproof.transcripts.append"]


class TestSqlite(OnSqlite, Otel):
    pass


class TestMemory(InMemory, Otel):
    pass


class TestPostgres(OnPostgres, Otel):
    pass
