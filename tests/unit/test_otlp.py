"""OTLP: what instrumented programs send becomes events, in protobuf and in JSON alike; what is none is refused."""

import base64
import gzip
import json
import math
import zlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdproof import errors
from holdproof.adapters.otel import receive
from holdproof.adapters.otel.receiver import JSON, PROTOBUF
from holdproof.storage import chunks

TRACE, SPAN, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331", "00f067aa0ba902b7"
START = 1_767_225_600_123_456_789


def attribute(key: str, **value: Any) -> dict[str, Any]:
    return {"key": key, "value": value}


def request(**span: Any) -> dict[str, Any]:
    whole = {"traceId": TRACE, "spanId": SPAN, "name": "chat", "startTimeUnixNano": str(START), **span}
    resource = {"attributes": [attribute("service.name", stringValue="shop")]}
    scope = {"name": "agents", "version": "1"}
    return {"resourceSpans": [{"resource": resource, "scopeSpans": [{"scope": scope, "spans": [whole]}]}]}


def sent(value: Any) -> Any:
    return receive(json.dumps(value).encode(), content_type="application/json; charset=utf-8")


def test_a_span_becomes_an_event_with_all_it_says() -> None:
    values = {"s": {"stringValue": "ä"}, "b": {"boolValue": True}, "i": {"intValue": "9007199254740993"}}
    values |= {"d": {"doubleValue": 0.5}, "n": {"doubleValue": "NaN"}, "e": {}}
    values |= {"a": {"arrayValue": {"values": [{"intValue": 1}, {"stringValue": "x"}]}}}
    values |= {"m": {"kvlistValue": {"values": [attribute("k", boolValue=False)]}}}
    received = sent(
        request(
            parentSpanId=PARENT.upper(),
            kind=3,
            endTimeUnixNano=START + 5,
            attributes=[{"key": key, "value": value} for key, value in values.items()],
            events=[{"name": "token", "timeUnixNano": "7", "attributes": [attribute("n", intValue=1)]}],
            links=[{"traceId": TRACE, "spanId": PARENT}],
            status={"code": 2, "message": "no"},
        )
    )
    [event] = received.events
    assert (event.event_type, event.timestamp) == ("span", "2026-01-01T00:00:00.123456Z")
    assert (event.trace_id, event.span_id, event.instance_id) == (TRACE, SPAN, "shop")
    assert event.data == {
        "name": "chat",
        "kind": "CLIENT",
        "start_unix_nano": START,
        "end_unix_nano": START + 5,
        "parent_span_id": PARENT,
        "status": {"code": "ERROR", "message": "no"},
        "attributes": {
            "s": "ä",
            "b": True,
            "i": 9007199254740993,
            "d": 0.5,
            "n": "NaN",
            "e": None,
            "a": [1, "x"],
            "m": {"k": False},
        },
        "events": [{"name": "token", "time_unix_nano": 7, "attributes": {"n": 1}}],
        "links": [{"trace_id": TRACE, "span_id": PARENT, "attributes": {}}],
        "resource": {"service.name": "shop"},
        "scope": {"name": "agents", "version": "1"},
    }
    assert (received.rejected, received.body) == (0, b"{}")


@pytest.mark.parametrize(
    "wrong",
    [
        {"traceId": "0" * 32},
        {"traceId": "ab"},
        {"spanId": ""},
        {"startTimeUnixNano": 0},
        {"startTimeUnixNano": "soon"},
        {"startTimeUnixNano": 10**30},
        {"attributes": [attribute("a", intValue="1e400")]},
        {"attributes": "none"},
    ],
)
def test_a_span_that_is_none_is_refused_and_the_others_are_kept(wrong: dict[str, Any]) -> None:
    both = request(**wrong)
    both["resourceSpans"] += request()["resourceSpans"]
    received = sent(both)
    assert (len(received.events), received.rejected) == (1, 1)
    told = json.loads(received.body)["partialSuccess"]
    assert told["rejectedSpans"] == "1"
    assert told["errorMessage"]


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"resourceSpans": 5}', b'{"resourceSpans": [5]}', b"[" * 100_000])
def test_what_is_no_json_request_is_refused(body: bytes) -> None:
    with pytest.raises(errors.FormatError):
        receive(body, content_type=JSON)


