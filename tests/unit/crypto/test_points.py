"""Ed25519 points, checked against plain curve arithmetic written out here."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdproof.crypto import keys
from holdproof.crypto.keys import CURVE_D as D
from holdproof.crypto.keys import FIELD_PRIME as P
from holdproof.crypto.keys import check_ed25519
from holdproof.errors import BadKeyError

Point = tuple[int, int]
ROOT_OF_MINUS_ONE = pow(2, (P - 1) // 4, P)


def add(a: Point, b: Point) -> Point:
    (x1, y1), (x2, y2) = a, b
    k = D * x1 * x2 * y1 * y2
    x = (x1 * y2 + x2 * y1) * pow(1 + k, -1, P) % P
    return x, (y1 * y2 + x1 * x2) * pow(1 - k, -1, P) % P


def recover_x(y: int) -> int | None:
    square = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    x = pow(square, (P + 3) // 8, P)
    if x * x % P != square:
        x = x * ROOT_OF_MINUS_ONE % P
    return x if x * x % P == square else None


def times_eight(point: Point) -> Point:
    for _ in range(3):
        point = add(point, point)
    return point


def encode(x: int, y: int) -> bytes:
    return (y | (x & 1) << 255).to_bytes(32, "little")


def test_the_low_order_list_is_exactly_the_points_that_eight_times_give_the_identity() -> None:
    found = set()
    for y in keys.LOW_ORDER_Y:
        x = recover_x(y)
        assert x is not None
        assert times_eight((x, y)) == (0, 1)
        found |= {(x, y), (-x % P, y)}
    assert len(found) == 8  # the whole torsion subgroup


@pytest.mark.parametrize("sign", [0, 1])
@pytest.mark.parametrize("y", sorted(keys.LOW_ORDER_Y))
def test_points_of_low_order_are_refused(y: int, sign: int) -> None:
    with pytest.raises(BadKeyError, match="low order"):
        keys.load_public_raw("ed25519", (y | sign << 255).to_bytes(32, "little"))


@pytest.mark.parametrize("sign", [0, 1])
@pytest.mark.parametrize("y", [P, P + 1, P + 3, P + 18])
def test_a_y_that_is_not_reduced_is_refused(y: int, sign: int) -> None:
    with pytest.raises(BadKeyError, match="canonical"):
        keys.load_public_raw("ed25519", (y | sign << 255).to_bytes(32, "little"))


@given(st.binary(min_size=32, max_size=32))
def test_a_key_is_accepted_exactly_if_it_is_a_canonical_curve_point_of_high_order(raw: bytes) -> None:
    y = int.from_bytes(raw, "little") & (2**255 - 1)
    x = recover_x(y) if y < P else None
    good = x is not None and times_eight((x, y)) != (0, 1)
    try:
        check_ed25519(raw)
        accepted = True
    except BadKeyError:
        accepted = False
    assert accepted == good


@given(st.binary(min_size=32, max_size=32))
def test_every_honest_key_is_accepted(seed: bytes) -> None:
    check_ed25519(keys.from_seed(seed).public.raw)


@pytest.mark.parametrize("length", [0, 31, 33, 64])
def test_another_length_is_refused(length: int) -> None:
    with pytest.raises(BadKeyError):
        check_ed25519(bytes(length))


def test_a_good_point_with_a_byte_behind_it_is_refused() -> None:
    with pytest.raises(BadKeyError, match="32 bytes"):
        check_ed25519(keys.from_seed(bytes(32)).public.raw + b"\x00")


def test_a_low_order_key_is_refused_in_der_too() -> None:
    der = bytes.fromhex("302a300506032b6570032100") + encode(0, 1)
    with pytest.raises(BadKeyError):
        keys.load_public_der(der)
