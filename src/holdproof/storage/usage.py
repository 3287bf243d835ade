"""Usage: tokens, cost and latency summed over telemetry events, by model, agent, tool or type.

Rules:
- Names are those of OpenTelemetry's conventions for generative AI (`gen_ai.usage.input_tokens` …), and the short ones
  that events without attributes use (`input_tokens`, `cost_usd`, `model`, `agent`).
- At most so many of the newest events are read; the answer says whether these were all.
- Senders write anything: what is no number counts as nothing, and nothing is ever refused here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, Final

from holdproof import validation
from holdproof.model.storage import TelemetryEvent
from holdproof.model.times import to_micros, to_text
from holdproof.model.usage import Usage, UsageGroup

MOST: Final = 3_000
_BUCKETS: Final = 48
_WIDTHS_S: Final = (1, 5, 15, 60, 300, 900, 3_600, 10_800, 21_600, 86_400, 604_800, 2_592_000)
_INPUT: Final = (
    "gen_ai.usage.input_tokens",
    "gen_ai.usage.prompt_tokens",
    "input_tokens",
    "tokens_in",
    "prompt_tokens",
)
_OUTPUT: Final = (
    *("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens", "output_tokens", "tokens_out"),
    "completion_tokens",
)
_TOKENS: Final = ("tokens", "total_tokens", "gen_ai.usage.total_tokens")
_COST: Final = ("gen_ai.usage.cost", "cost_usd", "cost", "usd")
_NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    "model": ("gen_ai.request.model", "gen_ai.response.model", "model"),
    "agent": ("gen_ai.agent.name", "agent", "agent_id"),
    "tool": ("gen_ai.tool.name", "tool", "tool_name"),
    "type": (),
}
BY: Final = frozenset(_NAMES)
_LENGTHS: Final = {"duration_ms": 1.0, "duration_s": 1_000.0, "latency_ms": 1.0, "ms": 1.0}
_FAILED: Final = frozenset({"ERROR", "error", "failed", "STATUS_CODE_ERROR"})


@dataclass(slots=True)
class _Sum:
    """What events used, while they are added up."""

    events: int = 0
    failed: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0
    lengths_ms: list[float] = field(default_factory=list)

    def add(self, facts: Mapping[str, Any]) -> None:
        self.events += 1
        self.failed += _is_failed(facts)
        into = _number(facts, _INPUT)
        out = _number(facts, _OUTPUT)
        self.input_tokens += int(into if into or out else _number(facts, _TOKENS))
        self.output_tokens += int(out)
        self.cost += _number(facts, _COST)
        length = _length_ms(facts)
        if length is not None:
            self.lengths_ms.append(length)

    def named(self, name: str) -> UsageGroup:
        lengths = sorted(self.lengths_ms)
        return UsageGroup(
            name,
            self.events,
            self.failed,
            self.input_tokens,
            self.output_tokens,
            round(self.cost, 6),
            _share(lengths, 0.5),
            _share(lengths, 0.95),
        )


def sum_up(events: Sequence[TelemetryEvent], *, by: str, limit: int) -> Usage:
    """Sum tokens, cost and time of the first `limit` events, the newest first; a further one says there are more."""
    validation.one_of("by", by, BY)
    read = events[:limit]
    moments = [to_micros(each.timestamp) for each in read]
    width_s = _width(moments)
    total = _Sum()
    groups: dict[str, _Sum] = {}
    buckets: dict[int, _Sum] = {start: _Sum() for start in _starts(moments, width_s)}
    for event, moment in zip(read, moments, strict=True):
        facts = _facts(event)
        total.add(facts)
        name = _name(event, facts, by)
        if name:
            groups.setdefault(name, _Sum()).add(facts)
        buckets[moment // (width_s * 1_000_000)].add(facts)
    ranked = sorted(
        (each.named(name) for name, each in groups.items()),
        key=lambda group: (-group.cost, -group.tokens, -group.events, group.name),
    )
    timed = tuple(each.named(to_text(start * width_s * 1_000_000)) for start, each in sorted(buckets.items()))
    oldest = read[-1].timestamp if read else None
    return Usage(total.named("all"), tuple(ranked), timed, width_s, len(events) <= limit, oldest)


def _facts(event: TelemetryEvent) -> dict[str, Any]:
    attributes = event.data.get("attributes")
    return {**event.data, **attributes} if isinstance(attributes, Mapping) else event.data


def _name(event: TelemetryEvent, facts: Mapping[str, Any], by: str) -> str:
    if by == "type":
        return event.event_type
    return next((str(facts[name]) for name in _NAMES[by] if facts.get(name)), "")


def _number(facts: Mapping[str, Any], names: Sequence[str]) -> float:
    for name in names:
        value = facts.get(name)
        # A bool is an int in Python, and no sender means one here.
        if isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value) and value > 0:
            return float(value)
    return 0.0


def _length_ms(facts: Mapping[str, Any]) -> float | None:
    start = facts.get("start_unix_nano")
    end = facts.get("end_unix_nano")
    if isinstance(start, int) and isinstance(end, int) and start <= end:
        return (end - start) / 1e6
    for name, scale in _LENGTHS.items():
        if name in facts:
            return _number(facts, (name,)) * scale
    return None


def _is_failed(facts: Mapping[str, Any]) -> bool:
    status = facts.get("status", "")
    word = status.get("code") if isinstance(status, Mapping) else status
    return bool(facts.get("error")) or (isinstance(word, str) and word in _FAILED)


def _share(lengths: Sequence[float], share: float) -> float | None:
    return round(lengths[min(int(len(lengths) * share), len(lengths) - 1)], 3) if lengths else None


def _width(moments: Sequence[int]) -> int:
    span_s = (max(moments) - min(moments)) / 1_000_000 if moments else 0
    return next((each for each in _WIDTHS_S if span_s / each < _BUCKETS), _WIDTHS_S[-1])


def _starts(moments: Sequence[int], width_s: int) -> range:
    step = width_s * 1_000_000
    return range(min(moments) // step, max(moments) // step + 1) if moments else range(0)
