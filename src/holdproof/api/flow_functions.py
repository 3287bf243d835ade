"""Functions as flows: `@store.flow(name="rebalance", agent="trader")`.

Rules:
- A name has one function in an open store; a second is refused.
- The async client takes `async def`, the sync client `def`; the wrong one is refused where it is decorated.
- A call with arguments that do not fit the function fails like a call of the function: nothing is opened.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial, update_wrapper
from typing import Any, Final, Generic, NoReturn, ParamSpec, TypeVar

from holdproof import validation
from holdproof.api.flow_block import OpenFlow
from holdproof.api.flow_handle import FlowHandle
from holdproof.db import Tx, Work, Write, ask
from holdproof.errors import AlreadyExistsError, InvalidInputError, WrongClientError
from holdproof.executors import AsyncExecutor, SyncExecutor, with_namespace
from holdproof.model.flows import Flow
from holdproof.model.schedules import FunctionRef
from holdproof.runtime import calls, functions
from holdproof.runtime.children import ChildCall, ChildFunction
from holdproof.runtime.flow_run import FlowRun
from holdproof.runtime.functions import FunctionSpec, RegisteredFunction
from holdproof.runtime.lease_keeper import keeper_of

P = ParamSpec("P")
R = TypeVar("R")
K = TypeVar("K", bound=FunctionSpec)

_QUEUEING: Final = frozenset({"queue", "delay_s", "not_before", "priority", "partition", "deduplicate"})
"""The keywords of `enqueue` that are not the function's."""
Registry = dict[str, RegisteredFunction]
"""The functions of an open store, by name."""
Performs = Callable[[Sequence[Any], Mapping[str, Any], Mapping[str, Any]], Any]
"""Opens a flow and runs a function in it: given its arguments, by place and by name, and how the flow is opened."""


