"""Values of the blob store, and what a key may be called."""

import re
from dataclasses import dataclass
from typing import Final

from holdproof.errors import BlobKeyError, InvalidInputError
from holdproof.model.value import Value

MOST_KEY_BYTES: Final = 1024
MOST_PART_BYTES: Final = 255
# Device names of Windows, with any extension, and the folder of our own files: a key may become a file name.
RESERVED: Final = frozenset({"con", "prn", "aux", "nul", ".holdproof"}) | {
    f"{port}{n}" for port in ("com", "lpt") for n in range(1, 10)
}
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_DRIVE: Final = re.compile(r"[A-Za-z]:/")
_TYPE: Final = re.compile(r"[\x20-\x7e]{1,255}")


@dataclass(frozen=True, slots=True)
class Blob(Value):
    """What is known of a blob: `place` is `db` for one inside its row, else where `address` is known."""

    key: str
    size: int
    sha256: str
    content_type: str | None
    place: str
    address: str | None
    put_at: str


@dataclass(frozen=True, slots=True)
class BlobsSwept(Value):
    """What a sweep removed: objects that no key has, and temporary files."""

    objects: int
    temporaries: int


def check_key(key: object) -> str:
    """A key that is a name; BlobKeyError for one that is a path, too long, reserved, or no text."""
    fault = _fault(key) if isinstance(key, str) else "it is no text"
    if fault is not None:
        # The key goes into a message and a log: short, and without what cannot be encoded.
        excerpt = str(key)[:100].encode(errors="backslashreplace").decode()
        raise BlobKeyError(f"no key for a blob: {excerpt!r}, {fault}", key=excerpt, fault=fault)
    return str(key)


def _fault(key: str) -> str | None:
    """What is wrong with a key, or None."""
    if not can_begin(key):
        return "it has a control character or is no Unicode"
    if len(key.encode()) > MOST_KEY_BYTES:
        return f"it is longer than {MOST_KEY_BYTES} bytes"
    # A path on any system, whichever the store runs on: stores move between machines.
    if "\\" in key or key.startswith("/") or _DRIVE.match(key):
        return "it is a path"
    return next((fault for part in key.split("/") if (fault := _part_fault(part))), None)


def _part_fault(part: str) -> str | None:
    if not part.strip():
        return "a part of it is empty"
    if part in {".", ".."}:
        return "it is a path"
    if part.lower().partition(".")[0] in RESERVED or part.lower() in RESERVED:
        return f"{part} is reserved"
    return f"a part of it is longer than {MOST_PART_BYTES} bytes" if len(part.encode()) > MOST_PART_BYTES else None


def can_begin(prefix: str) -> bool:
    """Whether any key can begin with these characters."""
    try:
        prefix.encode()  # lone surrogates are text for Python, not for databases
    except UnicodeEncodeError:
        return False
    return not _CONTROL.search(prefix)


def check_content_type(content_type: object) -> None:
    """Whether it is a content type as HTTP writes it, or none; InvalidInputError for anything else."""
    if content_type is None or (isinstance(content_type, str) and _TYPE.fullmatch(content_type)):
        return
    raise InvalidInputError("a content type is 1 to 255 printable ASCII characters", field="content_type")
