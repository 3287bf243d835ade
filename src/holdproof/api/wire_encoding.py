"""How a value becomes JSON that crosses a wire; wire.py reads it back."""

import collections.abc
import math
from base64 import b64encode
from collections.abc import Callable, Mapping
from enum import Enum
from os import PathLike
from typing import Any, Final

from holdproof.crypto.cid import CID
from holdproof.errors import InvalidInputError
from holdproof.model.value import field_names

DEEPEST: Final = 200
"""How deeply a value may be nested that is taken in: it can be data out again, whatever stands around it."""
# Answers stand inside pages and envelopes of ours: what was just shallow enough to be taken in must come out again.
_AROUND: Final = 20
BYTES: Final = "$bytes"
LINK: Final = "$link"


def dump(value: Any) -> Any:
    """Any value of ours as JSON."""
    return _dump(value, DEEPEST + _AROUND)


def _dump(value: Any, levels: int) -> Any:
    # The commonest first, by exact type: subclasses such as members of an IntEnum are encoded below.
    if value is None or type(value) in (bool, int, str):
        return value
    if levels and (names := field_names(value.__class__)) is not None:  # before what can be iterated: a page can, too
        return {name: _dump(getattr(value, name), levels - 1) for name in names}
    for kinds, encode in _ENCODERS:
        if isinstance(value, kinds):
            return encode(value)
    if not levels:
        raise InvalidInputError(f"nested too deeply to be sent: more than {DEEPEST} levels")
    if isinstance(value, Mapping):
        return _mapped(value, levels - 1)
    if isinstance(value, collections.abc.Iterable):
        return [_dump(item, levels - 1) for item in value]
    if hasattr(value, "tolist"):  # a number out of an array
        return _dump(value.tolist(), levels)
    raise InvalidInputError(f"a {type(value).__name__} cannot be sent", type=type(value).__name__)


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise InvalidInputError("JSON has no word for a number that is not finite")
    return float(value)


def _mapped(value: Mapping[Any, Any], levels: int) -> dict[str, Any]:
    if odd := [key for key in value if not isinstance(key, str)]:
        raise InvalidInputError(f"a key is a text, not {odd[0]!r}")
    return {f"${key}" if key.startswith("$") else str(key): _dump(item, levels) for key, item in value.items()}


_ENCODERS: Final[tuple[tuple[Any, Callable[[Any], Any]], ...]] = (
    (float, _finite),
    (CID, lambda value: {LINK: str(value)}),
    (Enum, lambda value: value.value if isinstance(value.value, str) else value.name),
    (int, int),
    ((str, PathLike), str),
    ((bytes, bytearray, memoryview), lambda value: {BYTES: b64encode(value).decode()}),
)
"""How each kind of value that holds no other is encoded; the first that fits, so the narrower before the wider."""
