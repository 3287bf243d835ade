"""Children of a flow on a server, and steps and children that run at once; their functions run in this process.

The rules are those of an embedded store (runtime/children.py, runtime/gathers.py). The server numbers what runs at once
before the first of it starts, and tells what was recorded before.
"""

from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, Generic

from holdproof.api import wire
from holdproof.api.flow_functions import FlowFunction
from holdproof.errors import InvalidInputError
from holdproof.remote.exchange import Exchange, Send, converse
from holdproof.remote.flow_handles import RemoteHandle, Wire, flow_of, result_of
from holdproof.runtime import calls, gathers, recorded
from holdproof.runtime.children import ChildRun
from holdproof.runtime.flow_steps import StepCall
from holdproof.runtime.functions import DEFAULT_QUEUE
from holdproof.runtime.gathers import Gathered, Gathering, Member, OnError, StartedChild

if TYPE_CHECKING:
    from holdproof.remote.remote_contexts import Inside


IN_STEPS_OF_BLOCKS: Final[ContextVar[frozenset[str]]] = ContextVar("holdproof_remote_steps", default=frozenset())
"""The blocks in one of whose steps the caller is."""


def _anything(value: Any) -> Any:
    return wire.shape(Any).load(value, "")


class FlowChildren(Generic[Wire]):
    """What an open flow does with children, and with several at once."""

    _wire: Wire
    _block: str

    def call(self, first: Any, /, *args: Any, **kwargs: Any) -> StepCall | ChildRun:
        """Return a step, or the flow of a registered function, that has not begun, for `gather`."""
        return gathers.prepare(first, *args, **kwargs)

    def gather(self, *calls: Gathered, concurrency: int | None = None, on_error: OnError = "wait") -> Any:
        """Run steps and children at once, and return their results in their order; as in an embedded store."""
        return self._wire.run(self._gather(calls, concurrency, on_error))

    def map(
        self,
        fn: Callable[..., Any],
        items: Iterable[Any],
        *,
        concurrency: int | None = None,
        on_error: OnError = "wait",
        **options: Any,
    ) -> Any:
        """Run a function as one step or one child for each item, at once; see `gather`."""
        prepared = [gathers.prepare(fn, item, **options) for item in items]
        return self.gather(*prepared, concurrency=concurrency, on_error=on_error)

    def start(self, function: FlowFunction[..., Any], /, *args: Any, queue: str = DEFAULT_QUEUE, **kwargs: Any) -> Any:
        """Start a registered function as a flow of its own, run by a worker of the queue, and return its handle."""
        return self._wire.run(self._start(gathers.prepare(function, *args, queue=queue, **kwargs)))

    def run(self, function: FlowFunction[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Run a registered function as a flow of its own and return its result: here, or by a worker of a queue."""
        return self._wire.run(self._run_child(gathers.prepare(function, *args, **kwargs)))

    def result(self, handle: StartedChild) -> Any:
        """Wait for a flow that `start` started, and return its result."""
        return self._wire.run(self.child_result(handle.flow_id))

    def _check_outside(self, what: str) -> None:
        # Refused here: the server does not know which code calls it.
        if self._block in IN_STEPS_OF_BLOCKS.get():
            raise InvalidInputError(f"{what} is inside a step, which is replayed whole: move it out of the step")

    def _start(self, prepared: Any) -> Exchange[RemoteHandle[Wire]]:
        opened = yield from self._open(prepared)
        return RemoteHandle(self._wire, opened["flow_id"], opened["ns"])

    def _run_child(self, prepared: Any) -> Exchange[Any]:
        opened = yield from self._open(prepared)
        return (yield from self.finish_child(prepared, opened))

    def _open(self, prepared: ChildRun, reached: int | None = None) -> Exchange[dict[str, Any]]:
        """Open a child, or find the one that was opened here; without a queue it is leased for this process."""
        self._check_outside("starting a flow")
        child = prepared.child
        opening: Mapping[str, Any] = {name: value for name, value in child.opening.items() if name != "strict"}
        body = {
            **opening,
            **prepared.queued,
            "name": child.function.name,
            "version": child.function.version,
            **recorded.parse(child.arguments),
            "lease_s": child.function.lease_s,
            "queue": prepared.queue,
            "reached": reached,
        }
        present = {name: value for name, value in wire.dump(body).items() if value is not None}
        opened: dict[str, Any] = yield Send(f"/v1/blocks/{self._block}/child", present)
        return opened

    def finish_child(self, prepared: ChildRun, opened: dict[str, Any]) -> Exchange[Any]:
        """Run the function of a child here, if it is leased for this process, and return the child's result."""
        if opened["block"] is not None:
            child: Inside[Any] = type(self)(self._wire, opened, "flow")  # type: ignore[call-arg,assignment]
            try:
                yield from child.conduct(prepared.child.function, calls.decoded(opened["arguments"]))
            except Exception:
                name = {"flow_id": opened["flow_id"], "ns": opened["ns"]}
                flow = yield from flow_of(Send("/v1/flows/get", name, reads=True))
                # A parent that runs again has only what was recorded: it gets the same error the first time.
                if not flow.ended:
                    raise
        return (yield from self.child_result(opened["flow_id"]))

    def child_result(self, flow_id: str) -> Exchange[Any]:
        """Wait for a child to end, and return its result."""
        self._check_outside("waiting for a flow")
        yield Send(f"/v1/blocks/{self._block}/child_outcome", {"flow_id": flow_id}, lines=True)
        return result_of((yield from converse({}, lambda answer: answer)))

    def cancel_child(self, flow_id: str) -> Exchange[bool]:
        """Cancel a child that is open, and return whether it was."""
        yield Send(f"/v1/blocks/{self._block}/cancel_child", {"flow_id": flow_id}, lines=True)
        return bool((yield from converse({}, _anything)))

    def _gather(
        self, gathered: tuple[Gathered, ...], concurrency: int | None, on_error: OnError
    ) -> Exchange[list[Any]]:
        gathers.validate(gathered, concurrency, on_error)
        self._check_outside("gather")
        described = [_described(each) for each in gathered]
        numbers = yield Send(f"/v1/blocks/{self._block}/reach", {"calls": [each for each in described if each]})
        positions = iter(numbers)
        members = [
            Member(each, *next(positions)) if description else Member(each)
            for each, description in zip(gathered, described, strict=True)
        ]
        gathering = _RemoteGathering(self, on_error, concurrency)
        yield from gathering.run_all(members)
        return gathering.results(members)


def _described(each: Gathered) -> dict[str, str] | None:
    """What the server needs in order to number one of several; None for what it has numbered."""
    match each:
        case StepCall(name):
            return {"step": name}
        case ChildRun(_, queue):
            return {"child": "run" if queue is None else "start"}
    return None


class _RemoteGathering(Gathering):
    """Several works of a flow on a server."""

    def __init__(self, flow: Any, on_error: OnError, concurrency: int | None) -> None:
        super().__init__(on_error, concurrency)
        self._flow = flow

    def perform(self, member: Member) -> Exchange[Any]:
        """See Gathering."""
        match member.call:
            case StepCall() as step:
                return (yield from self._flow._step(step, member.number))
            case ChildRun() as child:
                opened = yield from self._flow._open(child, member.number)
                yield from self.note_child(member, opened["flow_id"])
                return (yield from self._flow.finish_child(child, opened))
            case started:
                yield from self.note_child(member, started.flow_id)
                return (yield from self._flow.child_result(started.flow_id))

    def cancel_child(self, flow_id: str) -> Exchange[bool]:
        """See Gathering."""
        cancelled: bool = yield from self._flow.cancel_child(flow_id)
        return cancelled
