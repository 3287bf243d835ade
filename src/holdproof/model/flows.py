"""Flows and their legal transitions.

CREATED → RUNNING | CANCELLED; RUNNING → WAITING_ESCALATION | COMPLETED | FAILED | CANCELLED | COMPENSATING;
WAITING_ESCALATION → RUNNING | FAILED | CANCELLED; FAILED | CANCELLED → COMPENSATING;
COMPENSATING → COMPENSATED | FAILED. What has no arrow is an end.

DIR has words of its own for the same life (`WORDS`). They are recorded as given; a word that is neither ours nor DIR's
is a label, and moves nothing.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
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
"""The statuses of a flow that has not ended, in the order it gets there."""
GROUPS: Final[Mapping[str, tuple[str, ...]]] = {
    "OPEN": OPEN,
    "ENDED": tuple(sorted(TERMINAL)),
    "FAILED_OR_COMPENSATED": ("COMPENSATED", "FAILED"),
}
"""Words that searches take for several statuses: the last is what overviews count as failed."""
UNDOABLE: Final = frozenset({"FAILED", "CANCELLED"})
"""Ends after which steps may still be undone."""
WORKED_ON: Final = frozenset({"RUNNING", "COMPENSATING"})
"""The statuses in which a flow needs a worker, else it is an orphan."""
TAKEN_OVER: Final = "flow.taken_over"
"""The type of the audit event of a flow whose worker was lost and whose next worker goes on with it."""
LOCK_AWAITED: Final = "lock.awaited"
LOCK_ACQUIRED: Final = "lock.acquired"
LOCK_GIVEN_UP: Final = "lock.given_up"
"""The types of the audit events of a flow that had to wait for a lock: when it began to, and how that ended."""
LOCK: Final = "the lock "
ESCALATION: Final = "escalation "
"""What a flow says that it waits for begins with these, where it is a resource or a person's answer."""


# Several words of DIR stand for one status: it tells phases of work apart that have the same rules here.
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
"""Where DIR's words for an end mean another status: DIR has two such words, we have four statuses."""


def is_legal(before: str, after: str) -> bool:
    """Return whether a flow may go from one status to the other."""
    return after in EDGES[before]


def status_after(before: str, word: str) -> str | None:
    """Return the status that a word leads to from a status; None for a label, which changes nothing."""
    return _ENDS.get((before, word), WORDS.get(word))


def may_say(before: str, word: str) -> bool:
    """Return whether a word may be recorded for a flow: a label, a legal transition, or more of the same work."""
    after = status_after(before, word)
    return after is None or is_legal(before, after) or (after == before and after not in TERMINAL)


@dataclass(frozen=True, slots=True)
class FlowState:
    """The columns of a flow that follow from its transitions."""

    status: str
    started_at: str | None
    completed_at: str | None
    updated_at: str


def replay(created_at: str, transitions: Iterable[tuple[str | None, str, str]]) -> FlowState:
    """Return the state that transitions (from, to, when) lead a flow to; each is believed where it says it started."""
    state = FlowState("CREATED", None, None, created_at)
    for before, word, at in transitions:
        after = status_after(WORDS.get(before or "", state.status), word)
        state = replace(state, updated_at=at)
        # A label is recorded and changes nothing but the time of the last change.
        if after is None:
            continue
        # A flow that is undone after it failed is no longer complete: the time is set anew at its next end.
        completed = at if after in TERMINAL else None
        started = at if after == "RUNNING" and state.started_at is None else state.started_at
        state = FlowState(after, started, completed, at)
    return state


@dataclass(frozen=True, slots=True)
class Flow(Value):
    """A durable workflow run."""

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
    subject: str | None = None
    """The handle of the person whose flow it is; what the flow records is sealed under that person's key."""

    @property
    def ended(self) -> bool:
        """Whether it takes no more work."""
        return self.status in TERMINAL

    @property
    def is_worked_on(self) -> bool:
        """Whether it needs a worker."""
        return self.status in WORKED_ON


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
class FlowCount(Value):
    """How many flows there are of a kind: of an hour (`2026-01-31T12`), a day, a status, a type or an agent."""

    bucket: str
    count: int
    completed: int
    failed: int


@dataclass(frozen=True, slots=True)
class BulkChange(Value):
    """Which flows one call changed, or would change (`dry_run`), and which of them could not be."""

    dry_run: bool
    flow_ids: tuple[str, ...]
    successors: tuple[str, ...]
    """The flows that run in their place, where they were tried again."""
    refused: tuple[str, ...]
    """Why single flows were left as they are."""


@dataclass(frozen=True, slots=True)
class Pace(Value):
    """How many transitions there were in one minute (`2026-01-31T12:00`)."""

    minute: str
    transitions: int
    completed: int
    failed: int


@dataclass(frozen=True, slots=True)
class Step(Value):
    """The n-th step of its name in a flow.

    It is STARTED, DONE, FAILED, RETRYING (it failed and is tried again), or UNKNOWN (in doubt) while a person decides.
    """

    step_id: str
    flow_id: str
    name: str
    n: int
    position: int
    """Its place in the order in which the code reaches steps."""
    state: str
    compensates: str | None
    arguments: Any
    """What its function was called with, `{"args": […], "kwargs": {…}}`; None where only their hash is recorded."""
    arguments_hash: str | None
    result: Any
    error: str | None
    undo: bool
    attempts: int
    retry_at: str | None
    """When it is tried again, while it is RETRYING."""
    worker: str
    started_at: str
    finished_at: str | None
    ns: str

    @property
    def idempotency_key(self) -> str:
        """The same for every attempt, and of no other step: for services that refuse to do a thing twice."""
        return step_key(self.flow_id, self.name, self.n)


