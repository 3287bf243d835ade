"""Handles that an open flow gives out: a promise to wait for, and a stream to write to."""

from typing import NamedTuple

from holdproof.db import Work
from holdproof.errors import NotFoundError
from holdproof.executors import Executor, Resource, RunsWith
from holdproof.model.messages import PromiseTicket
from holdproof.model.typed_json import Recordable
from holdproof.runtime import promises, streams
from holdproof.runtime.flow_run import FlowRun


def shown_token(ticket: PromiseTicket) -> str:
    """Return the token of a promise; NotFoundError where it cannot be shown again."""
    if not ticket.token:
        raise NotFoundError(
            "the token cannot be shown again: the store was restored from a backup without keys",
            promise_id=ticket.promise_id,
        )
    return ticket.token


class _HeldPromise(NamedTuple):
    """A promise and the flow that waits for it."""

    run: FlowRun
    promise_id: str


def _wait(promise: _HeldPromise, *, timeout_s: float | None = None) -> Work[Recordable]:
    """Wait until the promise is settled, and return what it was resolved with; see `flow.wait_for`."""
    return (yield from promises.wait_for(promise.run, promise.promise_id, timeout_s=timeout_s))


class FlowPromise(Resource[Executor]):
    """A promise of an open flow: its token, for those who are to resolve it, and a way to wait for that."""

    wait = RunsWith(_wait)

    def __init__(self, executor: Executor, run: FlowRun, ticket: PromiseTicket) -> None:
        super().__init__(executor)
        self._held = _HeldPromise(run, ticket.promise_id)
        self._ticket = ticket

    @property
    def held(self) -> _HeldPromise:
        """The promise that its methods are about."""
        return self._held

    @property
    def ns(self) -> None:
        """None: a promise stays in the namespace of its flow."""

    @property
    def promise_id(self) -> str:
        """The promise's id, which is no secret."""
        return self._ticket.promise_id

    @property
    def name(self) -> str:
        """The promise's name."""
        return self._ticket.name

    @property
    def token(self) -> str:
        """The secret that resolves the promise, for `promises.resolve` or the server's `url`."""
        return shown_token(self._ticket)

    @property
    def url(self) -> str:
        """The path of a server that takes `{"token": …, "value": …}`, without any other authentication."""
        return promises.PATH

    def __repr__(self) -> str:
        # Without the token: it is a secret, and representations end up in logs.
        return f"<FlowPromise {self.name}>"


class _HeldStream(NamedTuple):
    """A stream and the flow that writes it."""

    run: FlowRun
    stream: str


def _write(target: _HeldStream, value: Recordable = None) -> Work[None]:
    """Write the next item; see `flows.stream` for its readers."""
    yield from streams.write(target.run, target.stream, value)


def _close(target: _HeldStream) -> Work[None]:
    """End the stream: its readers end too."""
    yield from streams.close(target.run, target.stream)


class FlowStream(Resource[Executor]):
    """A stream of an open flow."""

    write = RunsWith(_write)
    close = RunsWith(_close)

    def __init__(self, executor: Executor, run: FlowRun, stream: str) -> None:
        super().__init__(executor)
        self._held = _HeldStream(run, stream)

    @property
    def held(self) -> _HeldStream:
        """The stream that its methods write."""
        return self._held

    @property
    def ns(self) -> None:
        """None: a stream stays in the namespace of its flow."""

    @property
    def name(self) -> str:
        """The stream's name."""
        return self._held.stream

    def __repr__(self) -> str:
        return f"<FlowStream {self.name}>"
