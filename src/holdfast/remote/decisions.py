"""Functions as flows, at a distance: `@store.decision(…)` and `flows.recover`, the functions running here.

Rules:
- A flow type has one function in a connected store; a second is refused. So is one of the wrong colour.
- A call that does not fit the function, or whose arguments are not JSON, opens nothing.
- How a function ends is its flow's affair: no failure keeps `recover` from the next.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import update_wrapper
from typing import Any, Generic

from holdfast.errors import AlreadyExistsError, WrongColourError
from holdfast.faces import wire
from holdfast.model.flows import Flow, Recovered, Rerun
from holdfast.remote.blocks import FLOW, Inside, Wire
from holdfast.remote.exchange import Exchange, Local, Send, words
from holdfast.remote.wires import AsyncWire
from holdfast.runtime import calls, rows
from holdfast.runtime.calls import Called
from holdfast.runtime.rows import MAIN


@dataclass(frozen=True, slots=True)
class Registered:
    """A function that flows run."""

    name: str
    version: str
    lease_s: float
    fn: Callable[..., Any]


class Decision(Generic[Wire]):
    """A registered function: each call opens a flow and works on it, and gives what the function gives."""

    def __init__(self, wired: Wire, registered: Registered, opening: Mapping[str, Any]) -> None:
        self._wire, self._registered, self._opening = wired, registered, dict(opening)
        update_wrapper(self, registered.fn)
        signature = inspect.signature(registered.fn)
        self.__signature__ = signature.replace(parameters=list(signature.parameters.values())[1:])

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Open a flow and run the function in it."""
        self.__signature__.bind(*args, **kwargs)
        return self._wire.run(self._decide(args, kwargs))

    def opening(self, agent: str | None = None, **opening: Any) -> "Decision[Wire]":
        """The same function, its next flow opened otherwise: for another agent, or by what else `flows.start` takes."""
        changed = opening if agent is None else {"agent_id": agent, **opening}
        return Decision(self._wire, self._registered, self._opening | changed)

    def _decide(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Exchange[Any]:
        of = self._registered
        called = calls.called(of.name, of.version, args, kwargs)
        given = self._opening | {"flow_type": of.name, "flow_version": of.version, "lease_s": of.lease_s}
        opened = yield Send("/v1/flows/run", wire.dump({**given, "called": called}))
        return (yield from _conduct(self._wire, of, opened, called))


def _conduct(wired: Any, of: Registered, opened: dict[str, Any], called: Called) -> Exchange[Any]:
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

    def register(self, fn: Callable[..., Any], registered: Registered, opening: Mapping[str, Any]) -> Decision[Wire]:
        """Make a function the one of its flow type."""
        name = rows.name("flow_type", registered.name)
        if inspect.iscoroutinefunction(fn) != isinstance(self._wire, AsyncWire):
            raise WrongColourError(f"the function of flow type {name} does not fit this face", flow_type=name)
        if self._known.setdefault(name, registered) is not registered:
            raise AlreadyExistsError(f"the flow type {name} has a function already", flow_type=name)
        return Decision(self._wire, registered, opening)

    def recover(self, worker: str | None, limit: int, ns: str = MAIN) -> Exchange[Recovered]:
        """Run orphaned flows again whose function is registered here, `limit` at most; the rest is left, and named."""
        again: list[Rerun] = []
        for of in tuple(self._known.values()):
            while len(again) < rows.limited(limit):
                wanted = {"name": of.name, "version": of.version, "lease_s": of.lease_s, "worker": worker, "ns": ns}
                taken = yield Send("/v1/flows/take", wanted)
                if taken is None:
                    break
                again.append((yield from self._again(of, taken, ns)))
        known = [[of.name, of.version] for of in self._known.values()]
        left = yield Send("/v1/flows/left", {"known": known, "limit": rows.limited(limit), "ns": ns})
        return Recovered(tuple(again), wire.shape(tuple[Flow, ...]).load(left, ""))

    def _again(self, of: Registered, taken: dict[str, Any], ns: str) -> Exchange[Rerun]:
        said: str | None = None
        try:
            yield from _conduct(self._wire, of, taken, Called(of.name, of.version, taken["arguments"]))
        except Exception as error:
            said = words(error)
        found = yield Send("/v1/flows/get", {"dfid": taken["dfid"], "ns": ns}, reads=True)
        return Rerun(wire.shape(Flow).load(found, ""), said)
