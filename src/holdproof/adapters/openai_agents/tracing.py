"""The `TracingProcessor` of the OpenAI Agents SDK: spans of runs into the telemetry store.

A span has the names of OpenTelemetry's conventions for generative AI, so that `store.telemetry.usage` and the console's
page of cost count it by agent, model and tool.

Rules:
- A run never waits for the store and never fails because of it: spans are written by a thread, many at a time.
- What `force_flush` or `shutdown` waited for is durable. A span that could not be written is counted (`lost`), with a
  warning.
- What was said and what tools were given is left out unless `content=True`; the SDK's own setting for sensitive data
  decides before that.
"""

import json
import logging
import threading
from collections import deque
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from typing import Any, Final

from agents.tracing import TracingProcessor

from holdproof.adapters.otel import spans
from holdproof.adapters.shared_store import SharedStore, Where
from holdproof.errors import HoldproofError, NamespaceError
from holdproof.model.storage import TelemetryEvent
from holdproof.model.times import to_micros

_log = logging.getLogger(__name__)
_MOST_WAITING: Final = 10_000
_SCOPE: Final = {"name": "openai-agents"}
_OPERATIONS: Final = {
    "agent": "invoke_agent",
    "function": "execute_tool",
    "generation": "chat",
    "response": "chat",
    "transcription": "transcription",
    "speech": "speech",
}
_PARAMETERS: Final = ("temperature", "top_p", "max_tokens")


class HoldproofTracingProcessor(TracingProcessor):
    """Spans into a store: a folder, a URL, `:memory:`, one that is open, or where the environment says.

    `add_trace_processor(HoldproofTracingProcessor("./store"))` is beside the SDK's own, which sends traces to OpenAI;
    `set_trace_processors([…])` is instead of it.
    """

    def __init__(self, where: Where = None, *, content: bool = False, service: str = "openai-agents") -> None:
        self._shared = SharedStore(where)
        if self._shared.ns is not None:
            raise NamespaceError(
                f"telemetry has no namespaces, and this store is open for {self._shared.ns}; open it without one",
                ns=self._shared.ns,
            )
        self.lost = 0
        """How many spans could not be written."""
        self._content = content
        self._service = service
        self._lock = threading.Lock()
        self._waiting: deque[TelemetryEvent] = deque()
        self._traces: dict[str, dict[str, Any]] = {}
        self._agents: dict[str, str] = {}
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="holdproof-traces")
        self._is_over = False

    # --- what the SDK calls ------------------------------------------------------------------------------------------

    def on_trace_start(self, trace: Any) -> None:
        """Note what all spans of a trace have in common."""
        group = getattr(trace, "group_id", None)
        facts = {"openai.workflow.name": trace.name, "gen_ai.conversation.id": group}
        with self._lock:
            self._traces[trace.trace_id] = {name: value for name, value in facts.items() if value}

    def on_trace_end(self, trace: Any) -> None:
        """Forget what its spans had in common."""
        with self._lock:
            self._traces.pop(trace.trace_id, None)

    def on_span_start(self, span: Any) -> None:
        """Note which agent a span belongs to: its own, or that of the span around it."""
        is_agent = span.span_data.type == "agent"
        with self._lock:
            agent = span.span_data.name if is_agent else self._agents.get(span.parent_id or "")
            if agent:
                self._agents[span.span_id] = agent

    def on_span_end(self, span: Any) -> None:
        """Hand a span to the thread that writes."""
        with self._lock:
            shared = dict(self._traces.get(span.trace_id, {}))
            agent = self._agents.pop(span.span_id, None)
        if agent:
            shared["gen_ai.agent.name"] = agent
        try:
            event = self._event(span, shared)
        except (HoldproofError, ValueError) as error:
            self._lose(1, error)
            return
        with self._lock:
            if self._is_over or len(self._waiting) >= _MOST_WAITING:
                self.lost += 1
                return
            self._waiting.append(event)
            # One that waits is written with all that came meanwhile.
            if len(self._waiting) == 1:
                self._writer.submit(self._write)

    def force_flush(self) -> None:
        """Wait until every span that ended is written, or lost."""
        with self._lock:
            written = None if self._is_over else self._writer.submit(self._write)
        if written is not None:
            written.result()

    def shutdown(self) -> None:
        """Write what waits and take no more spans; a store that was passed in stays open."""
        self.force_flush()
        with self._lock:
            self._is_over = True
        self._writer.shutdown()
        self._shared.close()

    # --- writing -----------------------------------------------------------------------------------------------------

    def _write(self) -> None:
        with self._lock:
            events = list(self._waiting)
            self._waiting.clear()
        if not events:
            return
        try:
            self._shared.sync_store().telemetry.append(events)
        except HoldproofError as error:
            self._lose(len(events), error)

    def _lose(self, count: int, error: Exception) -> None:
        with self._lock:
            self.lost += count
        _log.warning("%d spans were not kept: %s", count, error)

    def _event(self, span: Any, shared: Mapping[str, Any]) -> TelemetryEvent:
        facts = {**shared, **_facts(span.span_data)}
        if self._content:
            facts |= _content(span.span_data)
        error = span.error
        data = {
            "name": _name(span.span_data),
            "kind": "CLIENT" if span.span_data.type in ("generation", "response") else "INTERNAL",
            "start_unix_nano": to_micros(span.started_at) * 1000,
            "end_unix_nano": to_micros(span.ended_at) * 1000,
            "parent_span_id": _id(span.parent_id, 16) if span.parent_id else None,
            "status": {"code": "ERROR", "message": str(error.get("message", ""))} if error else {},
            "attributes": {name: spans.plain(value) for name, value in facts.items()},
            "resource": {"service.name": self._service},
            "scope": _SCOPE,
        }
        return spans.event(_id(span.trace_id, 32), _id(span.span_id, 16), data)


