"""A flow as a block: `async with store.flows.run("trader") as flow`, or `with`."""

import inspect
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar, overload

from holdproof.api.flow_handle import FlowHandle
from holdproof.api.flow_messages import FlowPromise, FlowStream
from holdproof.db import Work
from holdproof.errors import InvalidInputError
from holdproof.executors import AsyncExecutor, ContextBlock, Executor, Resource, RunsWith, SyncExecutor
from holdproof.model.flows import Flow
from holdproof.runtime import (
    children,
    flow_run,
    flow_steps,
    functions,
    gathers,
    lock_waits,
    messages,
    patches,
    promises,
    published,
    runs,
    streams,
)
from holdproof.runtime.children import ChildRun
from holdproof.runtime.flow_run import FlowRun
from holdproof.runtime.flow_steps import StepCall
from holdproof.runtime.lease_keeper import keeper_of
from holdproof.runtime.steps import OnUnknown

if TYPE_CHECKING:
    from holdproof.api.flow_functions import FlowFunction

R = TypeVar("R")
RetryOn = type[BaseException] | tuple[type[BaseException], ...]


class OpenFlow(Resource[Executor]):
    """An open flow: its steps, locks and approvals."""

    if TYPE_CHECKING:
        # A declaration has one type for all calls; a step's result is that of the function it is called with.
        @overload
        def step(
            self: "OpenFlow[SyncExecutor]",
            fn: Callable[..., R],
            /,
            *args: Any,
            compensate: Callable[[R], Any] | None = None,
            on_unknown: OnUnknown = "ask",
            retries: int = 0,
            backoff_s: float = 1.0,
            retry_on: RetryOn = Exception,
            timeout_s: float | None = None,
            record_args: bool = True,
            **kwargs: Any,
        ) -> R: ...
        @overload
        def step(
            self: "OpenFlow[AsyncExecutor]",
            fn: Callable[..., Coroutine[Any, Any, R]],
            /,
            *args: Any,
            compensate: Callable[[R], Any] | None = None,
            on_unknown: OnUnknown = "ask",
            retries: int = 0,
            backoff_s: float = 1.0,
            retry_on: RetryOn = Exception,
            timeout_s: float | None = None,
            record_args: bool = True,
            **kwargs: Any,
        ) -> Awaitable[R]: ...
        @overload
        def step(
            self: "OpenFlow[AsyncExecutor]",
            fn: Callable[..., R],
            /,
            *args: Any,
            compensate: Callable[[R], Any] | None = None,
            on_unknown: OnUnknown = "ask",
            retries: int = 0,
            backoff_s: float = 1.0,
            retry_on: RetryOn = Exception,
            timeout_s: float | None = None,
            record_args: bool = True,
            **kwargs: Any,
        ) -> Awaitable[R]: ...
        @overload
        def step(
            self: "OpenFlow[SyncExecutor]",
            name: str,
            fn: Callable[..., R],
            /,
            *args: Any,
            compensate: Callable[[R], Any] | None = None,
            on_unknown: OnUnknown = "ask",
            retries: int = 0,
            backoff_s: float = 1.0,
            retry_on: RetryOn = Exception,
            timeout_s: float | None = None,
            record_args: bool = True,
            **kwargs: Any,
        ) -> R: ...
        @overload
        def step(
            self: "OpenFlow[AsyncExecutor]",
            name: str,
            fn: Callable[..., Coroutine[Any, Any, R]],
            /,
            *args: Any,
            compensate: Callable[[R], Any] | None = None,
            on_unknown: OnUnknown = "ask",
            retries: int = 0,
            backoff_s: float = 1.0,
            retry_on: RetryOn = Exception,
            timeout_s: float | None = None,
            record_args: bool = True,
            **kwargs: Any,
        ) -> Awaitable[R]: ...
        @overload
        def step(
            self: "OpenFlow[AsyncExecutor]",
            name: str,
            fn: Callable[..., R],
            /,
            *args: Any,
            compensate: Callable[[R], Any] | None = None,
            on_unknown: OnUnknown = "ask",
            retries: int = 0,
            backoff_s: float = 1.0,
            retry_on: RetryOn = Exception,
            timeout_s: float | None = None,
            record_args: bool = True,
            **kwargs: Any,
        ) -> Awaitable[R]: ...
        def step(self, first: Any, /, *args: Any, **kwargs: Any) -> Any:
            """Run a step once, whatever happens, and return its result."""
    else:
        step = RunsWith(flow_steps.step, calls=("first", "args", "compensate"))
    # Local: they take functions, and number what they start before it starts.
    gather = RunsWith(gathers.gather, local=True)
    map = RunsWith(gathers.map, calls=("fn", "compensate"), local=True)
    sleep = RunsWith(flow_run.sleep, outside_steps=True)
    sleep_until = RunsWith(flow_run.sleep_until, outside_steps=True)
    patched = RunsWith(patches.patched, outside_steps=True)
    lock = RunsWith(lock_waits.lock, like=("locks", "acquire"))
    approve = RunsWith(runs.approve, like=("escalations", "request"), outside_steps=True)
    heartbeat = RunsWith(runs.beat)
    # Like `signal`: to which flows an agent may send is decided there.
    send = RunsWith(messages.send, like=("flows", "signal"), outside_steps=True)
    receive = RunsWith(messages.receive, outside_steps=True)
    create_promise = RunsWith(promises.create, outside_steps=True)
    wait_for = RunsWith(promises.wait_for, outside_steps=True)
    publish = RunsWith(published.publish)
    write_stream = RunsWith(streams.write)
    close_stream = RunsWith(streams.close)

    def __init__(self, executor: Executor, run: FlowRun) -> None:
        super().__init__(executor)
        self._run = run

    def call(self, first: Any, /, *args: Any, **kwargs: Any) -> StepCall | ChildRun:
        """Return a step that has not begun, for `gather`; or the flow of a registered function.

        It takes what `step` takes, or what `run` takes.
        """
        return gathers.prepare(first, *args, **kwargs)

    def start(
        self, function: "FlowFunction[..., Any]", /, *args: Any, queue: str = functions.DEFAULT_QUEUE, **kwargs: Any
    ) -> Any:
        """Start a registered function as a flow of its own, run by a worker of the queue, and return its handle.

        It is started once, also through crashes; `result(handle)` waits for it. Beside the function's own arguments it
        takes what `enqueue` takes.
        """
        queued = function.queueing(kwargs)
        work = children.start(self._run, function.child_call(args, kwargs), queue=queue, **queued)
        return self._executor.run(_handle(self._executor, work))

    def run(self, function: "FlowFunction[..., R]", /, *args: Any, queue: str | None = None, **kwargs: Any) -> R:
        """Run a registered function as a flow of its own and return its result: here, or by a worker of a queue."""
        queued = function.queueing(kwargs)
        work = children.call(self._run, function.child_call(args, kwargs), queue=queue, **queued)
        # What the function gives: a value, or an awaitable for an `async def`.
        return self._executor.run(work)  # type: ignore[return-value]

    def result(self, handle: FlowHandle[Any]) -> Any:
        """Wait for a flow that `start` started, and return its result; raises as `flows.result` does."""
        return self._executor.run(children.result(self._run, handle.flow_id))

    def drive(self, work: Work[R]) -> Any:
        """Run work on the flow, as a server does for a caller at the other end of a wire."""
        return self._executor.run(work)

    @overload
    def promise(self: "OpenFlow[SyncExecutor]", name: str) -> FlowPromise[SyncExecutor]: ...
    @overload
    def promise(self: "OpenFlow[AsyncExecutor]", name: str) -> Awaitable[FlowPromise[AsyncExecutor]]: ...
    def promise(self, name: str) -> Any:
        """Create a promise, once whatever happens: a `token` that resolves it, and a way to `wait` for that."""
        return self._executor.run(self._promise(name))

    def _promise(self, name: str) -> Work[FlowPromise[Any]]:
        return FlowPromise(self._executor, self._run, (yield from promises.create(self._run, name)))

    def stream(self, name: str) -> FlowStream[Executor]:
        """Return a stream of the flow, to `write` to and to `close`; `flows.stream` reads it."""
        return FlowStream(self._executor, self._run, name)

    @property
    def held(self) -> FlowRun:
        """The leased flow that its methods work on."""
        return self._run

    @property
    def ns(self) -> None:
        """None: a flow stays in its own namespace, so that its methods need not be held to one."""

    @property
    def flow_id(self) -> str:
        """The flow's id."""
        return self._run.lease.flow_id


