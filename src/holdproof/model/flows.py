"""Decision flows and the only ways they may go.

CREATED → RUNNING | CANCELLED; RUNNING → WAITING_ESCALATION | COMPLETED | FAILED | CANCELLED | COMPENSATING;
WAITING_ESCALATION → RUNNING | FAILED | CANCELLED; FAILED | CANCELLED → COMPENSATING;
COMPENSATING → COMPENSATED | FAILED. What has no arrow is an end.

DIR has words of its own for the same life (`WORDS`). They are recorded as given; a word that is neither ours nor DIR's
is a label, and moves nothing.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from holdproof.model.value import Value

EDGES: Final[Mapping[str, frozenset[str]]] = {
    "CREATED": frozenset({"RUNNING", "CANCELLED"}),
    "RUNNING": frozenset({"WAITING_ESCALATION", "COMPLETED", "FAILED", "CANCELLED", "COMPENSATING"}),
    "WAITING_ESCALATION": frozenset({"RUNNING", "FAILED", "CANCELLED"}),
    "FAILED": frozenset({"COMPENSATING"}),
    "CANCELLED": frozenset({"COMPENSATING"}),
    "COMPENSATING": frozenset({"COMPENSATED", "FAILED"}),
    "COMPLETED": frozenset(),
    "COMPENSATED": frozenset(),
}
STATUSES: Final = frozenset(EDGES)
TERMINAL: Final = frozenset({"COMPLETED", "FAILED", "CANCELLED", "COMPENSATED"})
OPEN: Final = ("CREATED", "RUNNING", "WAITING_ESCALATION", "COMPENSATING")
"""Where a flow has not come to its end, in the order it gets there."""
UNDOABLE: Final = frozenset({"FAILED", "CANCELLED"})
"""Ends after which what was done may still be undone."""
WORKED_ON: Final = frozenset({"RUNNING", "COMPENSATING"})
"""Where a worker must be alive, else the flow is an orphan."""


DIR_WORDS: Final = {
    **dict.fromkeys(("ACTIVE", "VALIDATING", "ACCEPTED", "EXECUTING"), "RUNNING"),
    **dict.fromkeys(("PARTIAL_SUCCESS_DIRTY", "MAINTENANCE_MODE"), "COMPENSATING"),
    "ESCALATED": "WAITING_ESCALATION",
    "CLOSED": "COMPLETED",
    "ABORTED": "FAILED",
}
WORDS: Final[Mapping[str, str]] = {**DIR_WORDS, **{status: status for status in STATUSES}}
"""The status that a word stands for."""
_ENDS: Final = {("COMPENSATING", "CLOSED"): "COMPENSATED", ("CREATED", "ABORTED"): "CANCELLED"}
"""DIR has two words for an end, we have four."""


def legal(before: str, after: str) -> bool:
    """Whether a flow may go from one status to the other."""
    return after in EDGES[before]


def onward(before: str, word: str) -> str | None:
    """The status that a word leads to from another; None for a label, which leads nowhere."""
    return _ENDS.get((before, word), WORDS.get(word))


def goes(before: str, word: str) -> bool:
    """Whether a word may be said of a flow with that status: a label, a legal edge, or more of the same work."""
    after = onward(before, word)
    return after is None or legal(before, after) or (after == before and after not in TERMINAL)


@dataclass(frozen=True, slots=True)
class Standing:
    """What of a flow follows from its transitions."""

    status: str
    started_at: str | None
    completed_at: str | None
    updated_at: str


def follow(created_at: str, moves: Iterable[tuple[str | None, str, str]]) -> Standing:
    """Where transitions (from, to, when), in their order, lead a flow; each is believed where it says it comes from."""
    status, started, completed, updated = "CREATED", None, None, created_at
    for before, word, at in moves:
        after = onward(WORDS.get(before or "", status), word)
        updated = at
        if after is None:
            continue
        status, completed = after, at if after in TERMINAL else None
        started = at if after == "RUNNING" and started is None else started
    return Standing(status, started, completed, updated)


@dataclass(frozen=True, slots=True)
class Flow(Value):
    """A decision flow as it stands."""

    flow_id: str
    root_flow_id: str
    parent_flow_id: str | None
    agent_id: str
    flow_type: str
    flow_version: str
    status: str
    created_by_type: str | None
    created_by_id: str | None
    priority: int
    started_at: str | None
    completed_at: str | None
    created_at: str
    updated_at: str
    ns: str

    @property
    def ended(self) -> bool:
        """Whether it takes no more work."""
        return self.status in TERMINAL


@dataclass(frozen=True, slots=True)
class FlowPage(Value):
    """Some flows in the order asked for; `next` is where the following page begins."""

    flows: tuple[Flow, ...]
    next: str | None


@dataclass(frozen=True, slots=True)
class FlowTree(Value):
    """A flow and those that it delegated to."""

    flow: Flow
    children: tuple["FlowTree", ...] = field(default=())


@dataclass(frozen=True, slots=True)
class Transition(Value):
    """One change of status."""

    id: int
    flow_id: str
    root_flow_id: str
    from_status: str | None
    to_status: str
    correlation_id: str | None
    causation_id: str | None
    created_at: str
    reason: str | None
    ns: str


@dataclass(frozen=True, slots=True)
class Pace(Value):
    """What happened to flows in one minute (`2026-01-31T12:00`)."""

    minute: str
    transitions: int
    completed: int
    failed: int


@dataclass(frozen=True, slots=True)
class Step(Value):
    """The n-th step of its name in a flow: STARTED, DONE, FAILED, or UNKNOWN while a person is asked about it."""

    step_id: str
    flow_id: str
    name: str
    n: int
    state: str
    compensates: str | None
    result: Any
    error: str | None
    undo: bool
    started_at: str
    finished_at: str | None
    ns: str


@dataclass(frozen=True, slots=True)
class FlowRecord(Value):
    """A flow with its whole history, for another program."""

    flow: Flow
    transitions: tuple[Transition, ...]
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Lease(Value):
    """A flow in the hands of one worker until a moment; the token tells an older holder from a newer."""

    flow_id: str
    worker: str
    token: int
    heartbeat_at: str
    expires_at: str
    ns: str


@dataclass(frozen=True, slots=True)
class Rerun(Value):
    """A flow whose function ran again, as it stands now, and what the function raised."""

    flow: Flow
    error: str | None


@dataclass(frozen=True, slots=True)
class Orphan(Value):
    """A flow whose worker is gone: who had it until when, and what it runs if that is a registered function."""

    flow_id: str
    worker: str
    expires_at: str
    name: str | None
    version: str | None
    asked_by: str | None = None
    """The agent that asked for that function at the server, if one did."""


@dataclass(frozen=True, slots=True)
class Recovered(Value):
    """What a recovery did, and the orphans that no function registered here can run."""

    again: tuple[Rerun, ...]
    left: tuple[Flow, ...]
