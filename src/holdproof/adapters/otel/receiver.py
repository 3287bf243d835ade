"""OTLP over HTTP, `/v1/traces`, without the HTTP: bytes in, events and the bytes of the answer out; pure.

    received = receive(body, content_type="application/x-protobuf", content_encoding="gzip")
    await store.telemetry.append(received.events)
    return Response(received.body, media_type=received.content_type)

Spans that are none are refused one by one, and the answer says how many (`partialSuccess`), as the protocol wants it.
"""

import json
import zlib
from dataclasses import dataclass
from typing import Final

from holdproof.adapters.otel import spans, wire
from holdproof.errors import FormatError, InvalidInputError
from holdproof.model.storage import TelemetryEvent

JSON: Final = "application/json"
PROTOBUF: Final = "application/x-protobuf"
MOST: Final = 64 * 2**20


@dataclass(frozen=True, slots=True)
class Received:
    """The events of a request, how many spans were none, and the answer to it once the events are kept."""

    events: tuple[TelemetryEvent, ...]
    rejected: int
    content_type: str
    body: bytes


def receive(body: bytes, *, content_type: str, content_encoding: str | None = None, most: int = MOST) -> Received:
    """Return a request with traces; FormatError where its bytes are none, InvalidInputError for a type nobody knows."""
    # Exporters add parameters such as a charset.
    kind = content_type.partition(";")[0].strip().lower()
    if kind not in (JSON, PROTOBUF):
        raise InvalidInputError(f"OTLP is {PROTOBUF} or {JSON}, not {kind!r}", content_type=kind)
    data = _unpacked(body, (content_encoding or "identity").strip().lower(), most)
    events, refused = spans.read(wire.decode(data) if kind == PROTOBUF else _parsed(data))
    return Received(tuple(events), len(refused), kind, _answer(kind, refused))


def _unpacked(body: bytes, encoding: str, most: int) -> bytes:
    if len(body) > most:
        raise FormatError(f"OTLP: a request has at most {most} bytes")
    if encoding == "identity":
        return body
    if encoding not in ("gzip", "deflate"):
        raise InvalidInputError(f"OTLP comes plain, gzip or deflate, not {encoding!r}", content_encoding=encoding)
    # 31 means a gzip header, 15 a zlib one.
    unpacking = zlib.decompressobj(31 if encoding == "gzip" else 15)
    try:
        data = unpacking.decompress(body, most + 1)
    except zlib.error as error:
        raise FormatError(f"OTLP: no {encoding}: {error}") from error
    if len(data) > most:
        raise FormatError(f"OTLP: a request has at most {most} bytes")
    if not unpacking.eof:
        raise FormatError(f"OTLP: the {encoding} ends too early")
    return data


def _parsed(data: bytes) -> object:
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"OTLP: no JSON: {error}") from error


def _answer(kind: str, refused: list[str]) -> bytes:
    if not refused:
        return b"{}" if kind == JSON else b""
    message = "; ".join(sorted(set(refused)))[:500]
    if kind == PROTOBUF:
        return wire.encode_partial(len(refused), message)
    return json.dumps({"partialSuccess": {"rejectedSpans": str(len(refused)), "errorMessage": message}}).encode()
