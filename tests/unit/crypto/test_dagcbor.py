"""Strict DAG-CBOR: the norm."""

import enum
import hashlib
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdproof.crypto import cid as cids
from holdproof.crypto import dagcbor
from holdproof.crypto.dagcbor import Value
from holdproof.errors import FormatError, InvalidInputError

from .blocks import VALUES, mutants, same, survives
from .material import mutations, refuses

LINK = cids.of(b"")


@given(VALUES)
def test_every_value_survives_with_its_types(value: Value) -> None:
    assert same(dagcbor.decode(dagcbor.encode(value)), value)


@given(st.binary(max_size=60))
def test_accepted_bytes_are_the_only_ones_for_their_value(data: bytes) -> None:
    try:
        value = dagcbor.decode(data)
    except FormatError:
        return
    assert dagcbor.encode(value) == data


@given(st.data(), VALUES)
def test_a_changed_block_is_another_value_or_none(data: st.DataObject, value: Value) -> None:
    good = dagcbor.encode(value)
    bad = data.draw(mutations(good))
    refuses(dagcbor.decode, bad)
    if bad != good and survives(dagcbor.decode, bad):
        assert not same(dagcbor.decode(bad), value)


@pytest.mark.parametrize(  # RFC 8949, appendix A, as far as DAG-CBOR allows it
    ("value", "text"),
    [
        (0, "00"),
        (1, "01"),
        (23, "17"),
        (24, "1818"),
        (255, "18ff"),
        (256, "190100"),
        (1000, "1903e8"),
        (1000000, "1a000f4240"),
        (1000000000000, "1b000000e8d4a51000"),
        (18446744073709551615, "1bffffffffffffffff"),
        (-18446744073709551616, "3bffffffffffffffff"),
        (-1, "20"),
        (-100, "3863"),
        (-1000, "3903e7"),
        (1.1, "fb3ff199999999999a"),
        (1.0e300, "fb7e37e43c8800759c"),
        (-4.1, "fbc010666666666666"),
        (-0.0, "fb8000000000000000"),
        (0.0, "fb0000000000000000"),
        (1.0, "fb3ff0000000000000"),
        (False, "f4"),
        (True, "f5"),
        (None, "f6"),
        (b"", "40"),
        (b"\x01\x02\x03\x04", "4401020304"),
        ("", "60"),
        ("IETF", "6449455446"),
        ("ü", "62c3bc"),
        ("\U00010151", "64f0908591"),
        ([], "80"),
        ([1, [2, 3], [4, 5]], "8301820203820405"),
        ({}, "a0"),
        ({"a": 1, "b": [2, 3]}, "a26161016162820203"),
        ({"b": 1, "aa": 2, "": 3}, "a3600361620162616102"),  # shorter keys first
        ({"é": 1, "z": 2}, "a2617a0262c3a901"),  # by bytes, not by letters
        (LINK, "d82a582500" + LINK.raw.hex()),
    ],
)
def test_the_published_examples_hold(value: Value, text: str) -> None:
    assert dagcbor.encode(value).hex() == text
    assert same(dagcbor.decode(bytes.fromhex(text)), value)


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        ("cut short", ""),
        ("cut short", "18"),
        ("cut short", "61"),
        ("cut short", "43ffff"),
        ("cut short", "fb3ff1999999"),
        ("cut short", "a16161"),
        ("cut short", "a161616561"),
        ("announced", "8201"),
        ("announced", "9bffffffffffffffff"),
        ("announced", "bbffffffffffffffff"),
        ("bytes after", "0000"),
        ("bytes after", "a000"),
        ("shortest", "1817"),
        ("shortest", "1900ff"),
        ("shortest", "1a0000ffff"),
        ("shortest", "1b00000000ffffffff"),
        ("shortest", "3800"),
        ("shortest", "5801ff"),
        ("shortest", "780161"),
        ("shortest", "980100"),
        ("shortest", "b801616100"),
        ("shortest", "a178016101"),
        ("shortest", "d9002a4100"),
        ("indefinite", "1c"),
        ("indefinite", "9f01ff"),
        ("indefinite", "bf616101ff"),
        ("indefinite", "5f4101ff"),
        ("indefinite", "7f6161ff"),
        ("out of order", "a2616201616101"),
        ("out of order", "a262616101616201"),
        ("twice", "a2616101616101"),
        ("not a text", "a10101"),
        ("not a text", "a1416101"),
        ("not a text", "a1f601"),
        ("not a text", "a18001"),
        ("64 bits", "f93c00"),
        ("64 bits", "fa3f800000"),
        ("simple", "f7"),
        ("simple", "f0"),
        ("simple", "f8ff"),
        ("simple", "ff"),
        ("finite", "fb7ff0000000000000"),
        ("finite", "fbfff0000000000000"),
        ("finite", "fb7ff8000000000000"),
        ("finite", "fb7ff0000000000001"),
        ("UTF-8", "61ff"),
        ("UTF-8", "62c0af"),
        ("UTF-8", "63eda080"),
        ("UTF-8", "a161ff01"),
        ("other than 42", "c001"),
        ("other than 42", "c249010000000000000000"),
        ("other than 42", "d82b4100"),
        ("not a byte string", "d82a00"),
        ("not a byte string", "d82a6100"),
        ("not a byte string", "d82ad82a4100"),
        ("begin with 0x00", "d82a40"),
        ("begin with 0x00", "d82a5824" + LINK.raw.hex()),
        ("varint", "d82a4100"),
        ("CID", "d82a58260001711220" + "00" * 33),
        ("cut short", "d82a58250001711220" + "00" * 31),
    ],
)
def test_every_rule_refuses_its_breach(rule: str, text: str) -> None:
    with pytest.raises(FormatError, match=rule):
        dagcbor.decode(bytes.fromhex(text))


