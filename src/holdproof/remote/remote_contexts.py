"""Remote context managers: `flows.run` and `relational.transaction`, whose functions run in this process.

The steps' functions run here; the server writes down what they gave. Leaving a block by an exception undoes its steps
as in one process, the functions that undo being called here too.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from inspect import Signature
from typing import Any, Generic

from holdproof import validation
from holdproof.api import problems, wire
from holdproof.api.catalogue import BlockName, MethodSpec, block_methods
from holdproof.api.flow_messages import shown_token
from holdproof.db.effects import Call
from holdproof.errors import HoldproofError, InvalidInputError, StoppingError
from holdproof.executors import ContextBlock
from holdproof.model import typed_json
from holdproof.model.messages import PromiseTicket
from holdproof.remote.exchange import Exchange, Send, call, converse
from holdproof.remote.flow_handles import Wire
from holdproof.remote.remote_gathers import IN_STEPS_OF_BLOCKS, FlowChildren
from holdproof.runtime import flow_steps, promises, recorded
from holdproof.runtime.flow_steps import StepCall, StepOptions
from holdproof.runtime.functions import FunctionSpec


def _anything(value: Any) -> Any:
    return wire.shape(Any).load(value, "")


def _giving_encoded(fn: Callable[[], Any]) -> Callable[[], Any]:
    """The function of a step, giving tagged JSON: the server records what it cannot know the class of."""
    if inspect.iscoroutinefunction(fn):

        async def coroutine() -> Any:
            return typed_json.encode(await fn(), "it")

        return coroutine
    return lambda: _encoded(fn())


def _encoded(result: Any) -> Any:
    # A plain function may return an awaitable, which the transport awaits before it sends anything.
    if not inspect.isawaitable(result):
        return typed_json.encode(result, "it")

    async def awaited() -> Any:
        return typed_json.encode(await result, "it")

    return awaited()


def _taking_decoded(undo: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The function that undoes a step, taking the result as the server sends it."""
    if inspect.iscoroutinefunction(undo):

        async def coroutine(result: Any) -> Any:
            return await undo(typed_json.decode(result))

        return coroutine
    return lambda result: undo(typed_json.decode(result))


