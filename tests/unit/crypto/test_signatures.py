"""ECDSA signatures between DER and raw r || s."""

import pytest
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from hypothesis import given
from hypothesis import strategies as st

from holdproof.crypto import signatures
from holdproof.crypto.signatures import P256_ORDER
from holdproof.errors import FormatError, ProofError
from tests.fixtures import load

from .material import JUDGE, refuses

SCALARS = st.integers(1, P256_ORDER - 1)


def raw_of(r: int, s: int) -> bytes:
    return r.to_bytes(32, "big") + s.to_bytes(32, "big")


@given(SCALARS, SCALARS)
def test_the_two_forms_are_one_signature(r: int, s: int) -> None:
    raw = raw_of(r, s)
    assert signatures.from_raw(raw) == encode_dss_signature(r, s)
    assert signatures.to_raw(signatures.from_raw(raw)) == raw


@given(SCALARS, SCALARS)
def test_the_lower_s_is_the_lower_of_the_twins(r: int, s: int) -> None:
    low = signatures.lower_s(raw_of(r, s))
    assert low == signatures.lower_s(raw_of(r, P256_ORDER - s))
    assert signatures.is_low_s(low)
    assert signatures.is_low_s(raw_of(r, s)) == (low == raw_of(r, s))


def test_the_bound_between_the_twins_is_half_the_order() -> None:
    assert signatures.is_low_s(raw_of(1, P256_ORDER // 2))
    assert not signatures.is_low_s(raw_of(1, P256_ORDER // 2 + 1))


@given(st.binary(max_size=100))
def test_both_twins_verify_and_a_changed_r_does_not(message: bytes) -> None:
    raw = signatures.to_raw(JUDGE.sign(message))
    twin = raw[:32] + (P256_ORDER - int.from_bytes(raw[32:], "big")).to_bytes(32, "big")
    for signature in (raw, twin, signatures.lower_s(raw)):
        JUDGE.public.verify(message, signatures.from_raw(signature))
    with pytest.raises(ProofError):
        JUDGE.public.verify(message, signatures.from_raw(raw[32:] + raw[:32]))


@pytest.mark.parametrize(
    "raw",
    [b"", bytes(63), bytes(65), bytes(64), raw_of(1, 0), raw_of(0, 1), raw_of(P256_ORDER, 1), raw_of(1, P256_ORDER)],
)
def test_a_raw_signature_out_of_range_is_refused(raw: bytes) -> None:
    for read in (signatures.from_raw, signatures.lower_s, signatures.is_low_s):
        with pytest.raises(FormatError):
            read(raw)


def test_a_raw_signature_cut_short_or_padded_is_refused_though_its_numbers_would_do() -> None:
    for raw in (b"\x01" * 63, raw_of(1, 1)[:32] + b"\x00" + raw_of(1, 1)[32:]):
        with pytest.raises(FormatError, match="64 bytes"):
            signatures.from_raw(raw)


@pytest.mark.parametrize("r_s", [(0, 1), (1, 0), (P256_ORDER, 1), (1, P256_ORDER), (2**300, 1)])
def test_a_der_signature_out_of_range_is_refused(r_s: tuple[int, int]) -> None:
    with pytest.raises(FormatError):
        signatures.to_raw(encode_dss_signature(*r_s))


@given(st.binary(max_size=80))
def test_arbitrary_bytes_are_a_signature_or_a_format_error(data: bytes) -> None:
    refuses(signatures.to_raw, data)


def test_der_is_read_as_strictly_as_wycheproof_asks() -> None:
    """Whatever converts to raw must be the one DER encoding of it: no BER, no padding, no tail."""
    count = 0
    for group in load("wycheproof/ecdsa_secp256r1_sha256_test.json")["testGroups"]:
        for case in group["tests"]:
            der = bytes.fromhex(case["sig"])
            try:
                raw = signatures.to_raw(der)
            except FormatError:
                assert case["result"] == "invalid", case["tcId"]
                continue
            assert signatures.from_raw(raw) == der, case["tcId"]
            count += 1
    assert count > 174
