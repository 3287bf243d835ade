"""A flow as a block: `async with store.flows.run("trader") as flow`, or `with`."""

import inspect
from types import TracebackType
from typing import Any

from holdproof.db import Work
from holdproof.errors import InvalidInputError
from holdproof.executors import AsyncExecutor, Executor, Resource, RunsWith, SyncExecutor
from holdproof.runtime import runs
from holdproof.runtime.runs import FlowRun


class OpenFlow(Resource[Executor]):
    """An open flow: its steps, locks and approvals."""

    step = RunsWith(runs.step)
    lock = RunsWith(runs.lock)
    approve = RunsWith(runs.approve)
    heartbeat = RunsWith(runs.beat)

    def __init__(self, executor: Executor, run: FlowRun) -> None:
        super().__init__(executor)
        self._run = run

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


class FlowBlock(Resource[Executor]):
    """A flow as a block: leaving it completes the flow, an exception undoes its steps and fails it."""

    _run: FlowRun

    def __init__(self, executor: Executor, entering: Work[FlowRun]) -> None:
        super().__init__(executor)
        self._entering = entering

    @classmethod
    def around(cls, executor: Executor, run: FlowRun) -> "FlowBlock[Executor]":  # type: ignore[misc]
        """Return a block around a flow that is leased already: it can be left, not entered."""
        block = cls(executor, _nothing())
        block._run = run
        return block

    def _enter(self) -> Work[FlowRun]:
        """Open the flow, or resume it; a block is entered once."""
        # A generator runs once: entered again, it would end at once and hand out no flow.
        if inspect.getgeneratorstate(self._entering) != inspect.GEN_CREATED:
            raise InvalidInputError("a block is entered once: `flows.run` makes another")
        return self._entering

    def _leaving(self, error: BaseException | None) -> Work[Any] | None:
        """What leaving the block has to do; nothing if the worker itself is being stopped."""
        if error is None:
            return runs.complete(self._run)
        # KeyboardInterrupt and the like stop the worker, not the flow: its lease ends, and another worker resumes it.
        return runs.abort(self._run, error) if isinstance(error, Exception) else None

    async def __aenter__(self: "FlowBlock[AsyncExecutor]") -> OpenFlow[AsyncExecutor]:
        self._run = await self._executor.run(self._enter())
        return OpenFlow(self._executor, self._run)

    async def __aexit__(
        self: "FlowBlock[AsyncExecutor]",
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if (work := self._leaving(error)) is not None:
            await self._executor.run(work)

    def __enter__(self: "FlowBlock[SyncExecutor]") -> OpenFlow[SyncExecutor]:
        self._run = self._executor.run(self._enter())
        return OpenFlow(self._executor, self._run)

    def __exit__(
        self: "FlowBlock[SyncExecutor]",
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if (work := self._leaving(error)) is not None:
            self._executor.run(work)


def _nothing() -> Work[FlowRun]:
    raise InvalidInputError("this flow is leased already")
    yield  # makes it a generator: the error comes when the block is entered
