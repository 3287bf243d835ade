"""OpenTelemetry on a store: store an agent's spans and those of the store's own operations, and query them.

python examples/otel_spans.py [FOLDER]
"""

import sys
import tempfile

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

import holdproof.sync
from holdproof.adapters.otel import HoldproofSpanExporter, instrument


def main(folder: str) -> None:
    """Trace a turn of an agent, and read it back."""
    with holdproof.sync.open(folder) as store:
        provider = TracerProvider(resource=Resource({"service.name": "shop"}))
        provider.add_span_processor(BatchSpanProcessor(HoldproofSpanExporter(store)))
        instrument(store, tracer_provider=provider)

        with provider.get_tracer("agents").start_as_current_span("turn", attributes={"model": "scripted"}) as turn:
            store.transcripts.append("chat/ada", [{"role": "user", "content": "Hello"}])
        provider.shutdown()

        spans = store.telemetry.query(trace_id=f"{turn.get_span_context().trace_id:032x}")
        for event in sorted(spans, key=lambda event: event.timestamp):
            took = event.data["end_unix_nano"] - event.data["start_unix_nano"]
            print(f"{event.timestamp}  {event.data['name']:<30} {took / 1e6:.3f} ms")
        assert {event.data["name"] for event in spans} == {"turn", "holdproof.transcripts.append"}


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        main(sys.argv[1] if len(sys.argv) > 1 else scratch)
