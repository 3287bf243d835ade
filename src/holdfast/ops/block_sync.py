"""A flow as a block, on the sync face: `with store.flows.run("trader") as flow`."""

from collections.abc import Callable
from types import TracebackType
from typing import Any

from holdfast.db import Work
from holdfast.model.guards import Escalation, Lock
from holdfast.ops.sync_face import SyncFace
from holdfast.runtime import runs
from holdfast.runtime.runs import Run


class SyncFlow:
    """A flow that is worked on: leaving the block completes it, an exception undoes its steps and fails it."""

    def __init__(self, face: SyncFace, entering: Work[Run]) -> None:
        self._face, self._entering = face, entering
        self._run: Run | None = None

    @property
    def run(self) -> Run:
        """The flow in hand; there is one inside the block only."""
        assert self._run is not None, "enter the block first"
        return self._run

    @property
    def dfid(self) -> str:
        """The flow's id."""
        return self.run.hand.dfid

    def step(
        self, name: str, fn: Callable[..., Any], *args: Any, compensate: Callable[[Any], Any] | None = None, **more: Any
    ) -> Any:
        """Run a step once, whatever happens, and give its result; `compensate` gets the result if it is to be undone.

        `on_unknown` is "ask", "retry" or "fail": what to do if a worker that is gone began it and never finished.
        """
        return self._face.run(runs.step(self.run, name, fn, *args, compensate=compensate, **more))

    def lock(self, resources: dict[str, float], **options: Any) -> tuple[Lock, ...]:
        """Acquire resources until the flow ends; options are those of `locks.acquire`."""
        return self._face.run(runs.lock(self.run, resources, **options))

    def ask(self, reason: str, **options: Any) -> Escalation:
        """Ask a person and wait; options are those of `escalations.request`. An error unless they approve."""
        return self._face.run(runs.question(self.run, reason, **options))

    def heartbeat(self) -> None:
        """Say that the worker lives, between steps that are far apart."""
        self._face.run(runs.beat(self.run))

    def __enter__(self) -> "SyncFlow":
        self._run = self._face.run(self._entering)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self._face.run(runs.complete(self.run))
        elif isinstance(error, Exception):
            self._face.run(runs.abort(self.run, error))
