"""Canonical JSON (RFC 8785, JCS) and SHA-256: the bytes that are hashed and signed.

- One value has one byte string; what JCS cannot represent (NaN, integers over 2^53-1, lone surrogates, keys
  that are not strings, other types) is refused, never coerced.
- Parsing is strict: UTF-8 without a byte order mark, no duplicate keys, no NaN or infinity, bounded
  nesting.
"""

import json
from collections.abc import Mapping, Sequence
from hashlib import sha256 as _sha256
from json.encoder import encode_basestring as _quote
from math import isfinite
from typing import Final, TypeAlias

import rfc8785

from holdproof.errors import FormatError, InvalidInputError

Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"

MAX_INT = 2**53 - 1


def dumps(value: Json) -> bytes:
    """Encode a value as JCS bytes; InvalidInputError where JCS cannot represent it."""
    try:
        text = _text(value)
        return text.encode() if text is not None else rfc8785.dumps(value)
    except (ValueError, TypeError) as error:  # CanonicalizationError and UnicodeEncodeError are ValueErrors
        raise InvalidInputError(f"no canonical JSON: {error}", kind=type(value).__name__) from error
    except RecursionError as error:
        raise InvalidInputError("no canonical JSON: nested too deeply", kind=type(value).__name__) from error


def dump_text(value: Json) -> str:
    """Return a value as canonical JSON text, as columns hold it; InvalidInputError where it has none."""
    return dumps(value).decode()


def loads(data: bytes) -> Json:
    """Parse JSON from untrusted bytes; FormatError where they are malformed or ambiguous."""
    try:
        value: Json = _DECODER.decode(data.decode("utf-8", "strict"))
    except ValueError as error:  # JSONDecodeError, UnicodeDecodeError, digits beyond Python's limit
        raise FormatError(f"not JSON: {error}", size=len(data)) from error
    except RecursionError as error:
        raise FormatError("not JSON: nested too deeply", size=len(data)) from error
    return value


def quote(text: str) -> str:
    """Return a string as JCS writes it, quotes included. Lone surrogates fail when the result is encoded to UTF-8."""
    return _quote(text)


def sha256(data: bytes) -> bytes:
    """Return the SHA-256 digest, 32 bytes."""
    return _sha256(data).digest()


def sha256_hex(data: bytes) -> str:
    """Return the SHA-256 digest as 64 lowercase hex digits."""
    return _sha256(data).hexdigest()


def is_sha256_hex(text: object) -> bool:
    """Return whether a value is 64 lowercase hex digits."""
    return isinstance(text, str) and len(text) == 64 and not set(text) - set("0123456789abcdef")


def _text(value: Json) -> str | None:
    """Return the JCS text of a value made of plain types under ASCII keys; None where only `rfc8785` can decide.

    A shortcut for log leaves and statements, four times as fast as the general encoder; a property test compares the
    two.
    """
    kind = type(value)
    if kind is str:
        return _quote(value)  # type: ignore[arg-type]
    if kind is int:
        return str(value) if -MAX_INT <= value <= MAX_INT else None  # type: ignore[operator]
    if kind is dict:
        return _object(value)  # type: ignore[arg-type]
    if kind is list:
        parts = [_text(item) for item in value]  # type: ignore[union-attr]
        return None if None in parts else f"[{','.join(parts)}]"  # type: ignore[arg-type]
    if kind is float:
        # Python and JCS write fractions of ordinary size alike; exponents and whole floats differ.
        plain = 1e-4 <= abs(value) < 1e16 and value % 1  # type: ignore[arg-type,operator]
        return repr(value) if plain else rfc8785.dumps(value).decode()
    return None


def _object(value: dict[str, Json]) -> str | None:
    """Return the JCS text of an object, as `_text` does."""
    parts = []
    for key in sorted(value):
        # JCS sorts keys by UTF-16 code units; only for ASCII is that Python's order.
        if type(key) is not str or not key.isascii():
            return None
        item = value[key]
        text = _quote(item) if type(item) is str else _text(item)
        if text is None:
            return None
        parts.append(f"{_quote(key)}:{text}")
    return "{" + ",".join(parts) + "}"


def _unique(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    # Parsers disagree on which of two equal keys counts: such a text has no one meaning to hash or sign.
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("duplicate key in an object")
    return members


def _refuse_constant(text: str) -> float:
    raise ValueError(f"{text} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not isfinite(number):
        raise ValueError(f"{text[:40]} is beyond the range of a double")
    return number


# One for all: making a decoder costs as much as it takes to parse a small record.
_DECODER: Final = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_refuse_constant, parse_float=_finite)
