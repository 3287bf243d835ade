"""Transcripts: ordered items under a name, and one document beside them; what sessions of agent frameworks are made of.

Rules:
- The first write makes a transcript. An append writes what is new and nothing else, however long the transcript is.
- Every change is one statement on the transcript's row first, which gives it its `rev` and items their numbers: two
  writers never share a number, never lose an item, and items of one append stay together.
- A writer that says which `rev` it has seen (`expected`; 0: none) is refused with ConflictError if another came first.
- Numbers are never given twice, not even after `pop` or `clear`. A deleted transcript begins anew.
- What is read was written by an append that is durable, whole.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from holdproof import validation
from holdproof.db import Row, Tx, sql
from holdproof.errors import ConflictError, FormatError, InvalidInputError, NotFoundError
from holdproof.memory.objects.tree_transaction import MAIN
from holdproof.model.transcripts import Item, Transcript, TranscriptPage

_LONGEST: Final = 1000
_ALL: Final = 2**62

# --- writing -----------------------------------------------------------------------------------------------------

_TOUCH = sql(
    "INSERT INTO transcripts (ns, name, rev, last, state, created_at, updated_at)"
    " VALUES (:ns, :name, 1, :count, coalesce(:state, '{}'), :now, :now)"
    " ON CONFLICT (ns, name) DO UPDATE SET rev = transcripts.rev + 1, last = transcripts.last + :count,"
    " state = coalesce(:state, transcripts.state), updated_at = :now"
    " WHERE :expected = -1 OR transcripts.rev = :expected RETURNING n, rev, last"
)
_RENEW = sql(
    "UPDATE transcripts SET rev = rev + 1, state = coalesce(:state, state), last = last + :count, updated_at = :now"
    " WHERE ns = :ns AND name = :name AND rev = :expected RETURNING n, rev, last"
)
_ADD = sql(
    "INSERT INTO transcript_items (transcript, seq, key, tag, body) VALUES (:transcript, :seq, :key, :tag, :body)"
)


def append(
    tx: Tx,
    name: str,
    items: Sequence[Any],
    *,
    state: Any = None,
    changes: Mapping[str, Any] | None = None,
    expected: int | None = None,
    ns: str = MAIN,
) -> int:
    """Add items at the end, and replace the document by `state` or keys of it by `changes`, as one; the new `rev`."""
    bodies = [_dump(item) for item in items]
    n, rev, last = _touch(tx, name, ns, count=len(bodies), state=state, expected=expected)
    if changes:
        _merge(tx, n, changes)
    _add(tx, n, last - len(bodies), ((None, None, body) for body in bodies))
    return rev


def put(tx: Tx, name: str, key: str, value: Any, *, tag: str | None = None, ns: str = MAIN) -> Item:
    """Add an item that is found by its key, in the place of the one that was."""
    body = _dump(value)
    n, _, last = _touch(tx, name, ns, count=1)
    tx.execute(_DROP, transcript=n, key=_named("key", key))
    _add(tx, n, last - 1, [(key, None if tag is None else _named("tag", tag), body)])
    return Item(last, json.loads(body), key, tag)


def write(tx: Tx, name: str, state: Any, *, expected: int | None = None, ns: str = MAIN) -> int:
    """Replace the document beside the items; the new `rev`."""
    return _touch(tx, name, ns, state={} if state is None else state, expected=expected)[1]


def merge(
    tx: Tx, name: str, changes: Mapping[str, Any], *, expected: int | None = None, ns: str = MAIN
) -> dict[str, Any]:
    """Change some keys of the document and leave the others, whoever changes those meanwhile; the whole document."""
    n, _, _ = _touch(tx, name, ns, expected=expected)
    return _merge(tx, n, changes)


_STATE = sql("SELECT state FROM transcripts WHERE n = :n")
_REPLACE = sql("UPDATE transcripts SET state = :state WHERE n = :n")


def _merge(tx: Tx, n: int, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Change keys of a document that is ours to change."""
    [(text,)] = tx.all(_STATE, n=n)
    known = json.loads(text)
    if not isinstance(known, dict):
        raise InvalidInputError("the document of the transcript is no object, and has no keys to change")
    merged = {**known, **changes}
    tx.execute(_REPLACE, n=n, state=_dump(merged), expect=1)
    return merged


