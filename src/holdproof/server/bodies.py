"""Bodies of requests: read for callers who may call, bounded in the number of values, and parsed off the event loop.

Rules:
- A body has as many bytes as its settings allow (`RequestLimitsMiddleware`), and as many values: each costs a hundred
  times its bytes, first here and then in the thread that writes.
- What is large is parsed, loaded and written out by a thread: everybody else would wait for it on the event loop.
"""

import asyncio
import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

from starlette.requests import Request

from holdproof.api import wire
from holdproof.errors import InvalidInputError, TooLargeError
from holdproof.model.value import field_names
from holdproof.server.state import state_of

T = TypeVar("T")

# Bodies up to this size, and answers of up to so many values, cost less than handing them to a thread.
_SMALL_BYTES: Final = 64 * 1024
_SMALL_VALUES: Final = 2_000
_PLAIN: Final = frozenset({str, bytes, int, float, bool, type(None)})
# Possessive, and to the end where the quote is missing: tried again at each escape, a text would take quadratic time.
_STRING: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)', re.DOTALL)


async def read_object(request: Request) -> dict[str, Any]:
    """Return the one JSON object of a request; nothing is an empty one."""
    return await read_as(request, lambda values: values)


async def read_as(request: Request, load: Callable[[dict[str, Any]], T], most_bytes: int | None = None) -> T:
    """Return what `load` makes of the JSON object of a request; large bodies are parsed and loaded by a thread.

    `most_bytes` is a narrower limit than the server's own.
    """
    raw = await (request.body() if most_bytes is None else _body(request, most_bytes))
    most = state_of(request).settings.most_values

    def parse() -> T:
        return load(_parse(raw, most))

    return parse() if len(raw) <= _SMALL_BYTES else await asyncio.to_thread(parse)


async def _body(request: Request, most_bytes: int) -> bytes:
    raw = b""
    async for chunk in request.stream():
        raw += chunk
        if len(raw) > most_bytes:
            raise TooLargeError(f"a body has at most {most_bytes} bytes here", most=most_bytes)
    return raw


def _parse(raw: bytes, most: int) -> dict[str, Any]:
    if not raw:
        return {}
    # Strings may hold commas, so this may be too many, never too few; only then are the strings skipped.
    if _marks(raw) > most:
        _count_values(raw, most)
    try:
        value = _READS.decode(raw.decode())
    except (ValueError, RecursionError) as error:
        raise InvalidInputError(f"the body is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise InvalidInputError("the body is not a JSON object")
    return value


def _marks(text: bytes) -> int:
    """Return how many values a text outside of strings begins."""
    return text.count(b",") + text.count(b"[") + text.count(b"{")


def _count_values(raw: bytes, most: int) -> None:
    """Raise TooLargeError once the body has more than `most` values; stops there, however long it is."""
    total = 0
    start = 0
    for string in _STRING.finditer(raw):
        total += _marks(raw[start : string.start()])
        start = string.end()
        if total > most:
            break
    else:
        total += _marks(raw[start:])
    if total > most:
        raise TooLargeError(f"a body has at most {most} values; send it in parts", most=most)


def _refuse_constant(word: str) -> Any:
    raise ValueError(f"{word} is not JSON")


# Python reads and writes NaN and Infinity, JSON has neither: one that arrives is refused here.
_READS: Final = json.JSONDecoder(parse_constant=_refuse_constant)
_WRITES: Final = json.JSONEncoder(separators=(",", ":"))


async def encode(value: Any) -> str:
    """Return the JSON of an answer; a thread writes it out if it has many values."""

    def write() -> str:
        return _WRITES.encode(wire.dump(value))

    return write() if _count_up_to(value, _SMALL_VALUES) < _SMALL_VALUES else await asyncio.to_thread(write)


def _count_up_to(value: Any, most: int) -> int:
    """Return how many values an answer has; stops counting at `most`."""
    pending = [value]
    count = 0
    while pending and count < most:
        each = pending.pop()
        count += 1
        names = field_names(each.__class__)
        if names is not None:
            parts: Iterable[Any] = [getattr(each, name) for name in names]
        elif isinstance(each, str | bytes):
            continue
        elif isinstance(each, Mapping):
            parts = each.values()
        elif isinstance(each, Iterable) and not hasattr(each, "__next__"):
            parts = each
        else:
            continue
        # Most values hold nothing further: those are counted where they stand.
        for part in parts:
            if type(part) in _PLAIN:
                count += 1
            else:
                pending.append(part)
    return count
