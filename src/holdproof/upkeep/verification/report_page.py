"""The page of a bundle: `report.html`, one file that shows what was decided and checks it in a browser, offline.

Rules:
- The page is a fixed program and the parts of the bundle, as they are: nothing is written into it in words, so that
  what it shows is what it has checked.
- The program loads nothing, and its policy forbids it to.
- `holdproof verify` compares the parts in the page with those beside it: a page that shows something else is TAMPERED.
"""

import json
from base64 import b64encode
from collections.abc import Mapping
from importlib import resources
from typing import Final

from holdproof.errors import ProofError

NAME: Final = "report.html"
_DATA: Final = b"__DATA__"
_OPEN: Final = b'<script type="application/json" id="bundle">'
_CLOSE: Final = b"</script>"


def make(members: Mapping[str, bytes]) -> bytes:
    """Return the page of a bundle with these members."""
    return _program().replace(_DATA, _data(members))


def _program() -> bytes:
    return (resources.files("holdproof.upkeep") / NAME).read_bytes()


def _data(members: Mapping[str, bytes]) -> bytes:
    """Return the parts that the page checks, as JSON of base64: no text in them can end the script they stand in."""
    parts = {name: b64encode(data).decode() for name, data in sorted(members.items()) if _is_checked(name)}
    return json.dumps(parts, separators=(",", ":")).encode()


def _is_checked(name: str) -> bool:
    # Large parts of values are left out: a record names them by their hashes.
    return name.startswith("records/") or name in {
        "bundle.json",
        "head.note",
        "trust.json",
        "dbom.json",
        "dbom.dsse.json",
    }


def is_of_this_version(page: bytes, members: Mapping[str, bytes]) -> bool:
    """Whether a page is exactly that of this version; ProofError if it shows other parts than those beside it."""
    if page == make(members):
        return True
    _, _, rest = page.partition(_OPEN)
    data, _, _ = rest.partition(_CLOSE)
    # A page of another version may check in another way, but not something else.
    if page.count(_OPEN) != 1 or data != _data(members):
        raise ProofError("report.html shows other records than those of the bundle")
    return False
