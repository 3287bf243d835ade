"""The words of a record, as they are kept for searching."""

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from holdproof.crypto.mst import Get
from holdproof.db import Tx, sql
from holdproof.memory.objects import records
from holdproof.memory.objects.records import ObjectRecord

MOST_BYTES: Final = 1 << 18
"""A text search of PostgreSQL has no room for much more."""
_WORD: Final = re.compile(r"[^\W_]+")
_SPACES: Final = {code: " " for code in range(128) if not chr(code).isalnum()}
"""What cuts words in ASCII: the same as the expression, at a tenth of the price."""
_LONGEST: Final = 500
_BATCH: Final = 500
_BATCH_SIZE: Final = 1 << 20

_PUT = sql(
    "INSERT INTO object_text (ns, key, cid, body) SELECT :ns, value ->> 0, value ->> 1, value ->> 2"
    " FROM json_each(:rows) WHERE true"
    " ON CONFLICT (ns, key) DO UPDATE SET cid = excluded.cid, body = excluded.body",
    postgres="INSERT INTO object_text (ns, key, cid, body) SELECT CAST(:ns AS TEXT), r ->> 0, r ->> 1, r ->> 2"
    " FROM json_array_elements(CAST(:rows AS JSON)) r"
    " ON CONFLICT (ns, key) DO UPDATE SET cid = excluded.cid, body = excluded.body",
)
_REMOVE = sql(
    "DELETE FROM object_text WHERE ns = :ns AND key IN (SELECT value FROM json_each(:keys))",
    postgres="DELETE FROM object_text WHERE ns = :ns AND key IN"
    " (SELECT value FROM json_array_elements_text(CAST(:keys AS JSON)))",
)


class Text(NamedTuple):
    """The words of an object, and the record they are of."""

    key: str
    cid: str
    body: str


def put(tx: Tx, ns: str, texts: Iterable[Text]) -> None:
    """Write the words of objects, many in one statement: FTS5 writes a segment of its own for every one of these."""
    batch: list[Text] = []
    size = 0
    for text in texts:
        batch.append(text)
        size += len(text.body)
        if size > _BATCH_SIZE or len(batch) == _BATCH:
            tx.execute(_PUT, ns=ns, rows=json.dumps(batch))
            batch = []
            size = 0
    if batch:
        tx.execute(_PUT, ns=ns, rows=json.dumps(batch))


def remove(tx: Tx, ns: str, keys: list[str]) -> None:
    """Forget the words of objects."""
    if keys:
        tx.execute(_REMOVE, ns=ns, keys=json.dumps(keys))


def words(text: str) -> list[str]:
    """Return the words of a text: letters and digits, whatever case."""
    # Both databases get words that are already folded and cut: their own tokenizers disagree on nearly everything.
    folded = text.casefold()
    tokens = folded.translate(_SPACES).split() if folded.isascii() else _WORD.findall(folded)
    return tokens if len(folded) <= _LONGEST else [word[:_LONGEST] for word in tokens]


def body(record: ObjectRecord, get: Get) -> str:
    """Return all words of a record's content and attributes, up to the bound; none of what is sealed."""
    if record.subject is not None or records.is_sealed(record.content):
        return ""
    whole = records.whole(record, get)
    parts = [*texts([whole.content, whole.attributes])]
    if sum(map(len, parts)) <= MOST_BYTES // 16:  # whatever its letters become in lower case and UTF-8
        return " ".join(words("\n".join(parts)))
    return " ".join(_bounded(parts))


def _bounded(texts: list[str]) -> Iterator[str]:
    """Yield the first words of long texts, whole ones only; what is beyond the bound is not even looked at."""
    size = 0
    for text in texts:
        for match in _WORD.finditer(text.casefold()):
            word = match[0][:_LONGEST]
            size += len(word.encode()) + 1
            if size > MOST_BYTES:
                return
            yield word


def texts(value: Any) -> Iterator[str]:
    """Yield every text in a value, maps in the order of their keys."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        # By name: a record that is read has its fields in another order than the one that was put.
        for item in (value[name] for name in sorted(value)) if isinstance(value, dict) else value:
            yield from texts(item)
