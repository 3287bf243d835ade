"""Conversations: what a framework recorded, as turns a person reads.

Frameworks encode their values themselves. JSON is read, and MessagePack where its decoder is installed, as it is beside
LangGraph: an extension stands for what it wraps, so that a message of any class shows its role and its text, and no
class is loaded. What cannot be read is shown as its size, never guessed.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from holdproof.model.memory import plain
from holdproof.model.threads import Checkpoint, EncodedList, EncodedValue, Listing

_ROLES: Final = {"human": "user", "ai": "assistant", "system": "system", "tool": "tool", "developer": "system"}
_LONGEST: Final = 8_000


@dataclass(frozen=True, slots=True)
class ThreadTurn:
    """One message: who said it, what, and which tools it calls."""

    role: str
    text: str
    calls: tuple[str, ...] = ()


def readable(checkpoint: Checkpoint) -> dict[str, Any]:
    """Return the channels of a checkpoint as plain values."""
    return {name: decoded(value) for name, value in checkpoint.channels.items()}


def decoded(value: Any) -> Any:
    """Return a value that a framework encoded as a plain one; its size where it cannot be read."""
    if isinstance(value, EncodedList):
        return [_decode(value.tag, value.data[digest]) for digest in value.digests if digest in value.data]
    if isinstance(value, Listing):
        return [_decode(value.tag, element) for element in value.elements]
    if isinstance(value, EncodedValue):
        return _decode(value.tag, value.data)
    return plain(value)


def _decode(tag: str, data: bytes) -> Any:
    try:
        if "json" in tag:
            return json.loads(data)
        return _unpack(data) if "msgpack" in tag else data.decode()
    except (ValueError, ImportError, RecursionError):
        return f"{len(data)} bytes of {tag or 'no type'}"


def _unpack(data: bytes) -> Any:
    import ormsgpack  # noqa: PLC0415 (an optional extra: it comes with LangGraph)

    return _opened(ormsgpack.unpackb(data, ext_hook=_extension))


def _extension(code: int, data: bytes) -> Any:
    del code
    try:
        return _unpack(data)
    except ValueError:
        return data.hex()


def _opened(value: Any) -> Any:
    """An object that was encoded as (module, class, fields, …) is its fields, with its class as `type`."""
    if isinstance(value, list) and 3 <= len(value) <= 4 and isinstance(value[0], str) and isinstance(value[2], Mapping):
        _, kind, facts, *_ = value
        return {"type": facts.get("type") or str(kind), **facts}
    return value


def conversation(state: Mapping[str, Any]) -> tuple[ThreadTurn, ...]:
    """Return the messages among the channels of a checkpoint."""
    for name in ("messages", "history", "chat_history"):
        messages = state.get(name)
        if isinstance(messages, list):
            return tuple(filter(None, map(turn, messages)))
    return ()


def of_items(values: Iterable[Any]) -> tuple[ThreadTurn, ...]:
    """Return the items of a transcript as turns."""
    return tuple(
        turn(value) or ThreadTurn("item", json.dumps(plain(value), default=str)[:_LONGEST]) for value in values
    )


def turn(message: Any) -> ThreadTurn | None:
    """Return a message as a turn; None where it is none."""
    if not isinstance(message, Mapping):
        return None
    role = message.get("role") or message.get("type") or message.get("author")
    if not isinstance(role, str):
        return None
    calls = message.get("tool_calls")
    names = tuple(_call(each) for each in calls) if isinstance(calls, Sequence) and not isinstance(calls, str) else ()
    return ThreadTurn(_ROLES.get(role, role), _text(message.get("content", message.get("text", "")))[:_LONGEST], names)


def _call(call: Any) -> str:
    if not isinstance(call, Mapping):
        return str(call)
    function = call.get("function")
    facts = function if isinstance(function, Mapping) else call
    return f"{facts.get('name', '?')}({json.dumps(plain(facts.get('args', facts.get('arguments', {}))), default=str)})"


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(_text(part.get("text", "") if isinstance(part, Mapping) else part) for part in content)
    return "" if content is None else json.dumps(plain(content), default=str)
