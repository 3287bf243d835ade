"""Steps and children that run at once: `flow.gather` and `flow.map`.

Rules:
- They are numbered before the first of them starts, in the order they are passed, so that a flow that runs again meets
  them again: a step has its result, a child is the same flow.
- Results come in the order in which they were passed. Of several failures the first in that order is raised.
- With `on_error="wait"` all of them end first. With "cancel" what has not begun is left out, steps that run end,
  and children that are open are cancelled; a child that was cancelled so is not the failure that is raised. A flow of
  another parent goes on, and is waited for no longer.
- Where one of them waits under a worker, the others go on; the flow is suspended once all have ended or wait. One that
  waits counts for `concurrency`, since a child of a queue runs elsewhere meanwhile.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from threading import Lock
from typing import Any, Final, Literal, NamedTuple, Protocol, TypeVar, runtime_checkable

from holdproof import validation
from holdproof.db import Together, Work, Write, ask
from holdproof.db.effects import WorkOutcome
from holdproof.errors import FlowEndedError, InvalidInputError, LeaseLostError, NonDeterminismError, TamperedError
from holdproof.runtime import children, flow_steps
from holdproof.runtime.children import ChildFunction, ChildRun
from holdproof.runtime.flow_run import FlowRun, outside_steps
from holdproof.runtime.flow_steps import StepCall, StepOptions
from holdproof.runtime.suspension import FlowSuspended, suspend_all

T = TypeVar("T")
OnError = Literal["wait", "cancel"]
Effects = Generator[Any, Any, T]
"""A generator of effects: those of a database, or those of a wire."""
REASON: Final = "another one of its gather failed"
_STOPS: Final = (TamperedError, NonDeterminismError, LeaseLostError)


@runtime_checkable
class StartedChild(Protocol):
    """The handle of a flow that was started before."""

    @property
    def flow_id(self) -> str:
        """The flow's id."""


Gathered = StepCall | ChildRun | StartedChild
"""What `gather` takes: a step or a child that has not begun, or the handle of a child that has."""


def prepare(first: Any, /, *args: Any, **kwargs: Any) -> StepCall | ChildRun:
    """Return a step, or the flow of a registered function, that has not begun; it takes what `step` or `run` takes."""
    if isinstance(first, ChildFunction):
        return children.prepare(first, args, kwargs)
    options = {name: kwargs.pop(name) for name in flow_steps.OPTIONS & kwargs.keys()}
    return flow_steps.prepare(first, args, kwargs, StepOptions(**options))


def gather(
    run: FlowRun, /, *calls: Gathered, concurrency: int | None = None, on_error: OnError = "wait"
) -> Work[list[Any]]:
    """Run steps and children at once, `concurrency` of them at a time, and return their results in their order.

    Each is what `flow.call` returns, or a handle of `flow.start`. Where one fails, the first failure in that order is
    raised once all have ended ("wait"), or once those that run have ended, the others were left out and open children
    were cancelled ("cancel").
    """
    validate(calls, concurrency, on_error)
    outside = outside_steps(run, "gather")
    members = [_reached(run, each) for each in calls]
    gathering = _Gathering(run, outside, on_error, concurrency)
    lease = run.lease
    run.lease = replace(lease, gathers=True)
    try:
        yield from gathering.run_all(members)
    finally:
        run.lease = lease
    # Which of the works set it does not matter: whether the flow is suspended is decided here.
    run.suspended = None
    yield from _suspend(gathering, members)
    return gathering.results(members)


def map(
    run: FlowRun,
    fn: Callable[..., Any],
    items: Iterable[Any],
    /,
    *,
    concurrency: int | None = None,
    on_error: OnError = "wait",
    **options: Any,
) -> Work[list[Any]]:
    """Run a function as one step or one child for each item, at once; returns the results in their order; see `gather`.

    `options` are those of a step or, for a registered function, of `flow.run`.
    """
    prepared = [prepare(fn, item, **options) for item in items]
    return (yield from gather(run, *prepared, concurrency=concurrency, on_error=on_error))


def validate(calls: Sequence[Any], concurrency: int | None, on_error: str) -> None:
    """Refuse what `gather` does not take, before anything is numbered."""
    validation.one_of("on_error", on_error, {"wait", "cancel"})
    if concurrency is not None:
        validation.count("concurrency", concurrency, least=1)
    for each in calls:
        if not isinstance(each, StepCall | ChildRun | StartedChild):
            raise InvalidInputError(
                "gather takes what flow.call or flow.start returns: flow.gather(flow.call(fn, 1), …)", field="calls"
            )


# --- several at once, here or over a wire --------------------------------------------------------------------------


class _NotBegun(NamedTuple):
    """The result of a work for which there was no room; it is tried again in the same run, or when the flow goes on."""


@dataclass(slots=True)
class Member:
    """One of several, and how it ended."""

    call: Gathered
    number: Any = None
    """How it is numbered; None for a child that was started before."""
    is_recorded: bool = True
    """Whether a run before this one began it."""
    outcome: WorkOutcome = field(default_factory=lambda: WorkOutcome(_NotBegun(), None))
    flow_id: str | None = None
    """The child, once it was opened."""

    @property
    def is_pending(self) -> bool:
        """Whether it was not begun yet."""
        return isinstance(self.outcome.value, _NotBegun)

    @property
    def suspended(self) -> FlowSuspended | None:
        """How it waits, if it does."""
        error = self.outcome.error
        return error if isinstance(error, FlowSuspended) else None


