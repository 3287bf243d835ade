"""What a call over the wire does, for the sync and the async client: a generator of effects (db/effects.py).

Its effects are requests and lines, `Call` for functions of the caller, and `Give` for the values of a stream;
transport.py carries them out. The lines are those of server/exchange.py.
"""

import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, TypeVar

from holdproof import validation
from holdproof.api import problems, wire
from holdproof.api.catalogue import MethodSpec
from holdproof.db.effects import Call, Give
from holdproof.errors import (
    ConnectionLostError,
    InvalidInputError,
    OutcomeUnknownError,
    RemoteError,
    StoppingError,
    UnreachableError,
)

T = TypeVar("T")
Functions = Mapping[str, Callable[..., Any]]
"""Functions of the caller, by the name the server calls them."""
Loads = Callable[[Any], Any]
RetryOn = type[BaseException] | tuple[type[BaseException], ...]
Check = Callable[..., None]
_AWAY_S: Final = 60.0
"""For how long a server that stopped is waited for."""
_PAUSE_S: Final = 0.5
LAST: Final = frozenset({"done", "raised", "failed"})
"""What the last line of an answer says."""


@dataclass(frozen=True, slots=True)
class Send:
    """Post a JSON object; the answer is what came back, or None if it comes line by line."""

    path: str
    body: dict[str, Any]
    lines: bool = False
    reads: bool = False
    """Whether it may be lost without harm."""


@dataclass(frozen=True, slots=True)
class ReadLine:
    """The next line of the answer."""


Exchange = Generator[Send | ReadLine | Call[Any] | Give[Any], Any, T]


def call(
    entry: MethodSpec, args: tuple[Any, ...], kwargs: dict[str, Any], check: Check, *, block: str | None = None
) -> Exchange[Any]:
    """Call a method with the caller's arguments: one of a resource, or one of an open block.

    `check` refuses functions that this client could not call when the server asks for it.
    """
    body, functions = _body(entry, entry.signature.bind(*args, **kwargs).arguments)
    check(*functions.values())
    # Inside a block every answer comes line by line: it may call back, and it may wait for a person.
    lines = entry.streams or bool(functions) or block is not None
    path = f"/v1/{entry.resource}/{entry.method}" if block is None else f"/v1/blocks/{block}/{entry.method}"
    send = Send(path, body, lines, entry.reads)
    if entry.waits and not lines:
        return entry.answer.load((yield from outlast(send)), "")
    answer = yield send
    if lines:
        return (yield from converse(functions, _loading(entry), reads=entry.reads))
    return answer if isinstance(answer, bytes) else entry.answer.load(answer, "")


def outlast(send: Send) -> Exchange[Any]:
    """Ask what waits for others; where the server stops meanwhile, ask again once it or another is in its place.

    Raises what the server's absence raises once that has lasted for a minute.
    """
    timeout_s = send.body.get("timeout_s")
    until = None if timeout_s is None else time.monotonic() + timeout_s
    stopped: float | None = None
    while True:
        remaining = {} if until is None else {"timeout_s": max(0.0, until - time.monotonic())}
        try:
            return (yield replace(send, body={**send.body, **remaining}))
        except StoppingError:
            stopped = time.monotonic()
        except (UnreachableError, ConnectionLostError, OutcomeUnknownError):
            # It waits and changes nothing, so that it may be asked twice; but only a server that stopped comes back.
            if stopped is None or time.monotonic() - stopped > _AWAY_S:
                raise
        yield Call(partial(time.sleep, _PAUSE_S))


def _loading(entry: MethodSpec) -> Loads:
    """How each answer is read; the end of a stream says nothing."""
    return lambda answer: None if entry.streams and answer is None else entry.answer.load(answer, "")


def _body(entry: MethodSpec, arguments: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Callable[..., Any]]]:
    """What is sent, and the functions that stay here."""
    body: dict[str, Any] = {}
    functions: dict[str, Callable[..., Any]] = {}
    for name, value in arguments.items():
        parameter = entry.parameter(name)
        assert parameter is not None, "the signature has it"
        if not parameter.offered:
            # A default that cannot cross the wire is left to the server; anything else would be silently ignored.
            if value is not None and value != parameter.default:
                raise RemoteError(f"{entry.resource}.{entry.method} takes no {name} over the wire", parameter=name)
        elif not parameter.shape.callback:
            body[name] = parameter.dump(value)
        elif value is not None:
            body[name] = True
            functions[name] = value
    return body, functions


def converse(functions: Functions, load: Loads, *, reads: bool = False, retry_on: RetryOn = Exception) -> Exchange[Any]:
    """Listen until the answer has come; call what the server asks for. Only what is `retry_on` is tried again there."""
    raised: dict[str, Exception] = {}
    while True:
        line = yield ReadLine()
        if line is None:
            # Without a last line the connection broke: for a change, nobody knows whether it happened.
            raise (ConnectionLostError if reads else OutcomeUnknownError)("the answer of the server has no end")
        if "progress" in line:
            functions["progress"](*wire.shape(Any).load(line["progress"], "progress"))
        elif "give" in line:
            yield Give(load(line["give"]))
        elif "call" in line:
            yield from _called(functions, line["call"], raised, retry_on)
        elif "done" in line:
            return load(line["done"])
        elif "raised" in line:
            # The caller's own exception object, with its traceback: the server only knows its text.
            raise raised[line["raised"]]
        elif "failed" in line:
            raise problems.error(line["failed"])


def _called(
    functions: Functions, request: Mapping[str, Any], raised: dict[str, Exception], retry_on: RetryOn
) -> Exchange[None]:
    """Call a function of the caller, and say how it ended."""
    anything = wire.shape(Any)
    args = anything.load(request["args"], "args")
    kwargs = anything.load(request.get("kwargs", {}), "kwargs")
    try:
        value = yield Call(partial(functions[request["fn"]], *args, **kwargs))
    except Exception as error:
        # Kept until the server says which failure ended the call: it may have handled this one.
        raised[request["id"]] = error
        how: dict[str, Any] = {"error": validation.error_text(error)}
        # Decided here: the server does not know the classes of this process.
        if not isinstance(error, retry_on):
            how["final"] = True
    else:
        how = _sayable(value)
    yield Send(f"/v1/exchanges/{request['exchange']}/{request['id']}", how)


def _sayable(value: Any) -> dict[str, Any]:
    try:
        return {"value": wire.dump(value)}
    except InvalidInputError as error:
        return {"unsayable": str(error)}
