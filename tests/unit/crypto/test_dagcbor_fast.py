"""The accelerated codec agrees with the norm, whatever `libipld` does.

Where `libipld` is missing, a stand-in with its known faults takes its place: the guards are tested in any case.
"""

import math
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdproof.crypto import cid as cids
from holdproof.crypto import dagcbor, dagcbor_fast
from holdproof.crypto.dagcbor import Value
from holdproof.errors import FormatError, HoldproofError, InvalidInputError

from .blocks import LINK_LIKE, VALUES, mutants, same
from .test_dagcbor import Number, Text, nested

LINK = cids.of(b"")


def sloppy_encode(value: Any) -> bytes:
    """An encoder with the faults of `libipld`: links out of bytes, no -0.0, subclasses taken, errors of its own."""
    if isinstance(value, bytes):
        try:
            return dagcbor.encode(cids.parse(value))
        except FormatError:
            return dagcbor.encode(value)
    if isinstance(value, float):
        return dagcbor.encode(value + 0.0)
    if isinstance(value, list):
        return dagcbor.head(4, len(value)) + b"".join(map(sloppy_encode, value))
    if isinstance(value, dict):
        pairs = sorted((sloppy_encode(key), sloppy_encode(item)) for key, item in value.items())
        return dagcbor.head(5, len(value)) + b"".join(key + item for key, item in pairs)
    kinds: tuple[Callable[[Any], Any], ...] = (str, int) if isinstance(value, str) else (int,)
    try:
        return dagcbor.encode(value if value is None or isinstance(value, bool) else kinds[0](value))
    except (InvalidInputError, TypeError) as error:
        raise ValueError("Failed to encode DAG-CBOR") from error


def sloppy_decode(data: bytes) -> Value:
    """A decoder with the faults of `libipld`: bytes out of links, integers that are not minimal."""
    try:
        return unlink(dagcbor.decode(data.replace(b"\x18\x05", b"\x05")))
    except FormatError as error:
        raise ValueError("Failed to decode DAG-CBOR") from error


def unlink(value: Value) -> Value:
    if isinstance(value, cids.CID):
        return value.raw
    if isinstance(value, list):
        return [unlink(item) for item in value]
    if isinstance(value, dict):
        return {key: unlink(item) for key, item in value.items()}
    return value


@pytest.fixture(params=["libipld", "stand-in", "absent"])
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "libipld":
        if find_spec("libipld") is None:
            pytest.skip("libipld is not installed: pip install libipld")
    else:
        found = (sloppy_encode, sloppy_decode) if request.param == "stand-in" else None
        monkeypatch.setattr(dagcbor_fast, "_library", lambda: found)
    return str(request.param)


def outcome(function: Callable[[Any], Any], argument: Any) -> tuple[Any, str]:
    try:
        return function(argument), ""
    except HoldproofError as error:
        return None, f"{type(error).__name__}: {error}"


def agree(value: Any) -> None:
    assert outcome(dagcbor_fast.encode, value) == outcome(dagcbor.encode, value)


def agree_on(data: bytes) -> None:
    (fast, fast_error), (norm, norm_error) = outcome(dagcbor_fast.decode, data), outcome(dagcbor.decode, data)
    assert fast_error == norm_error
    assert same(fast, norm)