class RemoteMethod(Generic[Wire]):
    """A method that is called over the wire: one of a resource, or one of an open block."""

    def __init__(self, wired: Wire, entry: MethodSpec, block: str | None = None) -> None:
        self._wire = wired
        self._entry = entry
        self._block = block

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the method on the server."""
        perform = self._wire.stream if self._entry.streams else self._wire.run
        return perform(self.exchange(args, kwargs))

    def exchange(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Exchange[Any]:
        """Run the method on the server, as part of another exchange."""
        # Refused here: the server does not know which code calls it.
        if self._entry.exposure.outside_steps and self._block in IN_STEPS_OF_BLOCKS.get():
            raise InvalidInputError(f"{self._entry.method} is inside a step, which is replayed whole: take it out")
        return (yield from call(self._entry, args, kwargs, self._wire.check_functions, block=self._block))

    @property
    def __signature__(self) -> Signature:
        return self._entry.signature

    @property
    def __doc__(self) -> str:  # type: ignore[override]
        return self._entry.summary


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteFunction(FunctionSpec):
    """A function that flows run, here."""

    fn: Callable[..., Any]


class Inside(FlowChildren[Wire]):
    """What a block offers while it is open: its methods, and for a flow its id."""

    def __init__(self, wired: Wire, opened: dict[str, Any], block: BlockName) -> None:
        self._wire = wired
        self._block: str = opened["block"]
        self._methods = block_methods(block)
        self.flow_id: str | None = opened["flow_id"]
        self.undoing: dict[str, Callable[..., Any]] = {}

    def step(self, first: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Run a step once, whatever happens, and give its result; see `flows.run` of an embedded store."""
        options = StepOptions(**{name: kwargs.pop(name) for name in flow_steps.OPTIONS & kwargs.keys()})
        return self._wire.run(self._step(flow_steps.prepare(first, args, kwargs, options)))

    def _step(self, step: StepCall, reached: int | None = None) -> Exchange[Any]:
        options = step.options
        name = step.name
        compensate = options.compensate
        self._wire.check_functions(step.fn, compensate)
        # A context variable and not a flag: other tasks may use the same block at the same time.
        outside = IN_STEPS_OF_BLOCKS.get()
        if self._block in outside:
            raise InvalidInputError(f"step {name} is inside a step, which is replayed whole: take it out")
        body: dict[str, Any] = {
            "name": name,
            "on_unknown": options.on_unknown,
            "arguments": step.arguments,
            "record_args": options.record_args,
            "retries": options.retries,
            "backoff_s": options.backoff_s,
            "timeout_s": options.timeout_s,
            "reached": reached,
        }
        if compensate is not None:
            # The function stays here; the server calls it back by its key when an exception leaves the block.
            body["compensate"] = key = f"undo {len(self.undoing)}"
            self.undoing[key] = _taking_decoded(compensate)
        IN_STEPS_OF_BLOCKS.set(outside | {self._block})
        try:
            yield Send(f"/v1/blocks/{self._block}/step", body, lines=True)
            functions = {"fn": _giving_encoded(step.fn)}
            return typed_json.decode((yield from converse(functions, _anything, retry_on=options.retry_on)))
        finally:
            IN_STEPS_OF_BLOCKS.set(outside)

    def promise(self, name: str) -> Any:
        """Create a promise; see `flow.promise` of an embedded store."""
        return self._wire.run(self._promise(name))

    def _promise(self, name: str) -> Exchange["RemotePromise"]:
        create = RemoteMethod(self._wire, self._methods["create_promise"], self._block)
        return RemotePromise(self, (yield from create.exchange((name,), {})))

    def wait_for(self, promise: Any, *, timeout_s: float | None = None) -> Any:
        """Wait until a promise is settled, and return what it was resolved with."""
        promise_id = getattr(promise, "promise_id", promise)
        return RemoteMethod(self._wire, self._methods["wait_for"], self._block)(promise_id, timeout_s=timeout_s)

    def publish(self, key: str, value: Any = None) -> Any:
        """Publish a value under a key, for `flows.published`; it replaces the one before."""
        return self._told("publish", key, value)

    def stream(self, name: str) -> "RemoteStream":
        """Return a stream of the flow, to `write` to and to `close`; `flows.stream` reads it."""
        return RemoteStream(self, name)

    def write_stream(self, stream: str, value: Any = None) -> Any:
        """Write the next item of a stream, for `flows.stream`."""
        return self._told("write_stream", stream, value)

    def close_stream(self, stream: str) -> Any:
        """End a stream: its readers end too."""
        return self._told("close_stream", stream)

    def _told(self, method: str, *args: Any) -> Any:
        """Call a method that is recorded unless a step calls it: only this end knows which code calls."""
        in_step = self._block in IN_STEPS_OF_BLOCKS.get()
        return RemoteMethod(self._wire, self._methods[method], self._block)(*args, in_step=in_step)

    def __getattr__(self, method: str) -> RemoteMethod[Wire]:
        """Return another method of the block."""
        # copy and pickle probe for dunder names, also before there are methods to look in.
        entry = None if method.startswith("_") else self._methods.get(method)
        if entry is None:
            raise AttributeError(method)
        return RemoteMethod(self._wire, entry, self._block)

    def conduct(self, of: Any, arguments: tuple[list[Any], dict[str, Any]]) -> Exchange[Any]:
        """Run a function in the flow, and end the flow as it ends."""
        args, kwargs = arguments
        try:
            result = yield Call(partial(of.fn, self, *args, **kwargs))
            text = recorded.dump(typed_json.encode(result, f"the result of {of.name}"))
        except StoppingError:
            # The flow did not fail: it is left as by a worker that is gone, and is taken up again (`flows.recover`).
            raise
        except Exception as error:
            yield from self.leave(error)
            raise
        yield from self.leave(None, result=text)
        return typed_json.decode(recorded.parse(text))

    def leave(self, error: BaseException | None, *, result: str | None = None) -> Exchange[None]:
        """Leave the block, as it should be left or by an exception; `result` is the text of what its function gave."""
        body: dict[str, Any] = {} if result is None else {"result": result}
        # Our own errors keep their code and fields on the way; of others only class name and text are sent.
        if isinstance(error, HoldproofError):
            body["problem"] = problems.problem(error)
        elif error is not None:
            body["error"] = validation.error_text(error)
        # Answered line by line, since leaving by an exception calls the compensations back.
        yield Send(f"/v1/blocks/{self._block}/leave", body, lines=True)
        yield from converse(self.undoing, _anything)


class RemotePromise:
    """A promise of a flow on a server."""

    def __init__(self, flow: Inside[Any], ticket: PromiseTicket) -> None:
        self._flow = flow
        self._ticket = ticket
        self.promise_id = ticket.promise_id
        self.name = ticket.name
        self.url = promises.PATH

    @property
    def token(self) -> str:
        """The secret that resolves the promise."""
        return shown_token(self._ticket)

    def wait(self, *, timeout_s: float | None = None) -> Any:
        """Wait until the promise is settled, and return what it was resolved with."""
        return self._flow.wait_for(self, timeout_s=timeout_s)

    def __repr__(self) -> str:
        return f"<RemotePromise {self.name}>"


class RemoteStream:
    """A stream of a flow on a server."""

    def __init__(self, flow: Inside[Any], name: str) -> None:
        self._flow = flow
        self.name = name

    def write(self, value: Any = None) -> Any:
        """Write the next item."""
        return self._flow.write_stream(self.name, value)

    def close(self) -> Any:
        """End the stream: its readers end too."""
        return self._flow.close_stream(self.name)

    def __repr__(self) -> str:
        return f"<RemoteStream {self.name}>"


class RemoteBlock(ContextBlock[Wire, Inside[Wire]]):
    """A block about to be entered."""

    _inside: Inside[Wire]

    def __init__(self, wired: Wire, path: str, arguments: dict[str, Any], block: BlockName) -> None:
        super().__init__(wired)
        self._path = path
        self._arguments = arguments
        self._block = block

    def entering(self) -> Exchange[Inside[Wire]]:
        """Open the block on the server."""
        opened: dict[str, Any] = yield Send(self._path, wire.dump(self._arguments))
        self._inside = Inside(self._runner, opened, self._block)
        return self._inside

    def leaving(self, error: Exception | None) -> Exchange[None]:
        """Leave the block on the server; one whose server stops is left as by a worker that is gone."""
        if not isinstance(error, StoppingError):
            yield from self._inside.leave(error)
