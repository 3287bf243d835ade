"""What agents know: records, Lisp of another memory, states and values of threads, telemetry."""

import gzip
import json
import re
from collections import deque
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from langchain_core.messages import HumanMessage
from langgraph.types import Send

from harness.damaged_bytes import JSON_MARKS, LISP_MARKS
from holdproof.adapters.langgraph.envelope import CLEAR, Envelopes
from holdproof.adapters.langgraph.safety import SafeSerializer
from holdproof.adapters.otel import receiver
from holdproof.crypto import cid as cids
from holdproof.errors import FormatError
from holdproof.importers.lisp import lisp_hash, reader, sexpr, writer
from holdproof.memory.objects import records
from holdproof.memory.objects.records import ObjectRecord, Sealed
from holdproof.memory.skills import skill_blocks
from holdproof.memory.threads import thread_states
from holdproof.memory.threads.channel_values import BlockRef, InlineRef, ListRef, Ref
from holdproof.memory.threads.thread_states import CheckpointState
from holdproof.model.memory import Tagged
from proof.fuzz.targets.target import Target

_LISP: Final = """((:ID "types" :TYPE A::FOO :ATTRIBUTES (:INT 42 :BIG 1000000000000000000000 :RATIO 1/3 :SINGLE 1.5
  :DOUBLE 2.5d0 :EXP 1.0d-20 :CHAR #\\a :NL #\\Newline :SYM BAR :KW :|odd Key| :S "q\\"\\\\z" :NESTED (1 (2 . 3) "x")
  :VEC #(1 2 3) :BITS #*1011 :NIL NIL :T T :EMPTY "" :PATHNAME #P"/tmp/x.org" :COMPLEX #C(1 2)) :CONTENT "é\tend"
  :PARENT-ID NIL :CHILDREN ("a" "b") :VERSION 3985000001 :LAST-SYNC 3985000001 :HASH "h1"))"""
_IMAGE: Final = """(in-package :org-agent)
(SETF (GETHASH "h1" *HISTORY-STORE*)
        #S(ORG-OBJECT :ID "a" :TYPE :HEADLINE :ATTRIBUTES (:ID "a") :CONTENT "x" :VECTOR #(0.5) :HASH "h1"))
(SETF (GETHASH "h2" *HISTORY-STORE*)
        #S(ORG-OBJECT :ID "a" :TYPE :HEADLINE :ATTRIBUTES NIL :CONTENT "y" :VERSION 2 :HASH "h2"))
(SETF (GETHASH "a" *MEMORY*) (GETHASH "h2" *HISTORY-STORE*))
"""


def _lisp(data: bytes) -> None:
    forms = [value for _, value in reader.read(data)]
    again = [value for form in forms for _, value in reader.read(writer.write(form))]
    assert again == forms, "what is written is not what was read"


def _sexpr(data: bytes) -> None:
    lisp_hash.check(sexpr.read(data))


def _record_seeds() -> Sequence[bytes]:
    rich = {"$odd": 2**80, "f": 0.5, "v": [0.25, 1.5], "deep": [{"x": None, "l": cids.of(b"x")}], "b": b"\x00"}
    made = [
        ObjectRecord("a", "note", "text", rich, None, (), 1),
        ObjectRecord("b", "note", Tagged("symbol", b"KEYWORD:X"), {}, "a", ("c", "d"), 2),
        ObjectRecord("c", "note", Sealed(b"HFS\x01" + bytes(range(60))), {}, None, (), 1),
    ]
    blocks = [data for each in made for data in records.encode(each).values()]
    return [*blocks, records.encode_meta("a", {"vector": [0.1, 0.2], "last_sync": 2**64})[1]]


def _record(data: bytes) -> None:
    """A record, or volatile fields; each in one way only."""
    try:
        found = records.decode(data)
    except FormatError:
        id, meta = records.decode_meta(data)
        assert records.encode_meta(id, meta)[1] == data, "two ways to write volatile fields"
        return
    assert data in records.encode(found).values(), "two ways to write one record"


# --- threads -----------------------------------------------------------------------------------------------------


def _state_seeds() -> Sequence[bytes]:
    refs: dict[str, Ref] = {
        "messages": ListRef("langgraph/1", bytes(32), 64, (bytes(32),) * 3),
        "plan": InlineRef("langgraph/1", b"\x00\x81\xa1a\x01"),
        "page": BlockRef("langgraph/1", bytes(range(32))),
    }
    states = CheckpointState(refs, b"own", ("messages", "old"), bytes(32)), CheckpointState({}, b"", (), None)
    return [thread_states.encode(state) for state in states]


