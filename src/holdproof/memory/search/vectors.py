"""Vectors in memory: the one of an object as it is stored for searching, and the optional numpy behind every search.

The vector of an object is `meta["vector"]`. What is no vector there (no list of numbers, nothing but zeros, numbers
that 32 bits do not hold) is no error, it is only never found: volatile fields are whatever a caller likes.
"""

import struct
from collections.abc import Mapping
from math import isfinite
from types import ModuleType
from typing import Any, Final, NamedTuple

from holdproof.db.sql import sql
from holdproof.errors import MissingExtraError

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
    """Return the vector of volatile fields, None where they have none."""
    vector = meta.get(FIELD)
    if not isinstance(vector, list) or not 1 <= len(vector) <= LONGEST:
        return None
    if not all(type(each) in (float, int) for each in vector):
        return None
    try:
        data = struct.pack(f"<{len(vector)}f", *vector)
    except (OverflowError, struct.error):
        return None
    numbers = struct.unpack(f"<{len(vector)}f", data)
    return Packed(len(vector), data) if any(numbers) and all(map(isfinite, numbers)) else None


def load_exact() -> ModuleType:
    """Import the exact comparison of vectors; MissingExtraError where numpy is not installed."""
    try:
        from holdproof.storage.vectors import exact  # noqa: PLC0415 (an optional extra)
    except ImportError as error:
        raise MissingExtraError("vectors need numpy: pip install 'holdproof[vectors]'") from error
    return exact