class Gathering(ABC):
    """Several works at once: who runs one of them, and how a child is cancelled, is up to its subclasses."""

    def __init__(self, on_error: OnError, concurrency: int | None) -> None:
        self.opened: dict[str, bool] = {}
        """The children, by id, and whether they were cancelled here."""
        self._on_error = on_error
        self._concurrency = concurrency
        self._has_failed = False
        self._under_way = 0
        # The works may run in threads of their own.
        self._lock = Lock()

    @abstractmethod
    def perform(self, member: Member) -> Effects[Any]:
        """Run one to its end; `note_child` is called with the id of a child before it is waited for."""

    @abstractmethod
    def cancel_child(self, flow_id: str) -> Effects[bool]:
        """Cancel a child, and return whether it was open."""

    @property
    def is_cancelled(self) -> bool:
        """Whether a failure has put an end to the others."""
        return self._has_failed and self._on_error == "cancel"

    def run_all(self, members: list[Member]) -> Effects[None]:
        """Run what has not begun, as long as there is room; what waits keeps its place."""
        pending = members
        while pending:
            outcomes = yield Together(tuple(self._one(member) for member in pending), self._concurrency)
            for member, outcome in zip(pending, outcomes, strict=True):
                member.outcome = outcome
            rest = [member for member in pending if member.is_pending]
            if len(rest) == len(pending) or self.is_cancelled:
                return
            pending = rest

    def note_child(self, member: Member, flow_id: str) -> Effects[None]:
        """Note a child that is open; one that comes after the failure of another is cancelled here."""
        member.flow_id = flow_id
        self.opened[flow_id] = False
        if self.is_cancelled:
            yield from self._cancel([flow_id])

    def results(self, members: list[Member]) -> list[Any]:
        """Return the results in their order; or raise the first failure."""
        for member in sorted(members, key=self._comes_last):
            if member.outcome.error is not None:
                raise member.outcome.error
        return [member.outcome.value for member in members]

    def _begin(self) -> bool:
        """Take a place; return whether there was one."""
        with self._lock:
            if self._concurrency is not None and self._under_way >= self._concurrency:
                return False
            self._under_way += 1
            return True

    def _end(self) -> None:
        with self._lock:
            self._under_way -= 1

    def _one(self, member: Member) -> Effects[Any]:
        """Run one of several to its end, and let its failure end the others where that is wanted."""
        # What a run before this one began is met again, so that the failure is the same.
        if self.is_cancelled and not member.is_recorded:
            return None
        if not self._begin():
            return _NotBegun()
        try:
            value = yield from self.perform(member)
        except FlowSuspended:
            raise
        except BaseException as error:
            self._has_failed = True
            self._end()
            # What says that this worker, its code or its record are not what they were says nothing about the children.
            if isinstance(error, Exception) and not isinstance(error, _STOPS):
                yield from self._cancel([*self.opened.keys() - {member.flow_id}])
            raise
        self._end()
        return value

    def _cancel(self, flow_ids: list[str]) -> Effects[None]:
        """Cancel children that are open, after a failure."""
        if not self.is_cancelled:
            return
        for flow_id in sorted(flow_ids):
            self.opened[flow_id] |= yield from self.cancel_child(flow_id)

    def _comes_last(self, member: Member) -> bool:
        """Whether it is a child that was cancelled because another one failed, in this run or in one before."""
        if not self.is_cancelled or member.flow_id is None:
            return False
        return self.opened[member.flow_id] or isinstance(member.outcome.error, FlowEndedError | FlowSuspended)


# --- here ----------------------------------------------------------------------------------------------------------


def _reached(run: FlowRun, each: Gathered) -> Member:
    match each:
        case StepCall():
            spec = flow_steps.reach(run, each)
        case ChildRun():
            spec = children.reach(run, each)
        case _:
            return Member(each)
    return Member(each, spec, (spec.name, spec.n) in run.journal)


class _Gathering(Gathering):
    """Several works of a flow of this process."""

    def __init__(
        self, run: FlowRun, outside: frozenset[tuple[str, str]], on_error: OnError, concurrency: int | None
    ) -> None:
        super().__init__(on_error, concurrency)
        self.run = run
        self._outside = outside

    def perform(self, member: Member) -> Work[Any]:
        """See Gathering."""
        match member.call:
            case StepCall() as step:
                return (yield from flow_steps.perform_reached(self.run, step, member.number, self._outside))
            case ChildRun() as child:
                opened = partial(self.note_child, member)
                return (yield from children.perform(self.run, child, member.number, opened, self._is_left))
            case started:
                yield from self.note_child(member, started.flow_id)
                return (yield from children.result(self.run, started.flow_id, self._is_left))

    def _is_left(self) -> bool:
        return self.is_cancelled

    def cancel_child(self, flow_id: str) -> Work[bool]:
        """See Gathering."""
        # In a replay, or a fork without effects, the child is the origin's.
        if not self.run.mode.conducts():
            return False
        return (yield from children.cancel(self.run, flow_id, reason=REASON))


def _suspend(gathering: _Gathering, members: list[Member]) -> Work[None]:
    """Suspend the flow if one of several waits: it goes on when that is due, whatever became of the others."""
    waits = [
        member.suspended
        for member in members
        # A child that waits, and was cancelled, is waited for no longer.
        if member.suspended is not None and not (gathering.is_cancelled and member.flow_id is not None)
    ]
    if not waits:
        return
    run = gathering.run
    if run.lease.suspends:
        yield from ask(Write(partial(suspend_all, lease=run.lease, waits=waits)))
    others = f" and {len(waits) - 1} more" if waits[1:] else ""
    run.suspended = FlowSuspended(run.lease.flow_id, f"{waits[0].waits_for}{others}")
    raise run.suspended
