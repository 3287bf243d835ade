"""What a key may be called: any text is a name or is refused, and a name can do no harm anywhere."""

import json
from pathlib import PurePosixPath, PureWindowsPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdproof.errors import BlobKeyError, InvalidInputError
from holdproof.model.blobs import MOST_KEY_BYTES, MOST_PART_BYTES, can_begin, check_content_type, check_key
from holdproof.testing.blobs import NAMES, NO_KEYS

_PARTS = st.lists(st.sampled_from(["..", ".", "", "a", "C:", "nul", "\\", "\0", "b.meta", "~", " "]), max_size=5)


def accepted(key: object) -> bool:
    try:
        return check_key(key) == key
    except BlobKeyError as error:
        json.dumps(error.to_dict(), ensure_ascii=False).encode()  # can be shown, whatever the key is made of
        return False


@pytest.mark.parametrize("key", NAMES)
def test_a_name_is_accepted(key: str) -> None:
    assert accepted(key)


@pytest.mark.parametrize("key", [*NO_KEYS.values(), None, b"a", 7, ["a"]])
def test_what_is_no_name_is_refused(key: object) -> None:
    assert not accepted(key)


@given(st.text() | _PARTS.map("/".join) | st.text(alphabet="./\\aC:~ \0\n", max_size=12))
def test_a_name_stays_where_it_is_put(key: str) -> None:
    if not accepted(key):
        return
    assert key == key.strip("/")
    assert 1 <= len(key.encode()) <= MOST_KEY_BYTES
    assert key.isprintable() or all(ord(letter) > 0x9F for letter in key if not letter.isprintable())
    for path in (PurePosixPath(key), PureWindowsPath(key)):
        assert not path.is_absolute()
        assert ".." not in path.parts
        assert not path.anchor or ":" in key
    assert all(part and len(part.encode()) <= MOST_PART_BYTES for part in key.split("/"))


@given(st.text(), st.text())
def test_every_beginning_of_a_name_can_begin_one(key: str, more: str) -> None:
    if accepted(key + more):
        assert can_begin(key)


@given(st.text())
def test_a_control_character_makes_any_name_none(key: str) -> None:
    assert not accepted(key + "\x00")
    assert not accepted("\x85" + key)


@pytest.mark.parametrize(("size", "right"), [(MOST_PART_BYTES, True), (MOST_PART_BYTES + 1, False)])
def test_a_part_is_counted_in_bytes(size: int, right: bool) -> None:
    assert accepted("é" * (size // 2) + "x" * (size % 2)) is right


@pytest.mark.parametrize(("size", "right"), [(MOST_KEY_BYTES, True), (MOST_KEY_BYTES + 1, False)])
def test_a_key_is_counted_in_bytes(size: int, right: bool) -> None:
    assert accepted(("x/" * size)[:size].rstrip("/").ljust(size, "x")) is right


@pytest.mark.parametrize("wrong", ["", "a\n", "é", "x" * 256, 7, b"text/plain"])
def test_a_content_type_is_what_http_can_say(wrong: object) -> None:
    with pytest.raises(InvalidInputError):
        check_content_type(wrong)
    check_content_type(None)
    check_content_type("text/plain; charset=utf-8")