class FlowFunction(FunctionRef, ChildFunction, Generic[P, R]):
    """A registered function: each call opens a flow and works on it, and gives what the function gives.

    Where a function is named, as in `schedules.create`, it stands for its name, its version and its agent.
    """

    def __init__(
        self,
        fn: Callable[..., R],
        performs: Performs,
        opening: Mapping[str, Any],
        enqueues: Performs,
        *,
        name: str,
        version: str,
        registered: FunctionSpec,
    ) -> None:
        super().__init__(name, version, opening.get("agent_id"))
        self._fn = fn
        self._performs = performs
        self._enqueues = enqueues
        self._opening = opening
        self._registered = registered
        update_wrapper(self, fn)
        signature = inspect.signature(fn)
        # Without the first parameter, the open flow: callers do not pass it.
        self.__signature__ = signature.replace(parameters=list(signature.parameters.values())[1:])

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Open a flow and run the function in it."""
        # Wrong arguments fail here, before a flow is opened that could only fail.
        self.__signature__.bind(*args, **kwargs)
        return self._performs(args, kwargs, self._opening)  # type: ignore[no-any-return]

    def check_arguments(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Refuse arguments that do not fit the function."""
        try:
            self.__signature__.bind(*args, **kwargs)
        except TypeError as error:
            raise InvalidInputError(f"{self.name} cannot be called so: {error}", field="args") from error

    def with_id(self, flow_id: str) -> "FlowFunction[P, R]":
        """The same function, its next flow under this id: a second call gives the first one's result.

        A call with other inputs under the same id is refused.
        """
        return self.opening(flow_id=flow_id)

    def enqueue(self, *args: Any, **kwargs: Any) -> Any:
        """Open a flow that a worker will run, and return its handle.

        Beside the function's own arguments it takes `queue`, `delay_s`, `priority`, `partition` and `deduplicate`.
        """
        queued = self.queueing(kwargs)
        self.__signature__.bind(*args, **kwargs)
        return self._enqueues(args, kwargs, {**self._opening, **queued})

    def enqueue_in(self, tx: Tx, /, *args: Any, **kwargs: Any) -> Flow:
        """Open a flow that a worker will run, in a transaction of the caller's, and return the flow.

        `store.write(lambda tx: refund.enqueue_in(tx, order))`: the flow is there if the rest of the transaction is. It
        takes what `enqueue` takes.
        """
        if not isinstance(self._registered, RegisteredFunction):
            raise WrongClientError("a function of a remote store runs by `enqueue`, or by being called")
        queued = self.queueing(kwargs)
        child = self.child_call(args, kwargs)
        return enqueue_call(tx, child.function, child.arguments, {**child.opening, **queued})

    def queueing(self, kwargs: dict[str, Any]) -> dict[str, Any]:
        """Remove and return the keywords of `enqueue` that are not the function's own."""
        return {name: kwargs.pop(name) for name in _QUEUEING & kwargs.keys() - self.__signature__.parameters.keys()}

    def child_call(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> ChildCall:
        """Return a call of the function as it is recorded, and how its flow is opened; for flows that start it."""
        self.__signature__.bind(*args, **kwargs)
        return ChildCall(self._registered, calls.arguments_text(args, kwargs), self._opening)

    def opening(self, agent: str | None = None, **opening: Any) -> "FlowFunction[P, R]":
        """The same function, its next flow opened otherwise: for another agent, or by what else `flows.start` takes."""
        changed = opening if agent is None else {"agent_id": agent, **opening}
        return FlowFunction(
            *(self._fn, self._performs, {**self._opening, **changed}, self._enqueues),
            name=self.name,
            version=self.version,
            registered=self._registered,
        )


def register(
    registry: Registry,
    executor: AsyncExecutor | SyncExecutor,
    fn: Callable[..., R],
    *,
    name: str,
    version: str,
    lease_s: float,
    opening: Mapping[str, Any],
    compatible: tuple[str, ...] = (),
) -> FlowFunction[Any, R]:
    """Register a function under its name."""

    def bind(run: FlowRun, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Callable[[], Any]:
        return partial(fn, OpenFlow(executor, run), *args, **kwargs)

    def within(opening: Mapping[str, Any]) -> dict[str, Any]:
        strict = executor.context.settings.strict_agents  # type: ignore[union-attr]
        return with_namespace(executor, {**opening, "strict": strict})

    def performs(args: Sequence[Any], kwargs: Mapping[str, Any], opening: Mapping[str, Any]) -> Any:
        return executor.run(functions.call(registered, args, kwargs, **within(opening)))

    def enqueues(args: Sequence[Any], kwargs: Mapping[str, Any], opening: Mapping[str, Any]) -> Any:
        return executor.run(_enqueue(executor, registered, args, kwargs, within(opening)))

    def keeps(run: FlowRun) -> AbstractContextManager[None]:
        return keeper_of(executor.database).keeping(run)

    registered = RegisteredFunction(
        *(name, version, lease_s, opening.get("agent_id"), compatible),
        bind=bind,
        keeps=keeps,
        code=_without_flow(fn),
    )
    enlist(registry, registered, fn, soft=isinstance(executor, AsyncExecutor))
    scoped = with_namespace(executor, {**opening})
    return FlowFunction(fn, performs, scoped, enqueues, name=name, version=version, registered=registered)


def _enqueue(
    executor: AsyncExecutor | SyncExecutor,
    function: FunctionSpec,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    opening: Mapping[str, Any],
) -> Work[FlowHandle[Any]]:
    # Encoded on the caller's thread: what cannot be recorded is refused before anything is written.
    text = calls.arguments_text(args, kwargs)
    flow = yield from ask(Write(lambda tx: enqueue_call(tx, function, text, opening)))
    return FlowHandle(executor, flow)


def _without_flow(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return something with the signature of a function as its callers see it, for policies; it is never called."""
    signature = inspect.signature(fn)

    def code(*_: Any, **__: Any) -> NoReturn:
        raise AssertionError("only its signature is read")

    code.__signature__ = signature.replace(parameters=[*signature.parameters.values()][1:])  # type: ignore[attr-defined]
    return code


def enqueue_call(tx: Tx, function: FunctionSpec, arguments: str, opening: Mapping[str, Any]) -> Flow:
    """Open a flow of a function that a worker will run, given the text of its arguments."""
    options = {**opening}
    agent_id = options.pop("agent_id", None)
    return functions.enqueue(
        tx,
        agent_id=agent_id,
        name=function.name,
        version=function.version,
        arguments=arguments,
        function=getattr(function, "code", None),
        **options,
    )


def enlist(registry: dict[str, K], kind: K, fn: Callable[..., Any], *, soft: bool) -> None:
    """Add a function to a registry, if its name is free and it is `async def` where that is needed (`soft`)."""
    name = validation.name("name", kind.name)
    if inspect.iscoroutinefunction(fn) != soft:
        raise WrongClientError(f"flow {name} must be {'async def' if soft else 'def'} for this client", name=name)
    # One step, so that of two threads that register the same name one is refused.
    if registry.setdefault(name, kind) is not kind:
        raise AlreadyExistsError(f"the flow {name} has a function already", name=name)
