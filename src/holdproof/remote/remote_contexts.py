"""Remote context managers: `flows.run` and `relational.transaction`, whose functions run in this process.

The steps' functions run here; the server writes down what they gave. Leaving a block by an exception undoes its steps
as in one process, the functions that undo being called here too.
"""

from collections.abc import Callable
from contextvars import ContextVar
from functools import partial
from inspect import Signature
from typing import Any, Final, Generic, TypeVar

from holdproof import validation
from holdproof.api import problems, wire
from holdproof.api.catalogue import BlockName, MethodSpec, block_methods
from holdproof.errors import HoldproofError, InvalidInputError
from holdproof.executors import ContextBlock
from holdproof.remote.exchange import Exchange, Send, call, converse
from holdproof.remote.transport import AsyncTransport, SyncTransport

Wire = TypeVar("Wire", bound=AsyncTransport | SyncTransport, covariant=True)  # noqa: PLC0105

_INSIDE: Final[ContextVar[frozenset[str]]] = ContextVar("holdproof_remote_steps", default=frozenset())
"""The blocks in one of whose steps the caller is."""


def _anything(value: Any) -> Any:
    return wire.shape(Any).load(value, "")


class RemoteMethod(Generic[Wire]):
    """A method that is called over the wire: one of a resource, or one of an open block."""

    def __init__(self, wired: Wire, entry: MethodSpec, block: str | None = None) -> None:
        self._wire = wired
        self._entry = entry
        self._block = block

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the method on the server."""
        perform = self._wire.stream if self._entry.streams else self._wire.run
        return perform(call(self._entry, args, kwargs, self._wire.check_functions, block=self._block))

    @property
    def __signature__(self) -> Signature:
        return self._entry.signature

    @property
    def __doc__(self) -> str:  # type: ignore[override]
        return self._entry.summary


class Inside(Generic[Wire]):
    """What a block offers while it is open: its methods, and for a flow its id."""

    def __init__(self, wired: Wire, opened: dict[str, Any], block: BlockName) -> None:
        self._wire = wired
        self._block: str = opened["block"]
        self._methods = block_methods(block)
        self.flow_id: str | None = opened["flow_id"]
        self.undoing: dict[str, Callable[..., Any]] = {}

    def step(
        self,
        name: str,
        fn: Callable[..., Any],
        /,
        *args: Any,
        compensate: Callable[[Any], Any] | None = None,
        on_unknown: str = "ask",
        **kwargs: Any,
    ) -> Any:
        """Run a step once, whatever happens, and give its result; see `flows.run` of an embedded store."""
        return self._wire.run(self._step(name, partial(fn, *args, **kwargs), compensate, on_unknown))

    def _step(
        self, name: str, fn: Callable[[], Any], compensate: Callable[[Any], Any] | None, on_unknown: str
    ) -> Exchange[Any]:
        self._wire.check_functions(fn, compensate)
        # A context variable and not a flag: other tasks may use the same block at the same time.
        outside = _INSIDE.get()
        if self._block in outside:
            raise InvalidInputError(f"step {name} is inside a step, which is replayed whole: take it out")
        body = {"name": name, "on_unknown": on_unknown}
        if compensate is not None:
            # The function stays here; the server calls it back by its key when an exception leaves the block.
            body["compensate"] = key = f"undo {len(self.undoing)}"
            self.undoing[key] = compensate
        _INSIDE.set(outside | {self._block})
        try:
            yield Send(f"/v1/blocks/{self._block}/step", body, lines=True)
            return (yield from converse({"fn": fn}, _anything))
        finally:
            _INSIDE.set(outside)

    def __getattr__(self, method: str) -> RemoteMethod[Wire]:
        """Return another method of the block."""
        # copy and pickle probe for dunder names, also before there are methods to look in.
        entry = None if method.startswith("_") else self._methods.get(method)
        if entry is None:
            raise AttributeError(method)
        return RemoteMethod(self._wire, entry, self._block)

    def leave(self, error: BaseException | None) -> Exchange[None]:
        """Leave the block, as it should be left or by an exception."""
        body: dict[str, Any] = {}
        # Our own errors keep their code and fields on the way; of others only class name and text are sent.
        if isinstance(error, HoldproofError):
            body["problem"] = problems.problem(error)
        elif error is not None:
            body["error"] = validation.error_text(error)
        # Answered line by line, since leaving by an exception calls the compensations back.
        yield Send(f"/v1/blocks/{self._block}/leave", body, lines=True)
        yield from converse(self.undoing, _anything)


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
        """Leave the block on the server."""
        return self._inside.leave(error)
