"""Base58btc: one text for one byte string."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdproof.crypto import base58
from holdproof.errors import FormatError, InvalidInputError


@pytest.mark.parametrize(  # draft-msporny-base58, section 5
    ("data", "text"),
    [
        (b"Hello World!", "2NEpo7TZRRrLZSi2U"),
        (
            b"The quick brown fox jumps over the lazy dog.",
            "USm3fpXnKG5EUBx2ndxBDMPVciP5hGey2Jh4NDv6gmeo1LkMeiKrLJUUBk6Z",
        ),
        (bytes.fromhex("0000287fb4cd"), "11233QC4"),
        (b"", ""),
        (b"\x00", "1"),
    ],
)
def test_the_published_examples_hold(data: bytes, text: str) -> None:
    assert base58.encode(data) == text
    assert base58.decode(text) == data


@given(st.binary(max_size=base58.MAX_BYTES))
def test_every_byte_string_survives(data: bytes) -> None:
    assert base58.decode(base58.encode(data)) == data


@given(st.text("123zZA0OIl \n", max_size=20))
def test_an_accepted_text_is_the_only_one_for_its_bytes(text: str) -> None:
    try:
        data = base58.decode(text)
    except FormatError:
        return
    assert base58.encode(data) == text


@pytest.mark.parametrize("text", ["0", "O", "I", "l", " 1", "1\n", "é", "2" * 257])
def test_other_characters_and_long_texts_are_refused(text: str) -> None:
    with pytest.raises(FormatError):
        base58.decode(text)


def test_a_text_of_the_bound_is_still_read() -> None:
    assert base58.decode("1" * base58.MAX_TEXT) == bytes(256)


def test_more_bytes_than_an_identifier_has_are_refused() -> None:
    assert len(base58.encode(b"\xff" * base58.MAX_BYTES)) <= base58.MAX_TEXT
    with pytest.raises(InvalidInputError):
        base58.encode(bytes(base58.MAX_BYTES + 1))