def _state(data: bytes) -> None:
    found = thread_states.decode(data)
    assert thread_states.decode(thread_states.encode(found)) == found, "a state that is not what it was"


@cache
def _envelopes() -> Envelopes:
    return Envelopes(SafeSerializer(), None)


def _envelope_seeds() -> Sequence[bytes]:
    values: list[Any] = [{"a": [1, "two", None]}, "x" * 500, [{"role": "user", "content": "é" * 100}] * 3, b"raw", None]
    values += [{1, 2}, datetime(2026, 1, 1, tzinfo=UTC), UUID(int=7), Decimal("1.5"), HumanMessage("hello"), deque([1])]
    values += [timedelta(1), re.compile("a+b"), Path("x/y"), Send("node", {"x": 1})]
    return [_envelopes().wrap(value) for value in values]


def _envelope(data: bytes) -> None:
    _envelopes().unwrap(CLEAR, data)


# --- telemetry ---------------------------------------------------------------------------------------------------


def _span_json() -> bytes:
    span = {"traceId": "0" * 31 + "1", "spanId": "0" * 15 + "1", "name": "chat", "kind": 3, "endTimeUnixNano": "2"}
    span |= {"startTimeUnixNano": "1", "status": {"code": 2, "message": "no"}, "events": [{"name": "e"}]}
    value = {"kvlistValue": {"values": [{"key": "k", "value": {"arrayValue": {"values": [{"doubleValue": 1.5}]}}}]}}
    span |= {"attributes": [{"key": "a", "value": {"stringValue": "v"}}, {"key": "b", "value": value}]}
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}).encode()


def _field(number: int, data: bytes) -> bytes:
    """A field of protobuf with a length before it."""
    return bytes([number << 3 | 2, len(data)]) + data


def _span_protobuf() -> bytes:
    numbers = b"\x30\x03\x39" + (1).to_bytes(8, "little") + b"\x41" + (2).to_bytes(8, "little")
    attribute = _field(1, b"a") + _field(2, _field(1, b"v"))
    span = _field(1, bytes(range(1, 17))) + _field(2, bytes(range(1, 9))) + _field(5, b"chat") + numbers
    return _field(1, _field(2, _field(2, span + _field(9, attribute))))


def _otlp(data: bytes) -> None:
    """The first byte says how the rest comes: JSON, protobuf, or either packed."""
    kind = receiver.JSON if data[:1] in b"jJ" else receiver.PROTOBUF
    receiver.receive(data[1:], content_type=kind, content_encoding="gzip" if data[:1] in b"JP" else None, most=1 << 20)


def _otlp_seeds() -> Sequence[bytes]:
    packed = gzip.compress(_span_json(), mtime=0)
    return [
        b"j" + _span_json(),
        b"J" + packed,
        b"p" + _span_protobuf(),
        b"P" + gzip.compress(_span_protobuf(), mtime=0),
    ]


def _skill(data: bytes) -> None:
    """A file of code, divided into blocks by its language."""
    kind, _, text = data.partition(b"\0")
    rules = skill_blocks.rules_of(f"x.{kind.decode(errors='replace')[:8]}")
    assert b"".join(part for _, part in skill_blocks.parts(text, rules)) == text, "bytes were lost"
    skill_blocks.divide(text, rules)


def _skill_seeds() -> Sequence[bytes]:
    python = b'py\0"""Doc."""\nimport os\n\n\n@deco\ndef f(x):\n    return [x,\n  2]\n\n\nclass A:\n    b = 1\n'
    return [
        python,
        b"md\0# One\n\ntext\n\n## Two\n```py\nx\n```\n",
        b'lisp\0(defun a (x) "s" x)\n(a 1)\n',
        b"txt\0a\nb\n",
    ]


TARGETS: Final = (
    Target("lisp", lambda: [_LISP.encode(), _IMAGE.encode()], _lisp, LISP_MARKS),
    Target("memory-images", lambda: [_IMAGE.encode(), _LISP.encode()], _sexpr, LISP_MARKS),
    Target("records", _record_seeds, _record),
    Target("thread-states", _state_seeds, _state),
    Target("checkpoints", _envelope_seeds, _envelope),
    Target("otlp", _otlp_seeds, _otlp, JSON_MARKS),
    Target("skills", _skill_seeds, _skill, (b"'''", b'"""', b"\\\n", b"def ", b"```", b"#|", b"|#", b"\r\n")),
)
