"""The semantic conventions of OpenTelemetry for generative AI: spans of our model calls, and other people's spans read.

The conventions are still in development (November 2026); older names of the same facts are read too.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from holdproof.adapters.instrument.wire import CapturedCall, ModelAnswer

try:
    from opentelemetry import trace
except ImportError:  # the extra otel
    trace = None

_SCOPE: Final = "holdproof.instrument"
_PREFIX: Final = "gen_ai."
_PARAMETERS: Final = {
    "temperature": "temperature",
    "top_p": "top_p",
    "max_tokens": "max_tokens",
    "max_completion_tokens": "max_tokens",
    "max_output_tokens": "max_tokens",
    "seed": "seed",
}
# What a fact is called, newest first.
_FACTS: Final = {
    "operation": ("operation.name",),
    "provider": ("provider.name", "system"),
    "model": ("response.model", "request.model"),
    "input_tokens": ("usage.input_tokens", "usage.prompt_tokens"),
    "output_tokens": ("usage.output_tokens", "usage.completion_tokens"),
    "finish": ("response.finish_reasons",),
    "agent": ("agent.name", "agent.id"),
    "tool": ("tool.name",),
    "tool_call": ("tool.call.id",),
    "conversation": ("conversation.id",),
}


class SpanOfCall:
    """The span of a call to a model; nothing where OpenTelemetry is not installed."""

    def __init__(self, call: "CapturedCall", tracer_provider: Any, attributes: Mapping[str, Any]) -> None:
        """Begin the span."""
        self._span: Any = None
        if trace is None:
            return
        facts: dict[str, Any] = {
            "gen_ai.operation.name": call.operation,
            "gen_ai.provider.name": call.provider,
            "gen_ai.request.model": call.model,
        }
        for name, meaning in _PARAMETERS.items():
            value = call.parameters.get(name)
            if isinstance(value, int | float) and not isinstance(value, bool):
                facts[f"gen_ai.request.{meaning}"] = value
        tracer = trace.get_tracer(_SCOPE, tracer_provider=tracer_provider)
        name = f"{call.operation} {call.model}"
        self._span = tracer.start_span(name, kind=trace.SpanKind.CLIENT, attributes={**facts, **attributes})

    def end(self, answer: "ModelAnswer | None", error: str | None) -> None:
        """End the span with what the model answered; `error` says what went wrong."""
        if self._span is None:
            return
        if answer is not None:
            facts = {
                "gen_ai.response.model": answer.model,
                "gen_ai.usage.input_tokens": answer.input_tokens,
                "gen_ai.usage.output_tokens": answer.output_tokens,
                "gen_ai.response.finish_reasons": answer.finish or None,
            }
            self._span.set_attributes({name: value for name, value in facts.items() if value is not None})
        if error is not None:
            self._span.set_attribute("error.type", error)
            self._span.set_status(trace.Status(trace.StatusCode.ERROR, error))
        self._span.end()


def summary(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a span says about a call to a model, a tool or an agent, under one name for each fact.

    Empty for spans about anything else.
    """
    if not any(name.startswith(_PREFIX) for name in attributes):
        return {}
    facts: dict[str, Any] = {}
    for fact, names in _FACTS.items():
        value = next((attributes[_PREFIX + name] for name in names if _PREFIX + name in attributes), None)
        if value is not None:
            facts[fact] = value
    return facts
