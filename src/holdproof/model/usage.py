"""What agents used: tokens, money and time, as telemetry says it."""

from dataclasses import dataclass

from holdproof.model.value import Value


@dataclass(frozen=True, slots=True)
class UsageGroup(Value):
    """The events that share a model, an agent, a tool, a type, or a stretch of time."""

    name: str
    events: int
    failed: int
    input_tokens: int
    output_tokens: int
    cost: float
    """In the currency that the events say, which is US dollars by the convention of OpenTelemetry."""
    p50_ms: float | None
    """Half of the events that say how long they took were faster; None where none says it."""
    p95_ms: float | None

    @property
    def tokens(self) -> int:
        """All tokens."""
        return self.input_tokens + self.output_tokens


@dataclass(frozen=True, slots=True)
class Usage(Value):
    """What the newest events of a stretch of time used, together and by group."""

    total: UsageGroup
    groups: tuple[UsageGroup, ...]
    """The largest first: by cost, then by tokens, then by events."""
    buckets: tuple[UsageGroup, ...]
    """Stretches of time, named by the moment they begin."""
    bucket_s: int
    exact: bool
    """Whether every event of that time was read; if not, the newest were."""
    since: str | None
    """The time of the oldest event that was read."""
