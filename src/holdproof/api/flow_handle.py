"""Handles: a flow that was started elsewhere, to ask about, wait for and cancel."""

from typing import Any, NamedTuple

from holdproof.db import Read, Work, Write, ask
from holdproof.executors import Executor, Resource, RunsWith
from holdproof.model.flows import Flow
from holdproof.runtime import flows, results


class _FlowName(NamedTuple):
    """A flow by its id and namespace."""

    flow_id: str
    ns: str


def _status(flow: _FlowName) -> Work[str]:
    """Return the flow's status."""
    return (yield from ask(Read(lambda tx: flows.get(tx, flow.flow_id, ns=flow.ns).status)))


def _result(flow: _FlowName, *, timeout_s: float | None = None) -> Work[Any]:
    """Wait for the flow to end and return its result; see `flows.result`."""
    return (yield from results.wait(flow.flow_id, timeout_s=timeout_s, ns=flow.ns))


def _cancel(flow: _FlowName, *, reason: str = "cancelled by its caller") -> Work[Flow]:
    """Cancel the flow and those that it started."""
    return (yield from ask(Write(lambda tx: flows.cancel(tx, flow.flow_id, reason=reason, ns=flow.ns))))


class FlowHandle(Resource[Executor]):
    """A flow that was started or queued: its status, its result once it has one, and a way to cancel it."""

    status = RunsWith(_status)
    result = RunsWith(_result)
    cancel = RunsWith(_cancel)

    def __init__(self, executor: Executor, flow: Flow) -> None:
        super().__init__(executor)
        self._flow = _FlowName(flow.flow_id, flow.ns)

    @property
    def held(self) -> _FlowName:
        """The flow that its methods are about."""
        return self._flow

    @property
    def ns(self) -> None:
        """None: the flow's own namespace is the only one it could be asked for."""

    @property
    def flow_id(self) -> str:
        """The flow's id."""
        return self._flow.flow_id

    def __repr__(self) -> str:
        return f"<FlowHandle {self.flow_id}>"
