"""Functions as flows, at a distance: `@store.flow(…)` and `flows.recover`, the functions running here.

The rules are those of an open store (api/flow_functions.py, runtime/functions.py).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic

from holdproof import validation
from holdproof.api import wire
from holdproof.api.flow_functions import FlowFunction, enlist
from holdproof.model.flows import Flow, Recovery, Rerun
from holdproof.model.namespaces import MAIN
from holdproof.remote.exchange import Exchange, Local, Send
from holdproof.remote.remote_contexts import FLOW, Inside, Wire
from holdproof.remote.transport import AsyncTransport
from holdproof.runtime import calls
from holdproof.runtime.calls import FunctionCall
from holdproof.runtime.functions import FunctionSpec


@dataclass(frozen=True, slots=True)
class Registered(FunctionSpec):
    """A function that flows run, here."""

    fn: Callable[..., Any]


def _decide(wired: Any, of: Registered, called: FunctionCall, opening: Mapping[str, Any]) -> Exchange[Any]:
    """Open a flow and run the function in it."""
    given = {**opening, "flow_type": of.name, "flow_version": of.version, "lease_s": of.lease_s, "call": called}
    opened = yield Send("/v1/flows/run", wire.dump(given))
    return (yield from _conduct(wired, of, opened, called))


def _conduct(wired: Any, of: Registered, opened: dict[str, Any], called: FunctionCall) -> Exchange[Any]:
    """Run the function in a flow that is in hand, and end the flow as it ends."""
    inside: Inside[Any] = Inside(wired, opened, FLOW)
    args, kwargs = calls.arguments(called)
    try:
        result = yield Local(of.fn, [inside, *args], kwargs)
    except Exception as error:
        yield from inside.leave(error)
        raise
    yield from inside.leave(None)
    return result


class Registry(Generic[Wire]):
    """The functions of a connected store, by flow type."""

    def __init__(self, wired: Wire) -> None:
        self._wire = wired
        self._known: dict[str, Registered] = {}

    def register(self, registered: Registered, opening: Mapping[str, Any]) -> FlowFunction[..., Any]:
        """Make a function the one of its flow type."""

        def performs(args: Sequence[Any], kwargs: Mapping[str, Any], opening: Mapping[str, Any]) -> Any:
            called = calls.call_of(registered.name, registered.version, args, kwargs)
            return self._wire.run(_decide(self._wire, registered, called, opening))

        enlist(self._known, registered, registered.fn, soft=isinstance(self._wire, AsyncTransport))
        return FlowFunction(registered.fn, performs, opening)

    def recover(self, worker: str | None, limit: int, ns: str = MAIN) -> Exchange[Recovery]:
        """Run orphaned flows again whose function is registered here, `limit` at most; the rest is left, and named."""
        again: list[Rerun] = []
        for of in tuple(self._known.values()):
            while len(again) < validation.limited(limit):
                wanted = {"name": of.name, "version": of.version, "agent": of.agent_id, "lease_s": of.lease_s}
                taken = yield Send("/v1/flows/take", {**wanted, "worker": worker, "ns": ns})
                if taken is None:
                    break
                again.append((yield from self._again(of, taken, ns)))
        known = [[*runnable] for of in self._known.values() for runnable in of.runs]
        left = yield Send("/v1/flows/left", {"known": known, "limit": validation.limited(limit), "ns": ns})
        return Recovery(tuple(again), wire.shape(tuple[Flow, ...]).load(left, ""))

    def _again(self, of: Registered, taken: dict[str, Any], ns: str) -> Exchange[Rerun]:
        said: str | None = None
        try:
            yield from _conduct(self._wire, of, taken, FunctionCall(of.name, of.version, taken["arguments"]))
        except Exception as error:
            said = validation.error_text(error)
        found = yield Send("/v1/flows/get", {"flow_id": taken["flow_id"], "ns": ns}, reads=True)
        return Rerun(wire.shape(Flow).load(found, ""), said)
