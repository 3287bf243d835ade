"""The words of a record, as they are kept for searching."""

import re
from collections.abc import Iterator
from typing import Any, Final

from holdfast.crypto.mst import Get
from holdfast.db import sql
from holdfast.memory import records
from holdfast.memory.records import Record

MOST_BYTES: Final = 1 << 18
"""A text search of PostgreSQL has no room for much more."""
_WORD: Final = re.compile(r"[^\W_]+")
_LONGEST: Final = 500

PUT = sql(
    "INSERT INTO object_text (ns, key, cid, body) VALUES (:ns, :key, :cid, :body)"
    " ON CONFLICT (ns, key) DO UPDATE SET cid = excluded.cid, body = excluded.body"
)
REMOVE = sql("DELETE FROM object_text WHERE ns = :ns AND key = :key")


def words(text: str) -> Iterator[str]:
    """The words of a text: letters and digits, whatever case; of a very long one its beginning."""
    for found in _WORD.finditer(text.casefold()):
        yield found[0][:_LONGEST]


def body(record: Record, get: Get) -> str:
    """All words of a record's content and attributes, up to the bound; none of what is sealed."""
    if record.subject is not None or records.is_sealed(record.content):
        return ""
    whole = records.whole(record, get)
    found: list[str] = []
    size = 0
    for text in texts([whole.content, whole.attributes]):
        for word in words(text):
            size += len(word.encode()) + 1
            if size > MOST_BYTES:
                return " ".join(found)
            found.append(word)
    return " ".join(found)


def texts(value: Any) -> Iterator[str]:
    """Every text in a value, maps in the order of their keys."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        # By name: a record that is read has its fields in another order than the one that was put.
        for item in (value[name] for name in sorted(value)) if isinstance(value, dict) else value:
            yield from texts(item)