def _touch(
    tx: Tx, name: str, ns: str, *, count: int = 0, state: Any = None, expected: int | None = None
) -> tuple[int, int, int]:
    """Take a transcript's next `rev` and numbers; nobody else has it before this transaction ends."""
    row = {"name": _named("name", name), "ns": ns, "count": count, "now": tx.now}
    row["state"] = None if state is None else _dump(state)
    if expected is not None and (isinstance(expected, bool) or not 0 <= expected < _ALL):
        raise InvalidInputError("expected is the rev that was seen, 0 where there was none", expected=expected)
    taken = tx.one(_RENEW if expected else _TOUCH, **row, expected=-1 if expected is None else expected)
    if taken is None:
        raise ConflictError(f"somebody else has written the transcript {name}", name=name, expected=expected)
    return int(taken[0]), int(taken[1]), int(taken[2])


def _add(tx: Tx, n: int, before: int, items: Iterable[tuple[str | None, str | None, str]]) -> None:
    for seq, (key, tag, body) in enumerate(items, before + 1):
        tx.execute(_ADD, transcript=n, seq=seq, key=key, tag=tag, body=body)


# --- removing ----------------------------------------------------------------------------------------------------

_HOLD = sql("UPDATE transcripts SET rev = rev + 1, updated_at = :now WHERE ns = :ns AND name = :name RETURNING n, last")
_POP = sql(
    "DELETE FROM transcript_items WHERE transcript = :transcript AND seq = (SELECT max(seq) FROM transcript_items"
    " WHERE transcript = :transcript) RETURNING seq, key, tag, body"
)
_DROP = sql("DELETE FROM transcript_items WHERE transcript = :transcript AND key = :key")
_CLEAR = sql("DELETE FROM transcript_items WHERE transcript = :transcript")
_REMOVE = sql("DELETE FROM transcripts WHERE n = :transcript")


def pop(tx: Tx, name: str, *, ns: str = MAIN) -> Item | None:
    """Take the last item away; None where there is none."""
    n = _held(tx, name, ns)
    row = None if n is None else tx.one(_POP, transcript=n)
    return None if row is None else _item(row)


def drop(tx: Tx, name: str, key: str, *, ns: str = MAIN) -> bool:
    """Take the item with a key away; whether there was one."""
    n = _held(tx, name, ns)
    return n is not None and tx.count(_DROP, transcript=n, key=key) == 1


def clear(tx: Tx, name: str, *, ns: str = MAIN) -> int:
    """Take all items away, and keep the document; how many there were."""
    n = _held(tx, name, ns)
    return 0 if n is None else tx.count(_CLEAR, transcript=n)


def delete(tx: Tx, name: str, *, ns: str = MAIN) -> bool:
    """Remove a transcript with all it has; whether there was one."""
    n = _held(tx, name, ns)
    if n is None:
        return False
    tx.execute(_CLEAR, transcript=n)
    tx.execute(_REMOVE, transcript=n, expect=1)
    return True


def _held(tx: Tx, name: str, ns: str) -> int | None:
    """The number of a transcript that is now ours to change, None where there is none."""
    row = tx.one(_HOLD, name=name, ns=ns, now=tx.now)
    return None if row is None else int(row[0])


# --- reading -----------------------------------------------------------------------------------------------------