class Text(str):
    __slots__ = ()


class Number(enum.IntEnum):
    ONE = 1


@pytest.mark.parametrize(
    "value",
    [
        math.nan,
        math.inf,
        -math.inf,
        2**64,
        -(2**64) - 1,
        (1, 2),
        bytearray(b""),
        memoryview(b""),
        {1: 2},
        {None: 1},
        {b"a": 1},
        {Text("a"): 1},
        Text("a"),
        Number.ONE,
        {1, 2},
        object(),
        1j,
        "\ud800",
        {"\ud800": 1},
        [["deep", math.nan]],
        {"a": {"b": (1,)}},
    ],
)
def test_what_has_no_encoding_is_refused_and_never_coerced(value: Any) -> None:
    with pytest.raises(InvalidInputError):
        dagcbor.encode(value)


def test_a_text_subclass_is_refused_even_as_a_key_that_was_seen_before() -> None:
    assert dagcbor.encode({"seen": 1}) == dagcbor.encode({"seen": 1})
    with pytest.raises(InvalidInputError):
        dagcbor.encode({Text("seen"): 1})


def nested(depth: int, *, maps: bool) -> Value:
    value: Value = 1
    for _ in range(depth):
        value = {"a": value} if maps else [value]
    return value


@pytest.mark.parametrize("maps", [False, True])
def test_nesting_is_bounded_both_ways(maps: bool) -> None:
    deepest = nested(dagcbor.MAX_DEPTH, maps=maps)
    assert same(dagcbor.decode(dagcbor.encode(deepest)), deepest)
    with pytest.raises(InvalidInputError, match="deep"):
        dagcbor.encode(nested(dagcbor.MAX_DEPTH + 1, maps=maps))
    head = b"\xa1\x61a" if maps else b"\x81"
    for depth in (dagcbor.MAX_DEPTH + 1, 100_000):
        with pytest.raises(FormatError, match="deep"):
            dagcbor.decode(head * depth + b"\x01")


def test_nested_tags_do_not_exhaust_the_stack() -> None:
    with pytest.raises(FormatError):
        dagcbor.decode(b"\xd8\x2a" * 100_000)


def test_size_is_bounded_both_ways() -> None:
    fits = bytes(dagcbor.MAX_SIZE - 5)
    data = dagcbor.encode(fits)
    assert len(data) == dagcbor.MAX_SIZE
    assert dagcbor.decode(data) == fits
    with pytest.raises(InvalidInputError, match="larger"):
        dagcbor.encode(bytes(dagcbor.MAX_SIZE - 4))
    with pytest.raises(FormatError, match="larger"):
        dagcbor.decode(data + b"\x00")
    assert len(dagcbor.encode(bytes(100), max_size=102)) == 102
    with pytest.raises(FormatError, match="larger"):
        dagcbor.decode(dagcbor.encode(bytes(100)), max_size=101)


def test_bytes_that_look_like_a_link_stay_bytes() -> None:
    value: Value = {"bytes": LINK.raw, "link": LINK, "tag": b"\xd8\x2a\x58\x25\x00" + LINK.raw}
    assert same(dagcbor.decode(dagcbor.encode(value)), value)


@given(st.dictionaries(st.text(max_size=300), st.none(), max_size=12))
def test_keys_come_shorter_first_and_then_by_bytes(value: dict[str, Value]) -> None:
    decoded = dagcbor.decode(dagcbor.encode(value))
    assert isinstance(decoded, dict)
    assert list(decoded) == sorted(value, key=lambda key: (len(key.encode()), key.encode()))


@given(st.integers(0, 2**64 - 1), st.integers(0, 7))
def test_a_head_is_the_one_that_an_item_would_have(number: int, major: int) -> None:
    head = dagcbor.head(major, number)
    assert head[0] >> 5 == major
    assert dagcbor.encode(number) == bytes([head[0] & 0x1F]) + head[1:]


def test_mutated_blocks_are_values_or_refused() -> None:
    seeds = [
        dagcbor.encode({"v": 1, "id": "a", "content": "text ü", "children": ["b", "c"], "x": [1.5, None, True, -300]}),
        dagcbor.encode([LINK, {"l": LINK, "e": [{"p": 7, "k": b"key", "t": None, "v": LINK}]}]),
        dagcbor.encode({"long": "x" * 300, "bytes": bytes(range(100)), "big": 2**60, "list": list(range(30))}),
        dagcbor.encode(nested(60, maps=True)),
    ]
    accepted = 0
    for data in mutants(seeds):
        if survives(dagcbor.decode, data):
            assert dagcbor.encode(dagcbor.decode(data)) == data
            accepted += 1
    assert accepted > 0


def test_a_record_has_the_bytes_and_the_name_that_it_always_had() -> None:
    """A vector of our own: if it breaks, every stored object loses its name."""
    record: Value = {
        "v": 1,
        "id": "note-1",
        "type": "note",
        "attributes": {"title": "Ü", "done": False},
        "content": "text",
        "parent": None,
        "children": ["note-2"],
        "version": 7,
    }
    data = dagcbor.encode(record)
    assert data.hex() == (
        "a86176016269646"
        "66e6f74652d316474797065646e6f746566706172656e74f667636f6e74656e74647465787467766572"
        "73696f6e07686368696c6472656e81666e6f74652d326a61747472696275746573a264646f6e65f4657469746c6562c39c"
    )
    assert hashlib.sha256(data).digest() == cids.of(data).digest
