"""Base64: one text for one byte string."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdproof.crypto import b64
from holdproof.errors import FormatError


@given(st.binary())
def test_every_byte_string_survives_both_alphabets(data: bytes) -> None:
    assert b64.decode(b64.encode(data)) == data
    assert b64.decode_url(b64.encode_url(data)) == data
    assert b64.decode_either(b64.encode(data)) == data
    assert b64.decode_either(b64.encode(data).replace("+", "-").replace("/", "_")) == data


@given(st.text())
def test_an_accepted_text_is_the_only_one_for_its_bytes(text: str) -> None:
    try:
        data = b64.decode(text)
    except FormatError:
        return
    assert b64.encode(data) == text


@given(st.text(st.sampled_from("AQgw-_=+/\n é")))
def test_an_accepted_url_text_is_the_only_one_for_its_bytes(text: str) -> None:
    try:
        data = b64.decode_url(text)
    except FormatError:
        return
    assert b64.encode_url(data) == text


@pytest.mark.parametrize("text", ["YQ", "YQ=", "YR==", "YQ==\n", " YQ==", "YQ==YQ==", "_-8=", "é", "YQ===", "="])
def test_loose_standard_base64_is_refused(text: str) -> None:
    with pytest.raises(FormatError):
        b64.decode(text)


@pytest.mark.parametrize("text", ["YQ==", "YR", "Y", "+/8", "a b", "é"])
def test_loose_url_base64_is_refused(text: str) -> None:
    with pytest.raises(FormatError):
        b64.decode_url(text)


def test_a_mixture_of_the_alphabets_is_refused() -> None:
    with pytest.raises(FormatError):
        b64.decode_either("+_8=")
