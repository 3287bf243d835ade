"""Addresses of places in buckets, as backups and the published log take them in the place of a path."""

import os
import re
from typing import Final, NamedTuple

from holdproof.errors import InvalidInputError

# One slash is enough: a `Path` made of the address has only one.
_ADDRESS: Final = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]+):(?P<slashes>/{1,2})(?P<rest>.*)", re.DOTALL)
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class BucketAddress(NamedTuple):
    """A bucket, and a folder in it; `folder` is empty for the bucket itself, and never begins or ends with a slash."""

    bucket: str
    folder: str


def parse(place: str | os.PathLike[str]) -> BucketAddress | None:
    """Return what `s3://bucket/folder` names; None for a path, InvalidInputError for any other address."""
    address = _ADDRESS.fullmatch(os.fspath(place))
    if address is None or (address["scheme"] != "s3" and address["slashes"] != "//"):
        return None
    if address["scheme"] != "s3":
        raise InvalidInputError(f"name a folder or s3://bucket/folder, not {address['scheme']}://…")
    name, _, path = address["rest"].partition("/")
    if name and not _NAME.fullmatch(name):
        # Not named in the error: people write keys there, as in other addresses.
        raise InvalidInputError(
            "name it s3://bucket/folder: a bucket has small letters, digits, dots and hyphens, and keys come from the"
            " AWS_ variables"
        )
    parts = path.strip("/").split("/")
    if not name or (parts != [""] and not {"", ".", ".."}.isdisjoint(parts)):
        raise InvalidInputError(f"{os.fspath(place)}: name it s3://bucket/folder", path=os.fspath(place))
    return BucketAddress(name, "/".join(parts))
