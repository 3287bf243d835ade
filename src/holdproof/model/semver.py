"""Negotiating versions: does a version lie in a supported range?

Rules:
- "1" and "1.x" mean the same major; "1.4" the same major and at least that minor; "1.4.2" at least that patch as well.
- A malformed version lies in no range; a malformed range is refused.
"""

import re

from holdproof.errors import InvalidInputError

_PART = r"(0|[1-9][0-9]{0,8})"
_VERSION = re.compile(rf"{_PART}(?:\.{_PART})?(?:\.{_PART})?(?:-[0-9A-Za-z.-]+)?(?:\+[0-9A-Za-z.-]+)?")
_RANGE = re.compile(rf"{_PART}(?:\.(?:[xX*]|{_PART}))?(?:\.(?:[xX*]|{_PART}))?")


def accepts(supported: str, version: str) -> bool:
    """Return whether a version is inside the supported range."""
    range_parts = _RANGE.fullmatch(supported)
    if range_parts is None:
        raise InvalidInputError(f"{supported!r} is no range of versions; write 1.x or 1.4", supported=supported)
    version_parts = _VERSION.fullmatch(version)
    if version_parts is None:
        return False
    major, minor, patch = (int(part or 0) for part in range_parts.groups())
    have = [int(part or 0) for part in version_parts.groups()]
    return have[0] == major and have[1:] >= [minor, patch]
