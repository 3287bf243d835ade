"""Values, mutated bytes and small stores that the tests of content addressing share.

The mutation tests try 10,000 inputs each (the slower ones a part of that), or HOLDPROOF_MUTATIONS; `make fuzz` goes on
for as long as one likes.
"""

import os
from collections.abc import Callable, Iterator, Sequence

from hypothesis import strategies as st

from harness import damaged_bytes
from holdproof.crypto import cid as cids
from holdproof.crypto.cid import CID
from holdproof.crypto.dagcbor import Value
from holdproof.errors import FormatError

MUTATIONS = int(os.environ.get("HOLDPROOF_MUTATIONS", "10000"))

CIDS = st.builds(cids.of, st.binary(max_size=4)) | st.builds(cids.of_raw, st.binary(max_size=4))
LINK_LIKE = CIDS.map(lambda cid: cid.raw) | st.just(b"\x12\x20" + bytes(32)) | st.just(b"\xd8\x2a\x58\x25\x00")
FLOATS = st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from([0.0, -0.0, 1.0, 1e300, 5e-324])
INTEGERS = st.integers(-(2**64), 2**64 - 1) | st.sampled_from(
    [sign * (2**bits + near) for bits in (5, 8, 16, 32, 53, 63) for near in (-9, -8, -1, 0, 1) for sign in (1, -1)]
)
SCALARS = (
    st.none() | st.booleans() | INTEGERS | FLOATS | st.text(max_size=40) | st.binary(max_size=40) | CIDS | LINK_LIKE
)
VALUES: st.SearchStrategy[Value] = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=30), inner, max_size=5),
    max_leaves=20,
)

NAMES = st.text("abcXYZ019_~.:-", min_size=1, max_size=6)
TREE_KEYS = st.builds("{}/{}".format, st.sampled_from(["object", "meta", "o"]), NAMES)
ITEMS = st.dictionaries(TREE_KEYS, CIDS, max_size=40)


def same(left: Value, right: Value) -> bool:
    """Whether two values are equal and of the same types all through: 1, 1.0 and True differ, so do 0.0 and -0.0."""
    if type(left) is not type(right):
        return False
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    return repr(left) == repr(right) if isinstance(left, float) else left == right


def mutants(seeds: Sequence[bytes], count: int = MUTATIONS) -> Iterator[bytes]:
    """Damaged copies of good bytes, the same in every run."""
    return damaged_bytes.mutants(seeds, count)


def survives(parse: Callable[[bytes], object], data: bytes) -> bool:
    """Whether a parser accepts the bytes; it may refuse them with the FormatError family, and with nothing else."""
    try:
        parse(data)
    except FormatError:
        return False
    return True


def leaf(text: str) -> CID:
    """The CID of some record."""
    return cids.of(text.encode())
