"""Encoding of events as lines, and of lines as chunks; pure.

A line is a JSON array: the moment in microseconds, the original timestamp, type, instance, project, span, trace, data.
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
HOT: Final = "zlib"
WARM: Final = "zlib9"
COLD: Final = "lzma"

_PACK: Mapping[str, Callable[[bytes], bytes]] = {
    HOT: lambda raw: zlib.compress(raw, 1),
    WARM: lambda raw: zlib.compress(raw, 9),
    COLD: lzma.compress,
}
_UNPACK: Mapping[str, Callable[[bytes], bytes]] = {HOT: zlib.decompress, WARM: zlib.decompress, COLD: lzma.decompress}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NAME = (str, type(None))
# ASCII, so that a line has the same bytes in every database encoding, and searching it needs no decoding.
_dumps = jsontext.encoder(ascii=True)
_new_tuple = tuple.__new__


class Line(NamedTuple):
    """An event, ready to be stored: its moment, its text, and the names it is indexed by."""

    at: int
    text: str
    names: tuple[str | None, ...]


def moment(timestamp: str) -> int:
    """Microseconds since 1970 of a time in ISO-8601; a time without a zone is UTC."""
    try:
        time = datetime.fromisoformat(timestamp)
        # Integers all the way: timestamps as floats would lose microseconds.
        since = (time if time.tzinfo else time.replace(tzinfo=UTC)) - _EPOCH
        return since.days * 86_400_000_000 + since.seconds * 1_000_000 + since.microseconds
    except (ValueError, TypeError) as error:
        raise InvalidInputError(f"a time must be in ISO-8601, like 2026-01-31T12:00:00Z: {timestamp!r}") from error


def line(event: TelemetryEvent) -> Line:
    """Encode an event; raises InvalidInputError if it has no type, no time, or data that is not plain JSON."""
    try:
        kind = event.event_type
        instance = event.instance_id
        span = event.span_id
        trace = event.trace_id
        project = event.project_hash
        timestamp = event.timestamp
        data = event.data
    except AttributeError as error:
        raise InvalidInputError(f"events must be a list of TelemetryEvent: {error}", field="events") from error
    if not kind or not _plain(kind, span, trace, instance, project):
        raise InvalidInputError("an event needs a type, and its ids must be texts")
    at = moment(timestamp)
    try:
        text = _dumps([at, timestamp, kind, instance, project, span, trace, data])
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInputError(f"the data of an event must be plain JSON: {error}", event_type=kind) from error
    # Line(…) itself takes half as long again, and every event comes through here.
    return _new_tuple(Line, (at, text, (span, trace, instance, kind)))


def _plain(kind: object, span: object, trace: object, instance: object, project: object = None) -> bool:
    named = isinstance(span, _NAME) and isinstance(trace, _NAME) and isinstance(instance, _NAME)
    return named and isinstance(kind, str) and isinstance(project, _NAME)


def event(parts: Sequence[Any]) -> TelemetryEvent:
    """Make an event of the fields of a line."""
    _, timestamp, kind, instance, project, span, trace, data = parts
    return TelemetryEvent(kind, timestamp, data, instance, project, span, trace)


def pack(texts: Iterable[str], codec: str = HOT) -> bytes:
    """Compress lines into a chunk."""
    return _PACK[codec]("\n".join(texts).encode("ascii"))


def unpack(data: bytes, codec: str) -> str:
    """Decompress a chunk; raises CorruptError for damaged bytes."""
    try:
        return _UNPACK[codec](data).decode("ascii")
    except (KeyError, ValueError, zlib.error, lzma.LZMAError) as error:
        raise CorruptError(f"a chunk of telemetry is damaged: {error}") from error


def key(place: int, name: str) -> int:
    """The index key of a span (0), trace (1), instance (2) or type (3)."""
    # `person` separates the four columns: a span and a trace of the same name have different keys.
    digest = blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8, person=b"%d" % place).digest()
    return int.from_bytes(digest, "big", signed=True)


def keys(names: Iterable[tuple[str | None, ...]]) -> Iterator[int]:
    """The index keys of a chunk with these events, each once."""
    for place, column in enumerate(zip(*names, strict=True)):
        yield from (key(place, name) for name in set(column) if name is not None)


@dataclass(frozen=True, slots=True)
class EventFilter:
    """What events must match; None matches everything."""

    span_id: str | None
    trace_id: str | None
    instance_id: str | None
    event_type: str | None
    since: int
    until: int

    def _names(self) -> tuple[str | None, ...]:
        return self.span_id, self.trace_id, self.instance_id, self.event_type

    def checked(self) -> "EventFilter":
        """Return itself; raises InvalidInputError if a name is not a text."""
        if not _plain(
            "" if self.event_type is None else self.event_type, self.span_id, self.trace_id, self.instance_id
        ):
            raise InvalidInputError("span_id, trace_id, instance_id and event_type must be texts")
        return self

    @property
    def key(self) -> int | None:
        """The index key of the most selective name; None if there is none."""
        return next((key(place, name) for place, name in enumerate(self._names()) if name is not None), None)

    @property
    def needle(self) -> str:
        """A text that every matching line contains: the most selective name, or nothing."""
        return next((_dumps(name) for name in self._names() if name is not None), "")

    def among(self, text: str) -> Iterator[list[Any]]:
        """Parse the lines of a text that match; most of the others are skipped without parsing."""
        names = self._names()
        needle = self.needle
        # Searching for the text of a name first avoids parsing nearly all lines of a chunk.
        for each in _lines_with(needle, text) if needle else filter(None, text.split("\n")):
            at, _, kind, instance, _, span, trace, _ = parts = json.loads(each)
            same = all(want in (None, has) for want, has in zip(names, (span, trace, instance, kind), strict=True))
            if same and self.since <= at <= self.until:
                yield parts


EVERYTHING: Final = EventFilter(None, None, None, None, -(2**62), 2**62)


def _lines_with(needle: str, text: str) -> Iterator[str]:
    at = text.find(needle)
    while at >= 0:
        begin = text.rfind("\n", 0, at) + 1
        end = text.find("\n", at)
        end = len(text) if end < 0 else end
        yield text[begin:end]
        at = text.find(needle, end)
