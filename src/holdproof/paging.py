"""Cursors of listings: where a page ends, as opaque text.

    rows = tx.all(_LIST, before=paging.last_id(cursor), limit=paging.fetch(limit))
    return paging.page(map(Note.from_row, rows), limit, lambda note: (note.id,))

A cursor holds the sort key of the last item of its page (keyset paging): the next page begins behind that key, whatever
was added or removed meanwhile. It is base64url of a JSON list, so that no caller is tempted to build one. Every listing
pages this way.

Rules:
- A listing fetches one row more than the page holds (`fetch`): that row only tells whether another page follows.
- A text that is no cursor of the listing is InvalidInputError with field `cursor`.
"""

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar

from holdproof import validation
from holdproof.errors import InvalidInputError
from holdproof.model.page import Page

T = TypeVar("T")

# The longest sort key is the path of a skill's file.
_LONGEST_PART: Final = 8_192
_LONGEST_CURSOR: Final = 2 * _LONGEST_PART


def fetch(limit: int) -> int:
    """Return how many rows to fetch for a page of `limit` items."""
    return validation.limited(limit) + 1


def page(items: Iterable[T], limit: int, key: Callable[[T], tuple[str | int, ...]]) -> Page[T]:
    """Return a page of items that were fetched with `fetch(limit)`; `key` gives the sort key of an item."""
    listed = list(items)
    if len(listed) <= limit:
        return Page(listed)
    visible = listed[:limit]
    return Page(visible, encode(*key(visible[-1])))


def encode(*key: str | int) -> str:
    """Return a cursor behind the item with that sort key."""
    text = json.dumps(key, separators=(",", ":"), ensure_ascii=False)
    # A lone surrogate passes here as it does in `json.loads`; `decode` refuses it like any other bad cursor.
    return urlsafe_b64encode(text.encode(errors="surrogatepass")).decode().rstrip("=")


def decode(cursor: str | None, *start: str | int) -> tuple[Any, ...]:
    """Return the sort key that a cursor holds, or `start` where there is none; its parts have the types of `start`."""
    if cursor is None:
        return start
    try:
        # Bounded before it is decoded: a cursor comes from outside.
        if len(cursor) > _LONGEST_CURSOR:
            raise ValueError("too long")
        # The padding is left out of cursors, so that they need no quoting in addresses.
        text = urlsafe_b64decode(cursor.encode("ascii") + b"=" * (-len(cursor) % 4))
        parts = json.loads(text)
        if not isinstance(parts, list) or len(parts) != len(start):
            raise ValueError("another listing's")
        return tuple(_part(part, type(first)) for part, first in zip(parts, start, strict=True))
    except (ValueError, TypeError, AttributeError, RecursionError, InvalidInputError) as error:
        message = "cursor is not the next_cursor of a page of this listing"
        raise InvalidInputError(message, field="cursor", value=str(cursor)[:100]) from error


def _part(part: Any, kind: type[str | int]) -> str | int:
    """One part of a sort key, such that the database can compare with it."""
    if kind is int:
        return validation.position("cursor", part)
    return validation.words("cursor", part, least=0, most=_LONGEST_PART)


def last_id(cursor: str | None) -> int:
    """Return the row number before which a page begins, for listings with the newest first."""
    (number,) = decode(cursor, validation.LAST)
    return int(number)


def moment(text: str) -> str:
    """Validate a part of a cursor that is a time: PostgreSQL would refuse another text as a type error."""
    return validation.moment("cursor", text)
