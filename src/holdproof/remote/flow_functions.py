"""Functions as flows of a remote store: `@store.flow(…)` and `flows.recover`, the functions running here.

The rules are those of an open store (api/flow_functions.py, runtime/functions.py).
"""

from collections.abc import Mapping, Sequence
from typing import Any, Generic

from holdproof import validation
from holdproof.api import wire
from holdproof.api.flow_functions import FlowFunction, enlist
from holdproof.model.flows import Flow, Recovery, Rerun
from holdproof.model.namespaces import MAIN
from holdproof.remote.exchange import Exchange, Send
from holdproof.remote.flow_handles import RemoteHandle, Wire, flow_of, outcome
from holdproof.remote.remote_contexts import Inside, RemoteFunction
from holdproof.remote.transport import AsyncTransport
from holdproof.runtime import calls, recorded
from holdproof.runtime.calls import CallSpec


def _decide(wired: Any, of: RemoteFunction, called: CallSpec, opening: Mapping[str, Any]) -> Exchange[Any]:
    """Open a flow and run the function in it; or wait for the one that has its id."""
    opened = yield Send("/v1/flows/run", wire.dump({**opening, "lease_s": of.lease_s, "call": called}))
    if opened["block"] is None:
        return (yield from outcome(opened["flow_id"], ns=opening.get("ns", MAIN)))
    return (yield from Inside(wired, opened, "flow").conduct(of, calls.decoded_arguments(called.arguments)))


def _enqueue(wired: Any, called: CallSpec, opening: Mapping[str, Any]) -> Exchange[RemoteHandle[Any]]:
    """Open a flow on the server that a worker will run."""
    arguments = recorded.parse(called.arguments)
    body = {**opening, "name": called.name, "version": called.version, **arguments}
    flow = yield from flow_of(Send("/v1/flows/enqueue", wire.dump(body)))
    return RemoteHandle(wired, flow.flow_id, flow.ns)


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
            *(registered.fn, performs, opening, enqueues),
            name=registered.name,
            version=registered.version,
            registered=registered,
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
            yield from Inside(self._wire, orphan, "flow").conduct(of, calls.decoded(orphan["arguments"]))
        except Exception as error:
            failure = validation.error_text(error)
        # Read afterwards: leaving the block has settled the flow's status on the server.
        flow = yield Send("/v1/flows/get", {"flow_id": orphan["flow_id"], "ns": ns}, reads=True)
        return Rerun(wire.shape(Flow).load(flow, ""), failure)
