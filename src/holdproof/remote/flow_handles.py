"""Handles of flows on a server, and how their results come here."""

from typing import Any, Generic, TypeVar

from holdproof.api import wire
from holdproof.model.flows import Flow, FlowResult
from holdproof.model.namespaces import MAIN
from holdproof.remote.exchange import Exchange, Send, outlast
from holdproof.remote.transport import AsyncTransport, SyncTransport
from holdproof.runtime import results

Wire = TypeVar("Wire", bound=AsyncTransport | SyncTransport, covariant=True)  # noqa: PLC0105


class RemoteHandle(Generic[Wire]):
    """A flow that was queued on a server: its status, its result once it has one, and a way to cancel it."""

    def __init__(self, wired: Wire, flow_id: str, ns: str) -> None:
        self._wire = wired
        self.flow_id = flow_id
        self._name = {"flow_id": flow_id, "ns": ns}

    def __repr__(self) -> str:
        return f"<RemoteHandle {self.flow_id}>"

    def status(self) -> Any:
        """Return the flow's status."""
        return self._wire.run(_field(Send("/v1/flows/get", self._name, reads=True), "status"))

    def result(self, *, timeout_s: float | None = None) -> Any:
        """Wait for the flow to end and return its result; see `flows.result`."""
        return self._wire.run(outcome(**self._name, timeout_s=timeout_s))

    def cancel(self, *, reason: str = "cancelled by its caller") -> Any:
        """Cancel the flow and those that it started."""
        return self._wire.run(flow_of(Send("/v1/flows/cancel", {**self._name, "reason": reason})))


def _field(send: Send, name: str) -> Exchange[Any]:
    return (yield send)[name]


def flow_of(send: Send) -> Exchange[Flow]:
    """Return the flow that a request answers with."""
    flow: Flow = wire.shape(Flow).load((yield send), "")
    return flow


def outcome(flow_id: str, *, timeout_s: float | None = None, ns: str = MAIN) -> Exchange[Any]:
    """Wait for a flow on the server to end, and return its result as a value of this process."""
    query = {"flow_id": flow_id, "timeout_s": timeout_s, "ns": ns}
    return result_of((yield from outlast(Send("/v1/flows/outcome", query))))


def result_of(answer: Any) -> Any:
    """Return the result of a flow that has ended, as a server tells it; or raise how it failed."""
    return results.value(wire.shape(FlowResult).load(answer, ""))
