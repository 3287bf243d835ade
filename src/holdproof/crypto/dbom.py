"""The Decision Bill of Materials (DBOM): seven fields, parsed strictly, written byte for byte as Green Agent does.

- Exactly seven fields, each of its type; numbers finite.
- A DBOM of another producer may carry a timestamp without zone or a legacy signature: it can be parsed, but never
  signed or verified.
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

_NAMES = frozenset({"dbom_version", "battle_id", "h_delta", "v_intent", "score_cis", "sigma_judge", "timestamp"})
# How `json.dumps` with an indent of 2 writes the stand-in vector that `encode` replaces.
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
class SignedDbom:
    """The six fields and the judge's signature."""

    fields: Fields
    sigma_judge: str


def check(fields: Fields) -> None:
    """Raise InvalidInputError if these fields cannot be signed."""
    # The published format names the field battle_id; everywhere else it is evaluation_id.
    texts: dict[str, object] = {"dbom_version": fields.dbom_version, "battle_id": fields.evaluation_id}
    for name, text in texts.items():
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


def encode(dbom: SignedDbom) -> bytes:
    """Encode the DBOM file: the bytes of `json.dumps(dbom, indent=2)`, fields in the published order."""
    fields = dbom.fields
    value = {
        "dbom_version": fields.dbom_version,
        "battle_id": fields.evaluation_id,
        "h_delta": fields.h_delta,
        "v_intent": fields.v_intent,
        "score_cis": fields.score_cis,
        "sigma_judge": dbom.sigma_judge,
        "timestamp": fields.timestamp,
    }
    vector = dbom.fields.v_intent
    if not vector or {*map(type, vector)} != {float} or not all(map(isfinite, vector)):
        return _dumps(value, dbom).encode()
    # With an indent the json module encodes in Python; joining 384 numbers directly costs a tenth of that.
    template = _dumps({**value, "v_intent": [0.0]}, dbom)
    # There is exactly one occurrence: inside texts, quotes and line breaks are escaped.
    head, tail = template.split(_VECTOR)
    numbers = ",\n    ".join(map(float.__repr__, vector))
    return f'{head}"v_intent": [\n    {numbers}\n  ]{tail}'.encode()


def _dumps(value: dict[str, object], dbom: SignedDbom) -> str:
    try:
        return json.dumps(value, indent=2, allow_nan=False)
    except (ValueError, TypeError) as error:
        raise InvalidInputError(f"DBOM: {error}", evaluation_id=dbom.fields.evaluation_id) from error


def parse(data: bytes) -> SignedDbom:
    """Parse a DBOM from untrusted bytes; does not verify its signature."""
    value = canonical.loads(data)
    if not isinstance(value, dict) or value.keys() != _NAMES:
        raise FormatError("DBOM: not exactly its seven fields")
    vector = value.pop("v_intent")
    score = value.pop("score_cis")
    if not isinstance(vector, list) or not _are_numbers(vector):
        raise FormatError("DBOM: v_intent is not a list of finite numbers", field="v_intent")
    if not isinstance(score, int | float) or not _are_numbers([score]):
        raise FormatError("DBOM: score_cis is not a finite number", field="score_cis")
    texts: dict[str, str] = {}
    for name, text in value.items():
        if not isinstance(text, str):
            raise FormatError(f"DBOM: {name} is not a text", field=name)
        texts[name] = text
    fields = Fields(
        evaluation_id=texts["battle_id"],
        h_delta=texts["h_delta"],
        v_intent=tuple(map(float, vector)),
        score_cis=float(score),
        timestamp=texts["timestamp"],
        dbom_version=texts["dbom_version"],
    )
    return SignedDbom(fields, texts["sigma_judge"])


def is_utc(text: object) -> bool:
    """Return whether a text is an RFC 3339 time in UTC, and a date and time that exist."""
    if not isinstance(text, str) or not _UTC.fullmatch(text):
        return False
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def _are_numbers(values: Sequence[object]) -> bool:
    """Return whether all values are finite numbers."""
    # Every evaluation has a vector: types are checked once per type, so that no Python call is made per element.
    if not all(issubclass(kind, int | float) and kind is not bool for kind in set(map(type, values))):
        return False
    try:
        return all(map(isfinite, values))  # type: ignore[arg-type]
    except OverflowError:  # an integer beyond the doubles
        return False
