"""Functions as flows: `@store.decision(flow_type="rebalance", agent="trader")`.

Rules:
- A flow type has one function in an open store; a second is refused.
- The async face takes `async def`, the sync face `def`; the wrong one is refused where it is decorated.
- A call with arguments that do not fit the function fails like a call of the function: nothing is opened.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial, update_wrapper
from typing import Any, Generic, ParamSpec, TypeVar

from holdfast.errors import AlreadyExistsError, WrongColourError
from holdfast.faces import AsyncFace, SyncFace, within
from holdfast.ops.block import OpenFlow
from holdfast.runtime import decisions, rows
from holdfast.runtime.decisions import Registered
from holdfast.runtime.runs import Run

P = ParamSpec("P")
R = TypeVar("R")

Registry = dict[str, Registered]
"""The functions of an open store, by flow type."""


class Decision(Generic[P, R]):
    """A registered function: each call opens a flow and works on it, and gives what the function gives."""

    def __init__(
        self, face: AsyncFace | SyncFace, fn: Callable[..., R], registered: Registered, opening: Mapping[str, Any]
    ) -> None:
        self._face, self._fn, self._registered, self._opening = face, fn, registered, opening
        update_wrapper(self, fn)
        signature = inspect.signature(fn)
        self.__signature__ = signature.replace(parameters=list(signature.parameters.values())[1:])

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Open a flow and run the function in it."""
        self.__signature__.bind(*args, **kwargs)
        opening = within(self._face, {**self._opening})
        answer: Any = self._face.run(decisions.decide(self._registered, args, kwargs, **opening))
        return answer  # type: ignore[no-any-return]

    def opening(self, agent: str | None = None, **opening: Any) -> "Decision[P, R]":
        """The same function, its next flow opened otherwise: for another agent, or by what else `flows.start` takes."""
        changed = opening if agent is None else {"agent_id": agent, **opening}
        return Decision(self._face, self._fn, self._registered, {**self._opening, **changed})


def register(
    registry: Registry,
    face: AsyncFace | SyncFace,
    fn: Callable[..., R],
    *,
    flow_type: str,
    flow_version: str,
    lease_s: float,
    opening: Mapping[str, Any],
) -> Decision[Any, R]:
    """Make a function the one of its flow type."""
    if inspect.iscoroutinefunction(fn) != isinstance(face, AsyncFace):
        raise WrongColourError(f"the function of flow type {flow_type} does not fit this face", flow_type=flow_type)

    def bind(run: Run, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Callable[[], Any]:
        return partial(fn, OpenFlow(face, run), *args, **kwargs)

    registered = Registered(rows.name("flow_type", flow_type), flow_version, lease_s, bind)
    if registry.setdefault(flow_type, registered) is not registered:
        raise AlreadyExistsError(f"the flow type {flow_type} has a function already", flow_type=flow_type)
    return Decision(face, fn, registered, opening)
