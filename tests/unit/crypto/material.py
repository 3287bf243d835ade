"""Keys and strategies that the tests of this folder share; the same in every run."""

from collections.abc import Callable
from contextlib import suppress
from functools import cache
from itertools import pairwise

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import strategies as st

from holdproof.crypto import keys, merkle
from holdproof.crypto.keys import PrivateKey
from holdproof.errors import FormatError

LOG = keys.from_seed(bytes(range(32)))
WITNESS = keys.from_seed(bytes(range(32, 64)))
STRANGER = keys.from_seed(bytes(range(64, 96)))


def p256(scalar: int) -> PrivateKey:
    """The P-256 key of a known scalar."""
    handle = ec.derive_private_key(scalar, ec.SECP256R1())
    return keys.load_private(
        handle.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )


JUDGE = p256(0xC9AFA9D845BA75166B5C215767B1D6934E50C3DB36E89B127B8A622B120F6721)  # RFC 6979, appendix A.2.5


@cache
def rsa() -> PrivateKey:
    """One RSA key for the whole run."""
    return keys.generate("rsa-pss-sha256", rsa_bits=2048)


def one_of_each() -> tuple[PrivateKey, ...]:
    """A key of each algorithm."""
    return (JUDGE, LOG, rsa())


def hashes(count: int, salt: int = 0) -> list[bytes]:
    """Leaf hashes, all different."""
    return [merkle.leaf_hash(b"%d %d" % (salt, at)) for at in range(count)]


def plain_lookup(leaves: list[bytes]) -> merkle.Lookup:
    """Look up complete nodes by hashing the leaves under them: slow and obviously right."""
    return lambda level, index: merkle.root(leaves[index << level : (index + 1) << level])


def batches(leaves: list[bytes], cuts: list[int]) -> list[list[bytes]]:
    """The leaves, cut at these places."""
    edges = sorted({0, len(leaves), *(cut % (len(leaves) + 1) for cut in cuts)})
    return [leaves[start:end] for start, end in pairwise(edges)]


def refuses(parse: Callable[[bytes], object], data: bytes) -> None:
    """A parser of untrusted bytes returns or raises the FormatError family: nothing else ever."""
    with suppress(FormatError):
        parse(data)


def rejected(parse: Callable[[bytes], object], data: bytes) -> None:
    """These bytes are refused."""
    with pytest.raises(FormatError):
        parse(data)


DIGESTS = st.binary(min_size=32, max_size=32)
LINES = st.text(st.characters(min_codepoint=0x20, codec="utf-8"), min_size=1, max_size=30)
NAMES = st.from_regex(r"[a-z0-9.]{1,12}(/[a-z0-9-]{1,8})?", fullmatch=True)
SIZES = st.integers(0, 2**63 - 1)


def mutations(data: bytes) -> st.SearchStrategy[bytes]:
    """The bytes with one byte changed, removed, doubled or added."""

    def change(at: int, to: int, how: int) -> bytes:
        at %= len(data)
        return (
            data[:at] + bytes([to]) + data[at + 1 :],
            data[:at] + data[at + 1 :],
            data[:at] + data[at : at + 1] * 2 + data[at + 1 :],
            data[:at] + bytes([to]) + data[at:],
            data[:at],
        )[how]

    return st.builds(change, st.integers(0, len(data) - 1), st.integers(0, 255), st.integers(0, 4))
