"""Children of a flow whose code runs at the other end of a wire, and the numbers of what runs at once there.

Rules:
- What runs at once is numbered before the first of it starts. Each number is used once, for what it was asked for.
- A child is opened by the permissions of `flows.enqueue`: an agent opens flows for itself only, and is recorded as the
  one who asked. Without a queue it is leased for the caller, whose function runs it.
- A flow waits for what it opened, and cancels its own children only.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from holdproof.api import wire
from holdproof.api.catalogue import MethodSpec
from holdproof.db import Read, Work, ask
from holdproof.errors import InvalidInputError, NotFoundError
from holdproof.model.defaults import LEASE_S
from holdproof.model.flows import FlowResult
from holdproof.model.namespaces import MAIN
from holdproof.runtime import calls, children, flow_run, flow_steps, flows, gathers, recorded
from holdproof.runtime.children import ChildCall, ChildRun
from holdproof.runtime.flow_run import FlowRun, outside_steps
from holdproof.runtime.flow_steps import StepCall
from holdproof.runtime.functions import FunctionSpec, LeasedCall
from holdproof.runtime.steps import StepSpec
from holdproof.server.api import loaded

_QUEUEING: Final = ("delay_s", "not_before", "partition", "deduplicate")
_OPENING: Final = ("agent_id", "flow_id", "priority", "subject")


class _Reached(NamedTuple):
    """A number that was given out."""

    name: str
    n: int


@dataclass(frozen=True, slots=True)
class _Numbering:
    """One of several that will run at once: a step by its name, or a child, `run` or `start`."""

    step: str | None = None
    child: str | None = None


@dataclass(slots=True)
class ReachedSteps:
    """The numbers that a block gave out, by position."""

    _numbers: dict[int, _Reached] = field(default_factory=dict)

    def reach(self, run: FlowRun, values: Mapping[str, Any]) -> list[list[Any]]:
        """Number several, in their order; returns for each its position, and whether it was recorded before."""
        members = wire.shape(tuple[_Numbering, ...]).load(values.get("calls"), "calls")
        outside_steps(run, "gather")
        return [self._reach(run, each) for each in members]

    def _reach(self, run: FlowRun, request: _Numbering) -> list[Any]:
        if (request.step is None) == (request.child not in {"run", "start"}):
            raise InvalidInputError("give the name of a step, or run or start for a child", parameter="calls")
        if request.step is not None:
            flow_steps.validate_name(request.step, undoable=False)
        name = request.step or f"{flow_run.OWN}{request.child}"
        n, position = run.reach(name)
        self._numbers[position] = _Reached(name, n)
        return [position, (name, n) in run.journal]

    def _number(self, name: str, position: int) -> _Reached:
        reached = self._numbers.get(position)
        if reached is None or reached.name != name:
            raise InvalidInputError(f"there is no {name} numbered {position} here", parameter="reached")
        return self._numbers.pop(position)

    def perform(self, run: FlowRun, step: StepCall, position: int | None) -> Work[Any]:
        """Run a step: at the position that it was given, or at the next one."""
        if position is None:
            return (yield from flow_steps.perform(run, step))
        outside = outside_steps(run, f"step {step.name}")
        spec = flow_steps.numbered(run, step, self._number(step.name, position).n, position)
        return (yield from flow_steps.perform_reached(run, step, spec, outside))

    def take(self, run: FlowRun, prepared: ChildRun, request: "ChildRequest") -> StepSpec:
        """Return how a child is numbered: as it was given, or next."""
        if request.reached is None:
            return children.reach(run, prepared)
        name = f"{flow_run.OWN}{'run' if prepared.queue is None else 'start'}"
        return StepSpec(name, self._number(name, request.reached).n, request.reached)


@dataclass(slots=True)
class ChildRequest:
    """A child that is asked for: the arguments of `flows.enqueue`, its number, and the length of its leases."""

    arguments: dict[str, Any]
    queue: str | None
    reached: int | None
    lease_s: float

    @classmethod
    def read(cls, values: dict[str, Any], spec: MethodSpec) -> "ChildRequest":
        """Read a request by its types."""
        reached = wire.shape(int | None).load(values.pop("reached", None), "reached")
        lease_s = wire.shape(float).load(values.pop("lease_s", LEASE_S), "lease_s")
        arguments = loaded(spec, values)
        return cls(arguments, arguments.get("queue"), reached, lease_s)

    def fill(self, agent_id: str, ns: str) -> None:
        """Fill in what a child has from its parent: the agent, and the namespace, which it cannot leave."""
        self.arguments.setdefault("agent_id", agent_id)
        if self.arguments.get("name") is None:
            raise InvalidInputError("name the function of the child", parameter="name")
        if self.arguments.setdefault("ns", ns) not in {ns, MAIN}:
            raise InvalidInputError("a child stays in the namespace of its parent", parameter="ns")
        self.arguments["ns"] = ns

    def prepared(self, called_by: str | None) -> ChildRun:
        """Return the child as a flow opens it."""
        arguments = self.arguments
        text = recorded.dump({"args": arguments.get("args") or [], "kwargs": arguments.get("kwargs") or {}})
        function = FunctionSpec(arguments["name"], arguments.get("version", "1.0"), self.lease_s, arguments["agent_id"])
        opening: dict[str, Any] = {name: arguments[name] for name in _OPENING if name in arguments}
        child = ChildCall(function, calls.checked_text(text), opening, called_by)
        return ChildRun(child, self.queue, {name: arguments[name] for name in _QUEUEING if name in arguments})


def agent_of(run: FlowRun) -> Work[str]:
    """Return the agent of a flow."""
    lease = run.lease
    return (yield from ask(Read(lambda tx: flows.get(tx, lease.flow_id, ns=lease.ns).agent_id)))


class OpenedChild(NamedTuple):
    """A child, and the lease by which its function runs at the caller's, if it does."""

    flow_id: str
    leased: LeasedCall | None


def open_child(run: FlowRun, prepared: ChildRun, spec: StepSpec) -> Work[OpenedChild]:
    """Open a child once, and lease it unless it is a queue's, has ended, or somebody works on it."""
    flow_id = yield from children.recorded_id(run, spec, prepared)
    leased = None if prepared.queue is not None else (yield from children.take(run, prepared.child, flow_id))
    return OpenedChild(flow_id, leased)


def _outcome(run: FlowRun, flow_id: str, opened: bool) -> Work[FlowResult]:
    """Wait for a child to end, and return how; its result as tagged JSON."""
    # A flow that has its id by choice, or was deduplicated, may be the child of another.
    if not opened and not (yield from _is_child(run, flow_id)):
        raise NotFoundError(f"flow {flow_id} is no child of this one", flow_id=flow_id)
    return (yield from children.outcome(run, flow_id))


def _cancel(run: FlowRun, flow_id: str, opened: bool) -> Work[bool]:
    """Cancel a child that is open, and return whether it was; one of another flow is not, and that is no error."""
    del opened
    return (yield from children.cancel(run, flow_id, reason=gathers.REASON))


def _is_child(run: FlowRun, flow_id: str) -> Work[bool]:
    lease = run.lease
    child = yield from ask(Read(lambda tx: flows.get(tx, flow_id, ns=lease.ns)))
    return child.parent_flow_id == lease.flow_id


CHILD_METHODS: Final[Mapping[str, Callable[[FlowRun, str, bool], Work[Any]]]] = {
    "child_outcome": _outcome,
    "cancel_child": _cancel,
}
"""Methods of a block that only a remote client calls, by name; given the child, and whether the block opened it."""
