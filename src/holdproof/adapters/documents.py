"""What adapters keep in transcripts: names made of several parts, values that JSON gives back as they were.

Rules:
- Different parts make different names, whatever characters they hold, and parts come back from a name as they were.
- A value that JSON would give back changed (a tuple, a number as a key, NaN) is refused when it is written.
"""

import json
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import quote, unquote

from holdproof.errors import InvalidInputError
from holdproof.kernel import Tx, transcripts
from holdproof.model.transcripts import Transcript

_PAGE: Final = 500


def joined(prefix: str, *parts: str) -> str:
    """Return the name of a transcript: a prefix that ends in a slash, and parts that may hold anything."""
    for part in parts:
        if not isinstance(part, str):
            raise InvalidInputError(f"an id must be a text, not {type(part).__name__}", value=repr(part)[:100])
    # Lone surrogates are escaped too, so that a foreign id never fails as an encoding error.
    return prefix + "/".join(quote(part, safe="", errors="surrogatepass") for part in parts)


def parted(prefix: str, name: str) -> tuple[str, ...]:
    """Return the parts of a name that `joined` made."""
    return tuple(unquote(part, errors="surrogatepass") for part in name.removeprefix(prefix).split("/"))


def every(tx: Tx, prefix: str, *, ns: str) -> Iterator[Transcript]:
    """Return all transcripts whose names begin with a prefix, by name."""
    cursor: str | None = None
    while True:
        page = transcripts.list(tx, prefix=prefix, cursor=cursor, limit=_PAGE, ns=ns)
        yield from page
        cursor = page.next_cursor
        if cursor is None:
            return


def exact(what: str, value: Any) -> Any:
    """Return a value that JSON gives back as it is; InvalidInputError for any other."""
    try:
        # NaN is refused like every other value that comes back as something else: it equals nothing.
        copy = json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInputError(f"{what} must be plain JSON: {error}", field=what) from error
    if copy != value or not _same_kinds(copy, value):
        raise InvalidInputError(
            f"{what} must be plain JSON: a tuple, or a key that is no text, would come back as something else",
            field=what,
        )
    return value


def _same_kinds(copy: Any, value: Any) -> bool:
    """Whether two equal values are of the same types all the way down: True equals 1, and 1.0 too."""
    if isinstance(copy, dict):
        return all(_same_kinds(copy[key], value[key]) for key in copy)
    if isinstance(copy, list):
        return isinstance(value, list) and all(map(_same_kinds, copy, value))
    return isinstance(value, type(copy))