def step_key(flow_id: str, name: str, n: int) -> str:
    """Return the idempotency key of the n-th step of a name in a flow."""
    return f"{flow_id}:{name}:{n}"


@dataclass(frozen=True, slots=True)
class FunctionCall(Value):
    """What a flow runs: a registered function by name and version, what it is called with, and how it was queued."""

    flow_id: str
    name: str
    version: str
    arguments: Any
    """`{"args": […], "kwargs": {…}}`, as tagged JSON."""
    arguments_hash: str
    agent_id: str | None
    """The agent that made the call at the server; None for programs of the store and for operators."""
    queue: str | None
    partition_key: str | None
    not_before: str | None
    deduplicate: str | None
    forked_from: str | None
    """The flow that it was forked from, and shares the record with up to position `forked_at`."""
    forked_at: int | None
    effects: str | None
    """What new steps of a fork do: `deny`, `simulate` or `real`."""
    answers: Any
    """The results that a fork was given, by step, as tagged JSON."""
    ns: str


@dataclass(frozen=True, slots=True)
class FlowResult(Value):
    """How a flow stands: its status, and once it has ended what its function returned or how it failed."""

    flow_id: str
    status: str
    result: Any
    """The result as tagged JSON; None before the end, and where the flow failed."""
    error: str | None

    @property
    def ended(self) -> bool:
        """Whether it takes no more work."""
        return self.status in TERMINAL


@dataclass(frozen=True, slots=True)
class FlowReplay(Value):
    """What came of running a flow's function again on what the flow recorded."""

    flow_id: str
    name: str
    """The function, and the version that the flow was called in."""
    version: str
    status: str
    """The flow's status; a flow that has not completed is replayed up to where its record ends."""
    steps: int
    """How many recorded steps the code reached again."""
    inputs_equal: bool
    result_equal: bool | None
    """Whether it ended as the flow did; None where the flow has not ended by itself, or the code did not get there."""
    ends_at: str | None
    """What the code reached that is not recorded; None where it came to its end."""
    differences: tuple[str, ...]

    @property
    def equal(self) -> bool:
        """Whether the code still does what the flow recorded."""
        return not self.differences


@dataclass(frozen=True, slots=True)
class FlowRecord(Value):
    """A flow with its whole history, for another program."""

    flow: Flow
    transitions: tuple[Transition, ...]
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Lease(Value):
    """A worker's exclusive right to work on a flow until a moment; tokens grow, so an older holder can be told."""

    flow_id: str
    worker: str
    token: int
    heartbeat_at: str
    expires_at: str
    ns: str


@dataclass(frozen=True, slots=True)
class LeaseTakeover(Value):
    """That a worker went on with a flow whose worker was lost."""

    at: str
    lost_worker: str
    last_heartbeat_at: str
    """When the lost worker was last heard of."""
    worker: str
    replayed: int
    """How many steps had ended by then: their results were read from the record, and none of them ran again."""


@dataclass(frozen=True, slots=True)
class FlowWait(Value):
    """Something that a flow waits for."""

    kind: str
    """escalation, lock, promise, flow, retry, worker, or other."""
    what: str
    until: str | None
    """When it stops waiting, or is due; None where only what it waits for ends the wait."""
    ref: str
    """The escalation, the holding flow, the child flow or the promise; empty where there is none."""


@dataclass(frozen=True, slots=True)
class FlowExecution(Value):
    """Who works on a flow, what it waits for, and which workers were lost on it."""

    flow_id: str
    status: str
    worker: str | None
    """The worker that holds the lease; None while nobody does."""
    token: int
    heartbeat_at: str | None
    expires_at: str | None
    orphaned: bool
    """Whether the lease has expired, so that any worker may take the flow over."""
    queue: str | None
    partition_key: str | None
    waits: tuple[FlowWait, ...]
    takeovers: tuple[LeaseTakeover, ...]
    workers: dict[str, str]
    """The processes behind workers that register themselves, as `name (host, pid 4711)`, by worker id."""


@dataclass(frozen=True, slots=True)
class FlowFacets(Value):
    """How many flows match, by when they were opened, by status, type and agent; what a page of filters shows."""

    total: int
    exact: bool
    """Whether all that match were counted; if not, `total` is how many of the newest were."""
    statuses: dict[str, int]
    types: dict[str, int]
    agents: dict[str, int]
    counted: int
    """How many of the newest flows `types` and `agents` are of."""
    bucket_s: int
    buckets: tuple["FlowBucket", ...]


@dataclass(frozen=True, slots=True)
class FlowBucket(Value):
    """The flows that were opened from a moment on, for `bucket_s` seconds, by status."""

    since: str
    statuses: dict[str, int]

    @property
    def count(self) -> int:
        """How many there are."""
        return sum(self.statuses.values())


@dataclass(frozen=True, slots=True)
class Rerun(Value):
    """A recovered flow after its function ran again, what the function raised, and what it waits for now."""

    flow: Flow
    error: str | None
    waits_for: str | None = None
    """What the flow waits for: an approval, a message, a moment; None where it does not wait."""


@dataclass(frozen=True, slots=True)
class Orphan(Value):
    """A flow whose lease has expired: its last worker, and the registered function that it runs, if any."""

    flow_id: str
    worker: str
    expires_at: str
    name: str | None
    version: str | None
    called_by: str | None = None
    """The agent that called that function at the server, if one did."""


@dataclass(frozen=True, slots=True)
class Recovery(Value):
    """The flows that ran again, and the orphans that no function registered here can run."""

    reruns: tuple[Rerun, ...]
    orphans: tuple[Flow, ...]
