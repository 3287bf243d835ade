"""Values of other programs as JSON, so that nothing of them is lost."""

import json
from collections import Counter
from collections.abc import Mapping
from hashlib import sha256
from math import isfinite
from typing import Any


def row(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values as JSON: bytes in hex, numbers that are not finite as text."""
    return {name: value(given) for name, given in values.items()}


def value(given: Any) -> Any:
    """One value as JSON."""
    if isinstance(given, bytes):
        return {"hex": given.hex()}
    return {"float": repr(given)} if isinstance(given, float) and not isfinite(given) else given


def fingerprint(values: Mapping[str, Any], seen: Counter[str], of: str = "") -> str:
    """What tells a row from every other one of its source: its content, and for equal rows their number."""
    content = of + json.dumps(row(values), sort_keys=True)
    seen[content] += 1
    return sha256(f"{content}#{seen[content]}".encode()).hexdigest()
