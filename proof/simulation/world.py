"""The world outside: what scripts really did to it, and what they believe of it.

A step's function and an idempotent call are effects here: each execution has a number, so that what the store gives
back can be compared with what happened. Rules:
- A step is executed as often as it was begun, at most: once, and once more for each time that somebody allowed it.
- A key is executed once until it expires, and once more for each failure and each time that an operator freed it.
"""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any

StepKey = tuple[str, str, int]


class TroubleError(Exception):
    """What goes wrong in the world: a function that fails, as it was meant to."""


@dataclass(slots=True)
class Called:
    """What became of a key outside: how often it may be executed, and what was given."""

    allowed: int = 1
    executions: list[int] = field(default_factory=list)
    settled: list[Any] = field(default_factory=list)
    expires: int = 0


@dataclass(slots=True)
class World:
    """What happened, in order; `tell` is told of what should not have happened."""

    tell: Callable[..., None]
    now: Callable[[], int]
    begun: defaultdict[StepKey, int] = field(default_factory=lambda: defaultdict(int))
    """How often each step was begun, as the rules saw it in the store."""
    done: defaultdict[StepKey, list[int]] = field(default_factory=lambda: defaultdict(list))
    order: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    """What was undone in each flow, in order."""
    keys: defaultdict[str, Called] = field(default_factory=lambda: defaultdict(Called))
    spent: dict[str, dict[str, int]] = field(default_factory=dict)
    """What agents were told that they have spent, by agent and purpose."""
    submitted: set[str] = field(default_factory=set)
    """Flows whose opening was acknowledged."""
    mended: set[str] = field(default_factory=set)
    """Flows that an operator undid, or called clean."""
    _numbers: "count[int]" = field(default_factory=lambda: count(1))

    def act(self, flow_id: str, name: str, n: int, *, fails: bool = False) -> int:
        """Execute a step; the number of this execution."""
        number = next(self._numbers)
        key = (flow_id, name, n)
        self.done[key].append(number)
        if len(self.done[key]) > self.begun[key]:
            self.tell("a step was executed more often than it was begun", *key)
        if name.startswith("undo "):
            self.order[flow_id].append(f"{name.removeprefix('undo ')} {n}")
        if fails:
            raise TroubleError(f"execution {number} failed")
        return number

    def call(self, key: str, *, ttl_s: float, fails: bool = False, replay: bool = False) -> int:
        """Execute an idempotent call; the number of this execution. A failure that is replayed is an outcome too."""
        known, number = self.keys[key], next(self._numbers)
        if known.expires and known.expires <= self.now():
            known.allowed += 1
        known.executions.append(number)
        if len(known.executions) > known.allowed:
            self.tell("a key was executed more often than allowed", key, known)
        if fails and not replay:
            known.allowed += 1
        else:
            known.expires = self.now() + round(ttl_s * 1e6)
        if fails:
            raise TroubleError(f"execution {number} failed")
        return number
