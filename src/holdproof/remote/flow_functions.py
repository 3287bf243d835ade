"""Functions as flows of a remote store: `@store.flow(…)` and `flows.recover`, the functions running here.

The rules are those of an open store (api/flow_functions.py, runtime/functions.py).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic

from holdproof import validation
from holdproof.api import wire
from holdproof.api.flow_functions import FlowFunction, enlist
from holdproof.db.effects import Call
from holdproof.model import typed_json
from holdproof.model.flows import Flow, FlowResult, Recovery, Rerun
from holdproof.model.namespaces import MAIN
from holdproof.remote.exchange import Exchange, Send
from holdproof.remote.remote_contexts import Inside, Wire
from holdproof.remote.transport import AsyncTransport
from holdproof.runtime import calls, recorded, results
from holdproof.runtime.calls import CallSpec
from holdproof.runtime.functions import FunctionSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteFunction(FunctionSpec):
    """A function that flows run, here."""

    fn: Callable[..., Any]


def _decide(wired: Any, of: RemoteFunction, called: CallSpec, opening: Mapping[str, Any]) -> Exchange[Any]:
    """Open a flow and run the function in it; or wait for the one that has its id."""
    opened = yield Send("/v1/flows/run", wire.dump({**opening, "lease_s": of.lease_s, "call": called}))
    if opened["block"] is None:
        return (yield from outcome(opened["flow_id"], ns=opening.get("ns", MAIN)))
    return (yield from _conduct(wired, of, opened, calls.decoded_arguments(called.arguments)))


class RemoteHandle(Generic[Wire]):
    """A flow that was queued on a server: its status, its result once it has one, and a way to cancel it."""

    def __init__(self, wired: Wire, flow: Flow) -> None:
        self._wire = wired
        self.flow_id = flow.flow_id
        self._name = {"flow_id": flow.flow_id, "ns": flow.ns}

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
        return self._wire.run(_flow(Send("/v1/flows/cancel", {**self._name, "reason": reason})))


def _field(send: Send, name: str) -> Exchange[Any]:
    return (yield send)[name]


def _flow(send: Send) -> Exchange[Flow]:
    flow: Flow = wire.shape(Flow).load((yield send), "")
    return flow


def _enqueue(wired: Any, called: CallSpec, opening: Mapping[str, Any]) -> Exchange[RemoteHandle[Any]]:
    """Open a flow on the server that a worker will run."""
    arguments = recorded.parse(called.arguments)
    body = {**opening, "name": called.name, "version": called.version, **arguments}
    return RemoteHandle(wired, (yield from _flow(Send("/v1/flows/enqueue", wire.dump(body)))))


def outcome(flow_id: str, *, timeout_s: float | None = None, ns: str = MAIN) -> Exchange[Any]:
    """Wait for a flow on the server to end, and return its result as a value of this process."""
    query = {"flow_id": flow_id, "timeout_s": timeout_s, "ns": ns}
    ended = wire.shape(FlowResult).load((yield Send("/v1/flows/outcome", query)), "")
    return results.value(ended)


def _conduct(
    wired: Any, of: RemoteFunction, opened: dict[str, Any], arguments: tuple[list[Any], dict[str, Any]]
) -> Exchange[Any]:
    """Run the function in a leased flow, and end the flow as it ends."""
    inside: Inside[Any] = Inside(wired, opened, "flow")
    args, kwargs = arguments
    try:
        result = yield Call(partial(of.fn, inside, *args, **kwargs))
        text = recorded.dump(typed_json.encode(result, f"the result of {of.name}"))
    except Exception as error:
        yield from inside.leave(error)
        raise
    yield from inside.leave(None, result=text)
    return typed_json.decode(recorded.parse(text))


class Registry(Generic[Wire]):
    """The functions of a connected store, by flow type."""

    def __init__(self, wired: Wire) -> None:
        self._wire = wired
        self._functions: dict[str, RemoteFunction] = {}

    def register(self, registered: RemoteFunction, opening: Mapping[str, Any]) -> FlowFunction[..., Any]:
        """Make a function the one of its flow type."""

        def performs(args: Sequence[Any], kwargs: Mapping[str, Any], opening: Mapping[str, Any]) -> Any:
            called = calls.call_of(registered.name, registered.version, args, kwargs)
            return self._wire.run(_decide(self._wire, registered, called, opening))

        def enqueues(args: Sequence[Any], kwargs: Mapping[str, Any], opening: Mapping[str, Any]) -> Any:
            called = calls.call_of(registered.name, registered.version, args, kwargs)
            return self._wire.run(_enqueue(self._wire, called, opening))

        enlist(self._functions, registered, registered.fn, soft=isinstance(self._wire, AsyncTransport))
        return FlowFunction(
            registered.fn, performs, opening, enqueues, name=registered.name, version=registered.version
        )

    def recover(self, worker: str | None, limit: int, ns: str = MAIN) -> Exchange[Recovery]:
        """Run orphaned flows again whose function is registered here, `limit` at most; the rest is left, and named."""
        again: list[Rerun] = []
        # A copy, since a function that runs may register another one.
        for of in tuple(self._functions.values()):
            while len(again) < validation.limited(limit):
                query: dict[str, Any] = {
                    "name": of.name,
                    "version": of.version,
                    "agent": of.agent_id,
                    "lease_s": of.lease_s,
                }
                query["compatible"] = [*of.compatible]
                # One at a time: a lease runs from here on, and a worker holds no more flows than it runs.
                orphan = yield Send("/v1/flows/take", {**query, "worker": worker, "ns": ns})
                if orphan is None:
                    break
                if "stopped" in orphan:
                    again.append(wire.shape(Rerun).load(orphan["stopped"], ""))
                    continue
                again.append((yield from self._again(of, orphan, ns)))
        functions = [[*runnable] for of in self._functions.values() for runnable in of.runs]
        rest = yield Send("/v1/flows/left", {"functions": functions, "limit": validation.limited(limit), "ns": ns})
        return Recovery(tuple(again), wire.shape(tuple[Flow, ...]).load(rest, ""))

    def _again(self, of: RemoteFunction, orphan: dict[str, Any], ns: str) -> Exchange[Rerun]:
        failure: str | None = None
        try:
            yield from _conduct(self._wire, of, orphan, calls.decoded(orphan["arguments"]))
        except Exception as error:
            failure = validation.error_text(error)
        # Read afterwards: leaving the block has settled the flow's status on the server.
        flow = yield Send("/v1/flows/get", {"flow_id": orphan["flow_id"], "ns": ns}, reads=True)
        return Rerun(wire.shape(Flow).load(flow, ""), failure)
