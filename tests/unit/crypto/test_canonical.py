"""Canonical JSON against the published vectors, against `rfc8785`, and against what must be refused."""

import json
import math
import struct

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from holdproof.crypto import canonical
from holdproof.crypto.canonical import Json
from holdproof.errors import FormatError, InvalidInputError
from tests.fixtures import fixture

from .material import refuses

SAFE = st.integers(-(2**53) + 1, 2**53 - 1)
TEXT = st.text(st.characters(codec="utf-8"))
SCALARS = st.none() | st.booleans() | SAFE | st.floats(-(2**53) + 1, 2**53 - 1) | TEXT
VALUES: st.SearchStrategy[Json] = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4), max_leaves=12
)


@pytest.mark.parametrize("name", ["arrays", "french", "structures", "unicode", "values", "weird"])
def test_a_published_input_becomes_its_published_output(name: str) -> None:
    value = canonical.loads(fixture(f"jcs/input/{name}.json").read_bytes())
    assert canonical.dumps(value) == fixture(f"jcs/output/{name}.json").read_bytes()
    assert canonical.dumps(value) == bytes.fromhex(fixture(f"jcs/outhex/{name}.txt").read_text())


def test_the_number_samples_of_rfc_8785_appendix_b_are_written_as_printed() -> None:
    for bits, text in {
        "0000000000000000": "0",
        "8000000000000000": "0",
        "0000000000000001": "5e-324",
        "7fefffffffffffff": "1.7976931348623157e+308",
        "4340000000000000": "9007199254740992",
        "4430000000000000": "295147905179352830000",
        "44b52d02c7e14af5": "9.999999999999997e+22",
        "444b1ae4d6e2ef50": "1e+21",
        "3eb0c6f7a0b5ed8d": "0.000001",
        "41b3de4355555557": "333333333.33333343",
        "becbf647612f3696": "-0.0000033333333333333333",
    }.items():
        (number,) = struct.unpack(">d", bytes.fromhex(bits))
        assert canonical.dumps([number]) == f"[{text}]".encode(), bits


@given(VALUES)
def test_the_fast_way_and_rfc8785_give_the_same_bytes(value: Json) -> None:
    assert canonical.dumps(value) == rfc8785.dumps(value)


@given(st.dictionaries(st.text(st.characters(max_codepoint=0x7F)), SAFE | TEXT))
def test_a_flat_leaf_is_written_as_rfc8785_writes_it(leaf: dict[str, Json]) -> None:
    assert canonical.dumps(leaf) == rfc8785.dumps(leaf)


@given(VALUES)
def test_what_was_written_reads_back_equal(value: Json) -> None:
    assert canonical.loads(canonical.dumps(value)) == value


def test_a_double_beyond_the_safe_integers_is_written_but_its_text_is_no_safe_integer() -> None:
    read = canonical.loads(canonical.dumps(1e20))
    assert read == 10**20
    with pytest.raises(InvalidInputError):
        canonical.dumps(read)


def test_keys_are_sorted_by_utf_16_not_by_code_point() -> None:
    value: Json = {"\ufb33": 1, "\U0001f600": 2}
    assert canonical.dumps(value) == '{"\U0001f600":2,"\ufb33":1}'.encode()


def _deep(depth: int) -> Json:
    value: Json = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    "value",
    [
        math.nan,
        math.inf,
        [-math.inf],
        2**53,
        -(2**53),
        {"n": 2**53},
        "\ud800",
        {"\udfff": 1},
        {"text": "\udead"},
        {1: "number as key"},
        {1: "mixed", "a": "keys"},
        {None: 1},
        b"bytes",
        {"set": {1}},
        [object()],
        _deep(100_000),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_jcs_cannot_represent_is_refused(value: Json) -> None:
    with pytest.raises(InvalidInputError):
        canonical.dumps(value)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b'{"a":1,"a":2}',
        b'{"x":{"a":1,"a":1}}',
        b"NaN",
        b"[Infinity]",
        b"[-Infinity]",
        b"1e999",
        b"\xef\xbb\xbf{}",
        b'"\xff"',
        b"{}{}",
        b"'a'",
        b"[1,]",
        b"9" * 5000,
        b"[" * 100_000,
    ],
    ids=lambda data: repr(data[:12]),
)
def test_malformed_or_ambiguous_json_is_refused(data: bytes) -> None:
    with pytest.raises(FormatError):
        canonical.loads(data)


@given(st.binary())
def test_arbitrary_bytes_are_json_or_a_format_error(data: bytes) -> None:
    refuses(canonical.loads, data)


def test_quote_writes_a_string_as_json_does() -> None:
    for text in ("", 'a"b\\c', "\x00\x1f\n", "é\u2028\U0001f600"):
        assert json.loads(canonical.quote(text)) == text
        assert canonical.quote(text).encode() == rfc8785.dumps(text)


def test_sha256_is_the_published_one() -> None:
    digest = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert canonical.sha256_hex(b"abc") == digest
    assert canonical.sha256(b"abc").hex() == digest
    assert canonical.is_sha256_hex(digest)


@pytest.mark.parametrize("text", ["", "0" * 63, "0" * 65, "A" * 64, "g" * 64, " " + "0" * 63, None, 64, b"0" * 64])
def test_only_64_lowercase_hex_digits_are_a_sha256(text: object) -> None:
    assert not canonical.is_sha256_hex(text)