# --- spans ---------------------------------------------------------------------------------------------------------


def _id(text: str, size: int) -> str:
    """Return an id as OpenTelemetry has them, always the same for one of the SDK's."""
    digits = text.rpartition("_")[2]
    if len(digits) == size and all(sign in "0123456789abcdef" for sign in digits):
        return digits
    return sha256(text.encode()).hexdigest()[:size]


def _name(data: Any) -> str:
    operation = _OPERATIONS.get(data.type, data.type)
    subject = getattr(data, "name", None) or _model(data)
    return f"{operation} {subject}" if subject and subject != operation else operation


def _model(data: Any) -> str | None:
    model = getattr(data, "model", None) or getattr(getattr(data, "response", None), "model", None)
    return None if model is None else str(model)


def _facts(data: Any) -> dict[str, Any]:
    """Return what a span says besides content, by the names of OpenTelemetry's conventions."""
    facts: dict[str, Any] = {"openai.span.type": data.type, "gen_ai.operation.name": _OPERATIONS.get(data.type)}
    if data.type == "agent":
        facts |= {"openai.agent.tools": data.tools, "openai.agent.handoffs": data.handoffs}
    elif data.type == "function":
        facts["gen_ai.tool.name"] = data.name
    elif data.type == "generation":
        parameters = data.model_config or {}
        facts["gen_ai.request.model"] = data.model
        facts |= {f"gen_ai.request.{name}": parameters.get(name) for name in _PARAMETERS}
        facts |= _usage(data.usage)
    elif data.type == "response":
        response = data.response
        facts["gen_ai.response.model"] = _model(data)
        facts["gen_ai.response.id"] = getattr(response, "id", None)
        facts |= _usage(data.usage or getattr(response, "usage", None))
    elif data.type == "handoff":
        facts |= {"openai.handoff.from": data.from_agent, "openai.handoff.to": data.to_agent}
    elif data.type == "guardrail":
        facts |= {"openai.guardrail.name": data.name, "openai.guardrail.triggered": data.triggered}
    return {name: value for name, value in facts.items() if value is not None}


def _usage(usage: Any) -> dict[str, Any]:
    """Return tokens; the SDK has them as a mapping or as an object, and by two pairs of names."""
    tokens = usage if isinstance(usage, Mapping) else {}
    if usage is not None and not tokens:
        tokens = {name: getattr(usage, name, None) for name in ("input_tokens", "output_tokens")}
    return {
        "gen_ai.usage.input_tokens": tokens.get("input_tokens", tokens.get("prompt_tokens")),
        "gen_ai.usage.output_tokens": tokens.get("output_tokens", tokens.get("completion_tokens")),
    }


def _content(data: Any) -> dict[str, Any]:
    """Return what was said, as JSON: what a model or a tool was given, and what came back."""
    inputs = getattr(data, "input", None)
    answer = getattr(data, "output", None)
    if data.type == "response" and data.response is not None:
        answer = [item.model_dump(mode="json", exclude_unset=True) for item in data.response.output]
    names = ("gen_ai.tool.call.arguments", "gen_ai.tool.call.result")
    if data.type != "function":
        names = ("gen_ai.input.messages", "gen_ai.output.messages")
    return {name: _text(value) for name, value in zip(names, (inputs, answer), strict=True) if value is not None}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str)
