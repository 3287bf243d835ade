"""Escalations that are alike: same agent, same kind of request, other numbers; pure."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Final

from holdproof.model.coordination import Escalation
from holdproof.model.times import to_micros

_NUMBER: Final = re.compile(r"[\d.,:]*\d")
_LONGEST: Final = 500


def shape(escalation: Escalation) -> tuple[str, str, str, str, str]:
    """Return what alike escalations have in common: who asks, how grave it is, and the words without their numbers."""
    reason = _NUMBER.sub("#", escalation.reason[:_LONGEST])
    return escalation.agent_id, escalation.kind, escalation.impact, reason, _form(escalation.proposal)


def _form(value: Any) -> str:
    if isinstance(value, dict):
        return ",".join(sorted(map(str, value)))
    return type(value).__name__


def alike(one: Escalation, others: Iterable[Escalation]) -> list[Escalation]:
    """Return those of the others that are like this one."""
    pattern = shape(one)
    return [each for each in others if each.id != one.id and shape(each) == pattern]


@dataclass(frozen=True, slots=True)
class PastOutcomes:
    """How similar escalations ended before."""

    total: int
    approved: int
    changed: int
    expired: int
    median_s: float | None
    """How long people took to answer; None where nobody did."""


def history(past: Sequence[Escalation]) -> PastOutcomes:
    """Return how escalations that ended turned out."""
    ended = [each for each in past if each.status != "PENDING"]
    by_people = [each for each in ended if each.resolved_by != "deadline" and each.resolved_at]
    waits = [(to_micros(each.resolved_at or each.created_at) - to_micros(each.created_at)) / 1e6 for each in by_people]
    return PastOutcomes(
        len(ended),
        sum(each.outcome == "approved as proposed" for each in ended),
        sum(each.outcome == "approved with changes" for each in ended),
        sum(each.outcome == "expired" for each in ended),
        median(waits) if waits else None,
    )
