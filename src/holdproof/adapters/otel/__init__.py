"""OpenTelemetry: spans into the telemetry store, our own operations as spans and metrics, and OTLP as pure functions.

    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(HoldproofSpanExporter(store)))
    instrument(store, tracer_provider=provider)

`receive`, which decodes what instrumented programs send, needs nothing installed; the others need `holdproof[otel]`.
"""

from typing import TYPE_CHECKING, Any

from holdproof.adapters.otel.receiver import Received, receive
from holdproof.errors import MissingExtraError

if TYPE_CHECKING:
    from holdproof.adapters.otel.exporter import HoldproofSpanExporter
    from holdproof.adapters.otel.tracing import instrument, uninstrument

__all__ = ["HoldproofSpanExporter", "Received", "instrument", "receive", "uninstrument"]


def __getattr__(name: str) -> Any:
    """Return what needs the SDK is imported when it is asked for."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from holdproof.adapters.otel import exporter, tracing  # noqa: PLC0415 (an optional extra)
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.partition(".")[0] == "opentelemetry":
            raise MissingExtraError("this needs the SDK: pip install 'holdproof[otel]'") from error
        raise
    return getattr(exporter, name, None) or getattr(tracing, name)
