"""Events as lines, and lines packed into chunks; pure.

A line is a JSON array: the moment in microseconds, the timestamp as given, type, instance, project, span, trace, data.
A chunk is up to a thousand lines, compressed: lightly while it is hot, harder when it is warm, hardest when cold.
"""

import json
import lzma
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any, Final, NamedTuple

from holdproof.errors import CorruptError, InvalidInputError
from holdproof.model import jsontext
from holdproof.model.storage import TelemetryEvent

SIZE: Final = 1_000
HOT, WARM, COLD = "zlib", "zlib9", "lzma"

_PACK: Mapping[str, Callable[[bytes], bytes]] = {
    HOT: lambda raw: zlib.compress(raw, 1),
    WARM: lambda raw: zlib.compress(raw, 9),
    COLD: lzma.compress,
}
_UNPACK: Mapping[str, Callable[[bytes], bytes]] = {HOT: zlib.decompress, WARM: zlib.decompress, COLD: lzma.decompress}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NAME = (str, type(None))
_dumps = jsontext.encoder(ascii=True)
_tuple = tuple.__new__


class Line(NamedTuple):
    """An event, ready to be kept: its moment, its text, and what it can be found by."""

    at: int
    text: str
    names: tuple[str | None, ...]


def moment(timestamp: str) -> int:
    """Microseconds since 1970 of a time in ISO-8601; one without a zone is taken as UTC."""
    try:
        told = datetime.fromisoformat(timestamp)
        since = (told if told.tzinfo else told.replace(tzinfo=UTC)) - _EPOCH
        return since.days * 86_400_000_000 + since.seconds * 1_000_000 + since.microseconds
    except (ValueError, TypeError) as error:
        raise InvalidInputError(f"a time is told in ISO-8601, as in 2026-01-31T12:00:00Z: {timestamp!r}") from error


def line(event: TelemetryEvent) -> Line:
    """An event as a line; InvalidInputError where it has no type, no time, or data that JSON cannot hold."""
    try:
        kind, instance, span, trace = event.event_type, event.instance_id, event.span_id, event.trace_id
        project, timestamp, data = event.project_hash, event.timestamp, event.data
    except AttributeError as error:
        raise InvalidInputError(f"no event: {error}", field="events") from error
    if not kind or not _plain(kind, span, trace, instance, project):
        raise InvalidInputError("an event needs a type, and its names are text")
    at = moment(timestamp)
    try:
        text = _dumps([at, timestamp, kind, instance, project, span, trace, data])
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInputError(f"the data of an event must be plain JSON: {error}", event_type=kind) from error
    return _tuple(Line, (at, text, (span, trace, instance, kind)))  # the way over Line itself takes half as long again


def _plain(kind: object, span: object, trace: object, instance: object, project: object = None) -> bool:
    named = isinstance(span, _NAME) and isinstance(trace, _NAME) and isinstance(instance, _NAME)
    return named and isinstance(kind, str) and isinstance(project, _NAME)


def event(parts: Sequence[Any]) -> TelemetryEvent:
    """The event of a line that was read."""
    _, timestamp, kind, instance, project, span, trace, data = parts
    return TelemetryEvent(kind, timestamp, data, instance, project, span, trace)


def pack(texts: Iterable[str], codec: str = HOT) -> bytes:
    """Lines as the bytes of a chunk."""
    return _PACK[codec]("\n".join(texts).encode("ascii"))


def unpack(data: bytes, codec: str) -> str:
    """The text of a chunk; CorruptError where the bytes are not what was packed."""
    try:
        return _UNPACK[codec](data).decode("ascii")
    except (KeyError, ValueError, zlib.error, lzma.LZMAError) as error:
        raise CorruptError(f"a chunk of telemetry is damaged: {error}") from error


def key(place: int, name: str) -> int:
    """The number under which a chunk is found by a span (0), trace (1), instance (2) or type (3)."""
    digest = blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8, person=b"%d" % place).digest()
    return int.from_bytes(digest, "big", signed=True)


def keys(names: Iterable[tuple[str | None, ...]]) -> Iterator[int]:
    """Every number that a chunk with these events is to be found by, once."""
    for place, column in enumerate(zip(*names, strict=True)):
        yield from (key(place, name) for name in set(column) if name is not None)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What events must match; every part that is not None counts."""

    span_id: str | None
    trace_id: str | None
    instance_id: str | None
    event_type: str | None
    since: int
    until: int

    def _names(self) -> tuple[str | None, ...]:
        return self.span_id, self.trace_id, self.instance_id, self.event_type

    def checked(self) -> "Wanted":
        """The same, once it is sure that every name is one."""
        if not _plain(
            "" if self.event_type is None else self.event_type, self.span_id, self.trace_id, self.instance_id
        ):
            raise InvalidInputError("events are found by names, and a name is text")
        return self

    @property
    def key(self) -> int | None:
        """The number of the rarest name that is asked for."""
        return next((key(place, name) for place, name in enumerate(self._names()) if name is not None), None)

    @property
    def needle(self) -> str:
        """What stands in every line that matches: the rarest name; nothing where none is asked for."""
        return next((_dumps(name) for name in self._names() if name is not None), "")

    def among(self, text: str) -> Iterator[list[Any]]:
        """The lines of a text that match, read; the others are passed over without reading them."""
        names, needle = self._names(), self.needle
        for each in _lines_with(needle, text) if needle else filter(None, text.split("\n")):
            at, _, kind, instance, _, span, trace, _ = parts = json.loads(each)
            same = all(want in (None, has) for want, has in zip(names, (span, trace, instance, kind), strict=True))
            if same and self.since <= at <= self.until:
                yield parts


EVERYTHING: Final = Wanted(None, None, None, None, -(2**62), 2**62)


def _lines_with(needle: str, text: str) -> Iterator[str]:
    at = text.find(needle)
    while at >= 0:
        begin, end = text.rfind("\n", 0, at) + 1, text.find("\n", at)
        end = len(text) if end < 0 else end
        yield text[begin:end]
        at = text.find(needle, end)