def _handle(executor: Any, starting: Work[Flow]) -> Work[FlowHandle[Any]]:
    return FlowHandle(executor, (yield from starting))


class FlowBlock(ContextBlock[Executor, OpenFlow[Executor]]):
    """A flow as a block: leaving it completes the flow, an exception undoes its steps and fails it."""

    _run: FlowRun

    def __init__(self, executor: Executor, entering: Work[FlowRun]) -> None:
        super().__init__(executor)
        self._work = entering
        self.result: str | None = None
        """The text of what the flow's function returned, where the block stands for a function."""
        self.keeps = True
        """Whether the flow's lease is extended while the block is open: not for a caller that may be gone."""

    @classmethod
    def around(cls, executor: Executor, run: FlowRun) -> "FlowBlock[Executor]":  # type: ignore[misc]
        """Return a block around a flow that is leased already: it can be left, not entered."""
        block = cls(executor, _nothing())
        block._run = run
        block.keeps = False
        return block

    def entering(self) -> Work[OpenFlow[Executor]]:
        """Open the flow, or resume it; a block is entered once."""
        # A generator runs once: entered again, it would end at once and hand out no flow.
        if inspect.getgeneratorstate(self._work) != inspect.GEN_CREATED:
            raise InvalidInputError("a block is entered once: `flows.run` makes another")
        self._run = yield from self._work
        if self.keeps:
            keeper_of(self._runner.database).keep(self._run)
        return OpenFlow(self._runner, self._run)

    def leaving(self, error: Exception | None) -> Work[Any]:
        """Complete the flow, or undo its steps and fail it."""
        return runs.complete(self._run, self.result) if error is None else runs.abort(self._run, error)

    def left(self) -> None:
        """Extend the lease no longer, however the block was left."""
        keeper_of(self._runner.database).drop(self._run)


def _nothing() -> Work[FlowRun]:
    raise InvalidInputError("this flow is leased already")
    yield  # makes it a generator: the error comes when the block is entered