@pytest.mark.parametrize(
    "body",
    [b"\xff", b"\x0a\x05ab", b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", b"\x0b", b"\x0a\x04\x12\x02\x12\x09"],
)
def test_what_is_no_protobuf_is_refused(body: bytes) -> None:
    with pytest.raises(errors.FormatError):
        receive(body, content_type=PROTOBUF)


def test_packed_requests_are_unpacked_within_bounds() -> None:
    plain = json.dumps(request()).encode()
    for encoding, packed in (("gzip", gzip.compress(plain)), ("deflate", zlib.compress(plain))):
        assert len(receive(packed, content_type=JSON, content_encoding=encoding).events) == 1
        for bad in (packed[:-9], b"no", b""):
            with pytest.raises(errors.FormatError):
                receive(bad, content_type=JSON, content_encoding=encoding)
    bomb = gzip.compress(b" " * 10_000_000)
    with pytest.raises(errors.FormatError):
        receive(bomb, content_type=JSON, content_encoding="gzip", most=1_000_000)
    with pytest.raises(errors.FormatError):
        receive(plain, content_type=JSON, most=10)
    for wrong in ({"content_encoding": "br"}, {"content_type": "text/html"}):
        with pytest.raises(errors.InvalidInputError):
            receive(plain, **{"content_type": JSON, **wrong})  # type: ignore[arg-type]


def test_values_nested_without_end_are_refused() -> None:
    nested: dict[str, Any] = {"intValue": 1}
    for _ in range(200):
        nested = {"arrayValue": {"values": [nested]}}
    assert sent(request(attributes=[{"key": "a", "value": nested}])).rejected == 1
    deep = b""
    for _ in range(200):
        deep = b"\x2a" + _length(b"\x0a" + _length(deep))
    spans = b"\x12" + _length(b"\x4a" + _length(b"\x12" + _length(deep)))
    with pytest.raises(errors.FormatError):
        receive(b"\x0a" + _length(b"\x12" + _length(spans)), content_type=PROTOBUF)


def _length(data: bytes) -> bytes:
    size, out = len(data), b""
    while size > 127:
        out, size = out + bytes([size & 127 | 128]), size >> 7
    return out + bytes([size]) + data


@given(st.binary(max_size=200))
@settings(max_examples=150)
def test_any_bytes_are_a_request_or_a_typed_error(body: bytes) -> None:
    try:
        receive(body, content_type=PROTOBUF)
    except errors.FormatError:
        return


# --- beside the official encoder ---------------------------------------------------------------------------------


def official(value: dict[str, Any]) -> bytes:
    """A request in JSON as Google's own protobuf encodes it; it wants ids in base64."""
    service = pytest.importorskip(
        "opentelemetry.proto.collector.trace.v1.trace_service_pb2",
        reason="not installed: pip install opentelemetry-proto",
    )
    json_format = pytest.importorskip("google.protobuf.json_format")

    def again(value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            return {name: again(each, name) for name, each in value.items()}
        if isinstance(value, list):
            return [again(each) for each in value]
        return (
            base64.b64encode(bytes.fromhex(value)).decode() if key.endswith(("traceId", "spanId", "SpanId")) else value
        )

    message = json_format.ParseDict(again(value), service.ExportTraceServiceRequest())
    return bytes(message.SerializeToString())


_TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
_LEAVES = st.one_of(
    st.builds(lambda value: {"stringValue": value}, _TEXTS),
    st.builds(lambda value: {"boolValue": value}, st.booleans()),
    st.builds(lambda value: {"intValue": str(value)}, st.integers(-(2**63), 2**63 - 1)),
    st.builds(lambda value: {"doubleValue": value}, st.floats(allow_nan=False, allow_infinity=False)),
    st.builds(lambda value: {"bytesValue": base64.b64encode(value).decode()}, st.binary(max_size=9)),
)
_VALUES = st.recursive(
    _LEAVES,
    lambda inner: st.one_of(
        st.builds(lambda values: {"arrayValue": {"values": values}}, st.lists(inner, max_size=3)),
        st.builds(
            lambda pairs: {"kvlistValue": {"values": [{"key": key, "value": value} for key, value in pairs.items()]}},
            st.dictionaries(_TEXTS, inner, max_size=3),
        ),
    ),
    max_leaves=6,
)


@given(values=st.dictionaries(_TEXTS, _VALUES, max_size=4), name=_TEXTS, kind=st.integers(0, 5), code=st.integers(0, 2))
@settings(max_examples=60, deadline=None)
def test_protobuf_says_what_json_says(values: dict[str, Any], name: str, kind: int, code: int) -> None:
    attributes = [{"key": key, "value": value} for key, value in values.items()]
    said = request(
        name=name,
        kind=kind,
        endTimeUnixNano=str(START + 9),
        parentSpanId=PARENT,
        attributes=attributes,
        events=[{"name": "e", "timeUnixNano": "7", "attributes": attributes}],
        links=[{"traceId": TRACE, "spanId": SPAN, "attributes": attributes}],
        status={"code": code, "message": name},
        traceState="a=b",
    )
    packed = receive(official(said), content_type=PROTOBUF)
    assert packed.events == sent(said).events
    assert (packed.rejected, packed.body) == (0, b"")
    chunks.line(packed.events[0])


def test_the_answer_about_refused_spans_is_protobuf() -> None:
    service = pytest.importorskip("opentelemetry.proto.collector.trace.v1.trace_service_pb2", reason="not installed")
    received = receive(official(request(spanId="00" * 8)), content_type=PROTOBUF)
    answer = service.ExportTraceServiceResponse.FromString(received.body)
    assert answer.partial_success.rejected_spans == received.rejected == 1
    assert "span id" in answer.partial_success.error_message


def test_numbers_that_json_has_no_word_for_become_text() -> None:
    for value in (math.inf, -math.inf, math.nan):
        [event] = receive(
            official(
                request(
                    attributes=[attribute("x", doubleValue=str(value).replace("inf", "Infinity").replace("nan", "NaN"))]
                )
            ),
            content_type=PROTOBUF,
        ).events
        assert event.data["attributes"] == {"x": str(value)}
