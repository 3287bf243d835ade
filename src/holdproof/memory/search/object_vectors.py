"""The vector of an object, as it is kept for searching: what `meta["vector"]` says, in 32 bits.

What is no vector (no list of numbers, nothing but zeros, numbers that 32 bits do not hold) is only not found by one:
volatile fields are whatever a caller likes.
"""

import struct
from collections.abc import Mapping
from math import isfinite
from typing import Any, Final, NamedTuple

from holdproof.db.sql import sql

FIELD: Final = "vector"
MADE_OF: Final = "vector_of"
"""The record that a vector was made of, where `embed` made it."""
LONGEST: Final = 16_384

PUT = sql(
    "INSERT INTO object_vectors (ns, key, cid, dimensions, vector) VALUES (:ns, :key, :cid, :dimensions, :vector)"
    " ON CONFLICT (ns, key) DO UPDATE SET cid = excluded.cid, dimensions = excluded.dimensions,"
    " vector = excluded.vector"
)
REMOVE = sql("DELETE FROM object_vectors WHERE ns = :ns AND key = :key")


class Packed(NamedTuple):
    """A vector as it is kept."""

    dimensions: int
    vector: bytes


def packed(meta: Mapping[str, Any]) -> Packed | None:
    """The vector of volatile fields, None where they have none."""
    found = meta.get(FIELD)
    if not isinstance(found, list) or not 1 <= len(found) <= LONGEST:
        return None
    if not all(type(each) in (float, int) for each in found):
        return None
    try:
        data = struct.pack(f"<{len(found)}f", *found)
    except (OverflowError, struct.error):
        return None
    kept = struct.unpack(f"<{len(found)}f", data)
    return Packed(len(found), data) if any(kept) and all(map(isfinite, kept)) else None
