"""Schedules: when registered functions are run by the clock, and what firing them gives."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from holdproof.model.value import Value

CatchUp = Literal["none", "one", "all"]
CATCH_UPS: Final = frozenset({"none", "one", "all"})


# Without slots: registered functions derive from it, and have attributes of their own.
@dataclass(frozen=True)
class FunctionRef(Value):
    """A registered function by name and version, and the agent that it is registered for, if for one."""

    name: str
    version: str
    agent_id: str | None = None

    def check_arguments(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Refuse arguments that do not fit the function; only the function itself knows."""


@dataclass(frozen=True, slots=True)
class Schedule(Value):
    """A function that is run by the clock."""

    schedule_id: str
    name: str
    function: str
    """The name of the registered function."""
    function_version: str
    arguments: Any
    """`{"args": […], "kwargs": {…}}`, as tagged JSON."""
    instant_as: str | None
    """The keyword by which the function gets the instant that it is run for; None where it does not."""
    agent_id: str
    queue: str
    cron: str
    timezone: str
    catch_up: str
    paused: bool
    version: int
    """Grows with each change of the schedule; firing it is no change."""
    fired_until: str
    """The last instant that was decided on."""
    next_at: str
    """The next instant; in the past where nobody has fired the schedule, or where that failed."""
    created_at: str
    updated_at: str
    ns: str


@dataclass(frozen=True, slots=True)
class ScheduledFlow(Value):
    """A flow that was enqueued for an instant of a schedule."""

    schedule: str
    instant: str
    flow_id: str


@dataclass(frozen=True, slots=True)
class MissedInstants(Value):
    """Instants of a schedule from `since` on and before `until` that passed unfired, and are not made up for."""

    schedule: str
    since: str
    until: str


@dataclass(frozen=True, slots=True)
class FiringFailure(Value):
    """A schedule that could not be fired: the code and message of the error."""

    schedule: str
    code: str
    error: str


@dataclass(frozen=True, slots=True)
class Firing(Value):
    """What firing every due schedule gave."""

    flows: tuple[ScheduledFlow, ...]
    missed: tuple[MissedInstants, ...]
    failures: tuple[FiringFailure, ...]
    next_at: str | None
    """When to fire again: now where instants are still to be made up for; None where no schedule is active."""


@dataclass(frozen=True, slots=True)
class Backfill(Value):
    """The flows that were enqueued for instants of the past, and how many instants had their flow already."""

    flows: tuple[ScheduledFlow, ...]
    existing: int
