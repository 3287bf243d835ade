"""What callers give, checked: ids, vectors, metadata, how many results.

Rules:
- A vector has as many numbers as the store keeps, all finite, not all zero as float32: zero has no direction.
- An id is 1 to 500 printable characters.
- Metadata is a JSON object, not nested deeper than a filter can compare. A query of zeros is allowed and finds nothing.
"""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdproof.errors import DimensionError, InvalidInputError
from holdproof.model import jsontext

MOST_RESULTS = 10_000
LONGEST = 16_384
_LONGEST_ID = 500
_DEEPEST = 100
_KEPT = np.dtype("<f4")
_dumps = jsontext.encoder(ascii=False)


def vector(given: Any, dimensions: int) -> bytes:
    """A vector as it is kept."""
    numbers = _numbers(given, dimensions)
    if numbers.dtype == _KEPT and 0 < np.dot(numbers, numbers) < np.inf:  # the usual case, in one pass
        return numbers.tobytes()
    if numbers.dtype != _KEPT:
        with np.errstate(over="ignore", under="ignore"):
            numbers = numbers.astype(_KEPT)
    if not np.isfinite(numbers).all():
        raise InvalidInputError("a vector holds finite numbers that fit 32 bits", field="vector")
    if not numbers.any():
        raise InvalidInputError("a vector of zeros has no direction", field="vector")
    return numbers.tobytes()


def numbers(kept: bytes) -> list[float]:
    """A vector as it was given, to 32 bits."""
    found: list[float] = np.frombuffer(kept, _KEPT).tolist()
    return found


def query(given: Any, dimensions: int) -> NDArray[np.float64] | None:
    """The direction asked for; None if there is none."""
    numbers = _numbers(given, dimensions).astype(np.float64)
    largest = np.abs(numbers).max()
    if not np.isfinite(largest):
        raise InvalidInputError("a query holds finite numbers only", field="query")
    if largest == 0:
        return None
    numbers /= largest  # or squares of the very large and the very small would be lost
    numbers /= np.linalg.norm(numbers)
    return numbers


def _numbers(given: Any, dimensions: int) -> NDArray[Any]:
    try:
        numbers = np.asarray(given)
        if numbers.dtype.kind not in "iuf":
            raise TypeError(f"{numbers.dtype.name} is no number")
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"a vector is a sequence of numbers: {error}", field="vector") from error
    if numbers.shape != (dimensions,):
        shape = "x".join(map(str, numbers.shape)) or "one number"
        raise DimensionError(f"vectors here have {dimensions} numbers, this one {shape}", dimensions=dimensions)
    return numbers


def length(given: int) -> int:
    """How many numbers vectors shall have."""
    if type(given) is not int or not 1 <= given <= LONGEST:
        raise InvalidInputError(f"vectors have 1 to {LONGEST} numbers", field="dimensions")
    return given


def identity(given: Any) -> str:
    """An id."""
    if not isinstance(given, str) or not 1 <= len(given) <= _LONGEST_ID or not given.isprintable():
        raise InvalidInputError(f"an id is 1 to {_LONGEST_ID} printable characters", field="id")
    return given


def metadata(given: Mapping[str, Any] | None) -> str:
    """Metadata as it is kept."""
    if not given:
        return "{}"
    return _json("metadata", given)


def wanted(given: Mapping[str, Any] | None) -> dict[str, str]:
    """A filter: for each key the value that it must have, as text to compare."""
    if not given:
        return {}
    _json("filter", given)
    return {key: plain(value) for key, value in given.items()}


def matches(metadata: str, wanted: Mapping[str, str]) -> bool:
    """Whether metadata have what is wanted; a key that is absent counts as null."""
    if not wanted:
        return True
    known = json.loads(metadata)
    return all(plain(known.get(key)) == value for key, value in wanted.items())


def plain(value: Any) -> str:
    """A JSON value as text; equal values have equal texts: 1 and 1.0, but not 1 and true."""
    if isinstance(value, str):
        return f'"{value}'  # no other value begins so
    return json.dumps(_reduced(value), sort_keys=True, separators=(",", ":"))


def _reduced(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, Mapping):
        return {key: _reduced(each) for key, each in value.items()}
    return [_reduced(each) for each in value] if isinstance(value, list | tuple) else value


def _json(field: str, given: Any) -> str:
    if not isinstance(given, Mapping) or not all(isinstance(key, str) for key in given):
        raise InvalidInputError(f"{field} is an object with text keys", field=field)
    try:
        text = _dumps(given if type(given) is dict else dict(given))
        text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInputError(f"{field} is no JSON: {error}", field=field) from error
    if text.count("{") + text.count("[") > _DEEPEST and _deep(given):
        raise InvalidInputError(f"{field} is nested deeper than {_DEEPEST} levels", field=field)
    return text


def _deep(value: Any) -> bool:
    """Whether it is nested too deep: one such row would make every search fail that asks for its key."""
    level = [value]
    for _ in range(_DEEPEST):
        inner = [each for each in level if isinstance(each, Mapping | list | tuple)]
        level = [kid for each in inner for kid in (each.values() if isinstance(each, Mapping) else each)]
        if not level:
            return False
    return True


def results(k: int, limit: int | None) -> int:
    """How many results are asked for."""
    number = k if limit is None else limit
    if type(number) is not int or not 1 <= number <= MOST_RESULTS:
        raise InvalidInputError(f"1 to {MOST_RESULTS} results can be asked for", field="k")
    return number
