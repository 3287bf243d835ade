"""How much happened, and how fast people answered."""

from dataclasses import dataclass

from holdproof.model.value import Value


@dataclass(frozen=True, slots=True)
class ActivityCount(Value):
    """What happened in an hour (`2026-01-31T12`), on a day (`2026-01-31`) or in a range, of one agent or of all."""

    bucket: str
    agent_id: str
    """Empty where all agents are counted together."""
    started: int
    completed: int
    failed: int
    cancelled: int
    escalations: int
    answers: int
    expired: int
    """Escalations that nobody answered before their deadline."""

    @property
    def ended(self) -> int:
        """How many flows ended, in whichever way."""
        return self.completed + self.failed + self.cancelled


@dataclass(frozen=True, slots=True)
class AnswerTimes(Value):
    """How fast people answered escalations: of the newest of a range."""

    answers: int
    median_s: float | None
    slowest_s: float | None
