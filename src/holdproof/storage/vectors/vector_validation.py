"""Validation of what callers pass: ids, vectors, metadata, the number of results.

Rules:
- A vector has the dimensions of the store; its numbers are finite, and not all zero as float32 (no direction).
- An id is 1 to 500 printable characters.
- Metadata is a JSON object, not nested deeper than a filter can compare. A query of zeros is
  allowed and matches nothing.
"""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdproof import validation
from holdproof.errors import DimensionError, InvalidInputError
from holdproof.model import jsontext

MOST_RESULTS = 10_000
LONGEST = 16_384
_DEEPEST = 100
_STORED = np.dtype("<f4")
_encode = jsontext.encoder(ascii=False)


def _dumps(value: Any) -> str:
    """JSON as people read it; a lone surrogate, which no database stores, is a ValueError."""
    text = _encode(value)
    text.encode()
    return text


def vector(value: Any, dimensions: int) -> bytes:
    """Check a vector; return its bytes as they are stored."""
    numbers = _numbers(value, dimensions)
    if numbers.dtype == _STORED and 0 < np.dot(numbers, numbers) < np.inf:  # the usual case, in one pass
        return numbers.tobytes()
    if numbers.dtype != _STORED:
        with np.errstate(over="ignore", under="ignore"):
            numbers = numbers.astype(_STORED)
    if not np.isfinite(numbers).all():
        raise InvalidInputError("a vector must hold finite numbers that fit float32", field="vector")
    if not numbers.any():
        raise InvalidInputError("a vector of zeros has no direction", field="vector")
    return numbers.tobytes()


def numbers(data: bytes) -> list[float]:
    """Decode a stored vector."""
    values: list[float] = np.frombuffer(data, _STORED).tolist()
    return values


def query(value: Any, dimensions: int) -> NDArray[np.float64] | None:
    """Check a query; return it with length one, or None for a query of zeros."""
    numbers = _numbers(value, dimensions).astype(np.float64)
    largest = np.abs(numbers).max()
    if not np.isfinite(largest):
        raise InvalidInputError("a query must hold finite numbers", field="query")
    if largest == 0:
        return None
    numbers /= largest  # else the squares of very large and very small numbers overflow or vanish
    numbers /= np.linalg.norm(numbers)
    return numbers


def _numbers(value: Any, dimensions: int) -> NDArray[Any]:
    try:
        numbers = np.asarray(value)
        if numbers.dtype.kind not in "iuf":
            raise TypeError(f"{numbers.dtype.name} is no number")
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"a vector must be a sequence of numbers: {error}", field="vector") from error
    if numbers.shape != (dimensions,):
        shape = "x".join(map(str, numbers.shape)) or "one number"
        raise DimensionError(
            f"vectors of this store have {dimensions} numbers, this one has {shape}", dimensions=dimensions
        )
    return numbers


def length(value: int) -> int:
    """Check how many numbers vectors shall have."""
    if type(value) is not int or not 1 <= value <= LONGEST:
        raise InvalidInputError(f"vectors have 1 to {LONGEST} numbers", field="dimensions")
    return value


def identity(value: Any) -> str:
    """Check an id."""
    return validation.name("id", value)


def metadata(value: Mapping[str, Any] | None) -> str:
    """Check metadata; return their JSON text."""
    if not value:
        return "{}"
    return _json("metadata", value)


def conditions(value: Mapping[str, Any] | None) -> dict[str, str]:
    """Check a filter; return for each key the value that it must have, as text to compare."""
    if not value:
        return {}
    _json("filter", value)
    return {key: plain(each) for key, each in value.items()}


def matches(metadata: str, conditions: Mapping[str, str]) -> bool:
    """Whether metadata meet all conditions; an absent key counts as null."""
    if not conditions:
        return True
    values = json.loads(metadata)
    return all(plain(values.get(key)) == value for key, value in conditions.items())


def plain(value: Any) -> str:
    """A JSON value as text for comparison: equal values have equal texts (1 and 1.0, but not 1 and true)."""
    if isinstance(value, str):
        return f'"{value}'  # unambiguous without escaping: no other value begins with a quote
    return json.dumps(_reduced(value), sort_keys=True, separators=(",", ":"))


def _reduced(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, Mapping):
        return {key: _reduced(each) for key, each in value.items()}
    return [_reduced(each) for each in value] if isinstance(value, list | tuple) else value


def _json(field: str, value: Any) -> str:
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise InvalidInputError(f"{field} must be a mapping with text keys", field=field)
    text = validation.to_json(field, value if type(value) is dict else dict(value), _dumps)
    # Counting brackets is cheap, and only many of them can be nested deeply.
    if text.count("{") + text.count("[") > _DEEPEST and _deep(value):
        raise InvalidInputError(f"{field} is nested deeper than {_DEEPEST} levels", field=field)
    return text


def _deep(value: Any) -> bool:
    """Whether it is nested too deep: one such row would fail every search with a filter for its key."""
    level = [value]
    for _ in range(_DEEPEST):
        inner = [each for each in level if isinstance(each, Mapping | list | tuple)]
        level = [kid for each in inner for kid in (each.values() if isinstance(each, Mapping) else each)]
        if not level:
            return False
    return True


def results(k: int, limit: int | None) -> int:
    """Check the number of results; `limit` is another name for `k`."""
    number = k if limit is None else limit
    if type(number) is not int or not 1 <= number <= MOST_RESULTS:
        raise InvalidInputError(f"k must be 1 to {MOST_RESULTS}", field="k")
    return number
