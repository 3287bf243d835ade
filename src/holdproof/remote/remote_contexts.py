"""Remote context managers: `flows.run` and `relational.transaction`, whose functions run in this process.

The steps' functions run here; the server writes down what they gave. Leaving a block by an exception undoes its steps
as in one process, the functions that undo being called here too.
"""

from collections.abc import Callable
from contextvars import ContextVar
from functools import partial
from types import TracebackType
from typing import Any, Final, Generic, TypeVar

from holdproof import validation
from holdproof.api import problems, wire
from holdproof.errors import HoldproofError, InvalidInputError
from holdproof.model.coordination import Escalation, Lock
from holdproof.remote.exchange import Exchange, Loads, Send, converse
from holdproof.remote.transport import AsyncTransport, SyncTransport

Wire = TypeVar("Wire", bound=AsyncTransport | SyncTransport, covariant=True)  # noqa: PLC0105

_INSIDE: Final[ContextVar[frozenset[str]]] = ContextVar("holdproof_remote_steps", default=frozenset())
"""The blocks in one of whose steps the caller is."""


def _anything(value: Any) -> Any:
    return wire.shape(Any).load(value, "")


def _loads(kind: Any) -> Loads:
    return lambda value: wire.shape(kind).load(value, "")


FLOW: Final[dict[str, Loads]] = {
    "lock": _loads(tuple[Lock, ...]),
    "approve": _loads(Escalation),
    "heartbeat": _loads(None),
}
"""The methods of a leased flow beside `step`, and how their answers are read."""
TRANSACTION: Final[dict[str, Loads]] = {
    **dict.fromkeys(("execute", "executemany"), _loads(int)),
    "fetch_all": _loads(list[dict[str, Any]]),
    "fetch_one": _loads(dict[str, Any] | None),
}
"""The same of a transaction."""


class Inside(Generic[Wire]):
    """What a block offers while it is open: its methods, and for a flow its id."""

    def __init__(self, wired: Wire, opened: dict[str, Any], answers: dict[str, Loads]) -> None:
        self._wire = wired
        self._block = opened["block"]
        self._answers = answers
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

    def __getattr__(self, method: str) -> Callable[..., Any]:
        """Return another method of the block."""
        if method not in self._answers:
            raise AttributeError(method)
        load = self._answers[method]

        def call(first: Any = None, second: Any = None, /, **arguments: Any) -> Any:
            named = dict(zip(_FIRST.get(method, ()), (first, second), strict=False))
            return self._wire.run(
                self._call(method, {k: v for k, v in named.items() if v is not None} | arguments, load)
            )

        return call

    def _call(self, method: str, arguments: dict[str, Any], load: Loads) -> Exchange[Any]:
        yield Send(f"/v1/blocks/{self._block}/{method}", wire.dump(arguments), lines=True)
        return (yield from converse({}, load))

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


_FIRST: Final = {
    "lock": ("resources",),
    "approve": ("reason",),
    **dict.fromkeys(("execute", "executemany", "fetch_all", "fetch_one"), ("query", "params")),
    "executemany": ("query", "rows"),
}
"""The parameters that are given by their place."""


class RemoteBlock(Generic[Wire]):
    """A block about to be entered."""

    _inside: "Inside[Wire]"

    def __init__(self, wired: Wire, path: str, arguments: dict[str, Any], answers: dict[str, Loads]) -> None:
        self._wire = wired
        self._path = path
        self._arguments = arguments
        self._answers = answers

    def _open(self) -> Exchange[dict[str, Any]]:
        opened: dict[str, Any] = yield Send(self._path, wire.dump(self._arguments))
        return opened

    async def __aenter__(self: "RemoteBlock[AsyncTransport]") -> "Inside[AsyncTransport]":
        self._inside = Inside(self._wire, await self._wire.run(self._open()), self._answers)
        return self._inside

    async def __aexit__(
        self: "RemoteBlock[AsyncTransport]",
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None or isinstance(error, Exception):  # else the worker itself is being stopped
            await self._wire.run(self._inside.leave(error))

    def __enter__(self: "RemoteBlock[SyncTransport]") -> "Inside[SyncTransport]":
        self._inside = Inside(self._wire, self._wire.run(self._open()), self._answers)
        return self._inside

    def __exit__(
        self: "RemoteBlock[SyncTransport]",
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None or isinstance(error, Exception):
            self._wire.run(self._inside.leave(error))
