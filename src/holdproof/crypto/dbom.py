"""The Decision Bill of Materials: the seed's seven fields, read strictly, written as the seed writes them.

- Exactly seven fields, none missing, none more, each of its type; numbers finite.
- A foreign DBOM may carry a timestamp without zone or a legacy signature: it is read, but never signed or
  verified.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from math import isfinite

from holdproof.crypto import canonical
from holdproof.errors import FormatError, InvalidInputError

VERSION = "1.0"

# The record says battle_id, as its published format does; we call it evaluation_id.
_ATTRIBUTES = {"battle_id": "evaluation_id"}
_NAMES = ("dbom_version", "battle_id", "h_delta", "v_intent", "score_cis", "sigma_judge", "timestamp")
_SIGNED_NAMES = tuple(name for name in _NAMES if name != "sigma_judge")
_VECTOR = '"v_intent": [\n    0.0\n  ]'
_UTC = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?(Z|\+00:00)")


@dataclass(frozen=True, slots=True)
class Fields:
    """The six fields that are signed."""

    evaluation_id: str
    h_delta: str
    v_intent: tuple[float, ...]
    score_cis: float
    timestamp: str
    dbom_version: str = VERSION


@dataclass(frozen=True, slots=True)
class Dbom:
    """The six fields and the judge's signature."""

    fields: Fields
    sigma_judge: str


def check(fields: Fields) -> None:
    """Raise InvalidInputError where fields cannot be signed."""
    # The record says battle_id, as its published format does; we call it evaluation_id.
    for name, text in (("dbom_version", fields.dbom_version), ("battle_id", fields.evaluation_id)):
        if not isinstance(text, str) or not text:
            raise InvalidInputError(f"{name} is an empty text", field=name)
    if not canonical.is_sha256_hex(fields.h_delta):
        raise InvalidInputError("h_delta is not 64 lowercase hex digits", field="h_delta")
    if not _are_numbers([fields.score_cis]):
        raise InvalidInputError("score_cis is not a finite number", field="score_cis")
    if not _are_numbers(fields.v_intent):
        raise InvalidInputError("v_intent holds something else than finite numbers", field="v_intent")
    if not is_utc(fields.timestamp):
        raise InvalidInputError("timestamp is not RFC 3339 in UTC", field="timestamp")


def encode(dbom: Dbom) -> bytes:
    """The DBOM file as the seed writes it: `json.dumps(dbom, indent=2)`."""
    value: dict[str, object] = {name: getattr(dbom.fields, _ATTRIBUTES.get(name, name)) for name in _SIGNED_NAMES}
    value = {name: value.get(name, dbom.sigma_judge) for name in _NAMES}
    vector = dbom.fields.v_intent
    if not vector or {*map(type, vector)} != {float} or not all(map(isfinite, vector)):
        return _dumps(value, dbom).encode()
    # With an indent the json module walks in Python: joined, 384 numbers cost a tenth of that.
    whole = _dumps({**value, "v_intent": [0.0]}, dbom)
    head, tail = whole.split(_VECTOR)  # once: inside texts quotes and line breaks are escaped
    listed = ",\n    ".join(map(float.__repr__, vector))
    return f'{head}"v_intent": [\n    {listed}\n  ]{tail}'.encode()


def _dumps(value: dict[str, object], dbom: Dbom) -> str:
    try:
        return json.dumps(value, indent=2, allow_nan=False)
    except (ValueError, TypeError) as error:
        raise InvalidInputError(f"DBOM: {error}", evaluation_id=dbom.fields.evaluation_id) from error


def parse(data: bytes) -> Dbom:
    """A DBOM from untrusted bytes; its signature is not verified yet."""
    value = canonical.loads(data)
    if not isinstance(value, dict) or set(value) != set(_NAMES):
        raise FormatError("DBOM: not exactly its seven fields")
    vector, score = value.pop("v_intent"), value.pop("score_cis")
    if not isinstance(vector, list) or not _are_numbers(vector):
        raise FormatError("DBOM: v_intent is not a list of finite numbers", field="v_intent")
    if not isinstance(score, int | float) or not _are_numbers([score]):
        raise FormatError("DBOM: score_cis is not a finite number", field="score_cis")
    texts: dict[str, str] = {}
    for name, text in value.items():
        if not isinstance(text, str):
            raise FormatError(f"DBOM: {name} is not a text", field=name)
        texts[_ATTRIBUTES.get(str(name), str(name))] = text
    sigma = texts.pop("sigma_judge")
    return Dbom(Fields(v_intent=tuple(map(float, vector)), score_cis=float(score), **texts), sigma)


def is_utc(text: object) -> bool:
    """Whether a text is an RFC 3339 time in UTC that exists."""
    if not isinstance(text, str) or not _UTC.fullmatch(text):
        return False
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def _are_numbers(values: Sequence[object]) -> bool:
    """Whether all are finite numbers; vectors stand in the hot path, so no Python call per element."""
    if not all(issubclass(kind, int | float) and kind is not bool for kind in set(map(type, values))):
        return False
    try:
        return all(map(isfinite, values))  # type: ignore[arg-type]
    except OverflowError:  # an integer beyond the doubles
        return False