@pytest.mark.usefixtures("library")
class TestAgreement:
    """The same values, the same bytes, the same errors."""

    def test_on_every_value(self) -> None:
        @given(VALUES)
        def check(value: Value) -> None:
            agree(value)
            agree_on(dagcbor.encode(value))

        check()

    def test_on_bytes_that_look_like_links(self) -> None:
        @given(st.lists(LINK_LIKE | st.binary(max_size=40), max_size=4))
        def check(value: list[Value]) -> None:
            agree(value)
            agree_on(dagcbor.encode(value))

        check()

    def test_on_arbitrary_bytes(self) -> None:
        @given(st.binary(max_size=30))
        def check(data: bytes) -> None:
            agree_on(data)

        check()

    @pytest.mark.parametrize(
        "value",
        [
            -0.0,
            [0.0, {"a": -0.0}],
            math.nan,
            math.inf,
            2**64,
            -(2**64) - 1,
            2**64 - 1,
            -(2**64),
            (1,),
            LINK,
            [LINK, LINK.raw],
            {"k": LINK.raw},
            b"\xd8\x2a",
            "\u062a",  # its UTF-8 begins with 0xd8
            Text("a"),
            {Text("a"): 1},
            {1: 2},
            Number.ONE,
            bytearray(b"a"),
            "\ud800",
            object(),
            nested(dagcbor.MAX_DEPTH, maps=True),
            nested(dagcbor.MAX_DEPTH + 1, maps=True),
            nested(dagcbor.MAX_DEPTH + 1, maps=False),
            nested(900, maps=False),
            bytes(dagcbor.MAX_SIZE),
        ],
    )
    def test_on_every_known_hazard_of_writing(self, value: Any) -> None:
        agree(value)

    @pytest.mark.parametrize(
        "text",
        [
            "1805",
            "811805",
            "fa3f800000",
            "fb8000000000000000",
            "fb7ff8000000000000",
            "f7",
            "a2616201616101",
            "a2616101616101",
            "a10101",
            "61ff",
            "d82a582500" + LINK.raw.hex(),
            "5824" + LINK.raw.hex(),
            "0000",
            "",
            "81" * 128 + "01",
            "81" * 129 + "01",
            "81" * 5000 + "01",
            "a16161" * 129 + "01",
            "78c8" + "c3bc" * 100,  # many bytes that look like heads of lists
        ],
    )
    def test_on_every_known_hazard_of_reading(self, text: str) -> None:
        agree_on(bytes.fromhex(text))

    def test_on_mutated_blocks(self, library: str) -> None:
        if library == "absent":
            pytest.skip("the norm agrees with itself")
        seeds = [
            dagcbor.encode({"v": 1, "id": "a", "content": "text ü", "children": ["b"], "x": [1.5, None, True, -300]}),
            dagcbor.encode([{"p": 7, "k": b"key", "t": None, "v": LINK}, LINK.raw]),
        ]
        for data in mutants(seeds):
            agree_on(data)

    def test_on_limits_of_the_caller(self) -> None:
        data = dagcbor.encode(bytes(50))
        assert dagcbor_fast.decode(data, max_size=len(data)) == bytes(50)
        assert dagcbor_fast.encode(bytes(50), max_size=len(data)) == data
        with pytest.raises(FormatError):
            dagcbor_fast.decode(data, max_size=len(data) - 1)
        with pytest.raises(InvalidInputError):
            dagcbor_fast.encode(bytes(50), max_size=len(data) - 1)


def test_a_missing_library_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> None:
        raise ImportError(name)

    dagcbor_fast._library.cache_clear()
    monkeypatch.setattr(dagcbor_fast, "import_module", absent)
    try:
        assert dagcbor_fast._library() is None
        assert dagcbor_fast.decode(dagcbor_fast.encode({"a": 1})) == {"a": 1}
    finally:
        dagcbor_fast._library.cache_clear()


def test_the_common_case_does_not_touch_the_norm(monkeypatch: pytest.MonkeyPatch) -> None:
    """A record without links and odd floats is handled by the library alone: that is the gain."""
    record: Value = {"v": 1, "id": "a", "content": "text ü" * 100, "children": ["b"], "x": [1.5, None, True, -300]}
    data = dagcbor.encode(record)
    monkeypatch.setattr(dagcbor_fast, "_library", lambda: (sloppy_encode, sloppy_decode))
    norm = Mock(wraps=dagcbor)
    monkeypatch.setattr(dagcbor_fast, "dagcbor", norm)
    assert dagcbor_fast.encode(record) == data
    assert dagcbor_fast.decode(data) == record
    assert not norm.method_calls
    assert dagcbor_fast.decode(dagcbor.encode([LINK])) == [LINK]
    assert norm.method_calls