_LATEST = sql(
    "SELECT i.seq, i.key, i.tag, i.body FROM transcript_items i JOIN transcripts t ON t.n = i.transcript"
    " WHERE t.ns = :ns AND t.name = :name AND i.seq < :before ORDER BY i.seq DESC LIMIT :limit"
)
_TAGGED = sql(
    "SELECT i.seq, i.key, i.tag, i.body FROM transcript_items i JOIN transcripts t ON t.n = i.transcript"
    " WHERE t.ns = :ns AND t.name = :name AND i.tag = :tag AND i.seq < :before ORDER BY i.seq DESC LIMIT :limit"
)


def read(
    tx: Tx, name: str, *, last: int | None = None, before: int | None = None, tag: str | None = None, ns: str = MAIN
) -> tuple[Item, ...]:
    """The items in their order: all, the last so many, those before a number, those with a tag."""
    of = {"ns": ns, "name": name, "before": _ALL if before is None else before}
    of["limit"] = _ALL if last is None else max(0, last)
    rows = tx.all(_LATEST, **of) if tag is None else tx.all(_TAGGED, **of, tag=tag)
    rows.reverse()
    values = _load([row[3] for row in rows], name)
    return tuple(Item(row[0], value, row[1], row[2]) for row, value in zip(rows, values, strict=True))


_KEYED = sql(
    "SELECT i.seq, i.key, i.tag, i.body FROM transcript_items i JOIN transcripts t ON t.n = i.transcript"
    " WHERE t.ns = :ns AND t.name = :name AND i.key = :key"
)


def find(tx: Tx, name: str, key: str, *, ns: str = MAIN) -> Item | None:
    """The item with a key, None where there is none."""
    row = tx.one(_KEYED, ns=ns, name=name, key=key)
    return None if row is None else _item(row)


_GET = sql("SELECT name, rev, state, created_at, updated_at, ns FROM transcripts WHERE ns = :ns AND name = :name")


def get(tx: Tx, name: str, *, ns: str = MAIN) -> Transcript:
    """A transcript with its document."""
    row = tx.one(_GET, ns=ns, name=name)
    if row is None:
        raise NotFoundError(f"there is no transcript {name}", name=name)
    return _transcript(row)


_LIST = sql(
    "SELECT name, rev, state, created_at, updated_at, ns FROM transcripts WHERE ns = :ns AND name > :after"
    " AND name >= :prefix AND name < :end ORDER BY name LIMIT :limit"
)


def list(tx: Tx, *, prefix: str = "", after: str = "", limit: int = 100, ns: str = MAIN) -> TranscriptPage:
    """Transcripts whose names begin with `prefix`, by name, a page at a time: pass `next` of a page as `after`."""
    end = prefix + chr(0x10FFFF)
    rows = tx.all(_LIST, ns=ns, after=after, prefix=prefix, end=end, limit=validation.limited(limit))
    found = tuple(_transcript(row) for row in rows)
    return TranscriptPage(found, found[-1].name if len(found) == limit else None)


# --- values ------------------------------------------------------------------------------------------------------


def _named(what: str, text: Any) -> str:
    return validation.name(what, text, most=_LONGEST)


def _dump(value: Any) -> str:
    """A value as JSON; a lone surrogate, which no database can keep, is written as its escape."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInputError(f"an item is no JSON: {error}") from error
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(value, allow_nan=False, separators=(",", ":"))
    return text


def _load(texts: Sequence[str], name: str) -> Sequence[Any]:
    """The values of many JSON texts, parsed at once: half the time of one by one."""
    try:
        values: Sequence[Any] = json.loads(f"[{','.join(texts)}]")
    except ValueError as error:
        raise FormatError(f"the transcript {name} holds what is no JSON", name=name) from error
    if len(values) != len(texts):
        raise FormatError(f"the transcript {name} holds what is no JSON", name=name)
    return values


def _item(row: Row) -> Item:
    return Item(row[0], json.loads(row[3]), row[1], row[2])


def _transcript(row: Row) -> Transcript:
    return Transcript(row[0], row[1], json.loads(row[2]), row[3], row[4], row[5])
