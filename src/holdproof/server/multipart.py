"""Forms with files (RFC 7578), as browsers send them: a few parts, all in memory.

Rules:
- The body was bounded before (`RequestLimitsMiddleware`); it has at most so many parts, and their heads are short.
- What does not have the form is RequestError; of two parts with one name, the request is refused: a check of the one
  must not be followed by a use of the other.
"""

import re
from dataclasses import dataclass
from typing import Final

from holdproof.errors import RequestError

TYPE: Final = "multipart/form-data"
_BOUNDARY: Final = re.compile(
    r"""^multipart/form-data\s*;\s*boundary=(?:"([^"]{1,70})"|([^\s";,]{1,70}))\s*$""", re.IGNORECASE
)
_NAME: Final = re.compile(
    rb'^content-disposition:\s*form-data\s*;.*?\bname="([^"\r\n]*)"', re.IGNORECASE | re.MULTILINE
)
_FILE: Final = re.compile(rb'\bfilename="([^"\r\n]*)"', re.IGNORECASE)
_MOST_PARTS: Final = 20
_MOST_HEAD: Final = 2_048


@dataclass(frozen=True, slots=True)
class FormPart:
    """What one field of a form holds; `filename` is what the sender calls a file, empty for any other field."""

    content: bytes
    filename: str

    @property
    def text(self) -> str:
        """The content as text; RequestError where it is none."""
        try:
            return self.content.decode()
        except UnicodeDecodeError as error:
            raise RequestError("a field of the form is no text") from error


def parse(body: bytes, content_type: str) -> dict[str, FormPart]:
    """Return the parts of a form by their names."""
    named = _BOUNDARY.match(content_type.strip())
    if named is None:
        raise RequestError("the form does not say where its parts end")
    delimiter = b"\r\n--" + (named[1] or named[2]).encode("latin-1", "replace")
    # The first delimiter has no line before it; one split too many shows that there are too many parts.
    before, *pieces = (b"\r\n" + body).split(delimiter, _MOST_PARTS + 2)
    if before or not pieces or pieces.pop().strip(b"\r\n") != b"--":
        raise RequestError("this is no form of several parts, or it was cut off")
    parts: dict[str, FormPart] = {}
    for piece in pieces:
        name, part = _part(piece)
        if name in parts:
            raise RequestError("the form has a field twice", field=name[:100])
        parts[name] = part
    return parts


def _part(piece: bytes) -> tuple[str, FormPart]:
    """Return a part and its name."""
    end = piece.find(b"\r\n\r\n", 0, _MOST_HEAD)
    head = piece[2:end]
    named = _NAME.search(head) if end >= 0 and piece.startswith(b"\r\n") else None
    if named is None:
        raise RequestError("a part of the form has no name")
    file = _FILE.search(head)
    filename = file[1].decode("utf-8", "replace") if file else ""
    return named[1].decode("utf-8", "replace"), FormPart(piece[end + 4 :], filename)
