"""Goals: a ratio that must be reached, or is aimed at."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from bench.measurement import Result, Spread


@dataclass(frozen=True)
class Goal:
    """`contestant` of `race` shall be at least `at_least` times as fast as `over`; alone, do it so often a second."""

    text: str
    race: str
    contestant: str
    over: str
    at_least: float
    aim: bool = False


@dataclass(frozen=True)
class Verdict:
    """A goal and the ratio that was measured; None where one of the two did not run."""

    goal: Goal
    got: float | None

    @property
    def met(self) -> bool | None:
        """Whether the goal is reached; None where it was not measured."""
        return None if self.got is None else self.got >= self.goal.at_least

    def to_dict(self) -> dict[str, Any]:
        """The verdict as JSON prints it."""
        kind = "aim" if self.goal.aim else "goal"
        return {
            "text": self.goal.text,
            "race": self.goal.race,
            "contestant": self.goal.contestant,
            "over": self.goal.over,
            "kind": kind,
            "required": self.goal.at_least,
            "got": self.got,
            "met": self.met,
        }


def judge(goals: Iterable[Goal], results: Iterable[Result]) -> list[Verdict]:
    """Every goal with the ratio its contestants reached."""
    measured = {(result.race, result.label): result for result in results}
    verdicts = []
    for goal in goals:
        ours, peer = measured.get((goal.race, goal.contestant)), measured.get((goal.race, goal.over))
        alone = Spread.of(ours.rates).median if ours and not goal.over else None
        verdicts.append(Verdict(goal, ours.over(peer).median if ours and peer else alone))
    return verdicts
