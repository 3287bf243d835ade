"""Transcripts: ordered items under a name, and one document beside them; what sessions of agent frameworks are made of.

Rules:
- The first write makes a transcript. An append writes what is new and nothing else, however long the transcript is.
- Every change is one statement on the transcript's row first, which gives it its `rev` and items their numbers: two
  writers never share a number, never lose an item, and items of one append stay together.
- A writer that says which `rev` it has seen (`expected`; 0: none) is refused with ConflictError if another came first.
- Numbers are never given twice, not even after `pop` or `clear`. A deleted transcript begins anew.
- What is read was written by an append that is durable, whole.
- A transcript that is a subject's stays the subject's, and goes with all its items when that person is erased.
"""

import builtins
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from holdproof import paging, validation
from holdproof.content import encryption
from holdproof.db import USED, Row, Tx, Use, sql
from holdproof.errors import ConflictError, FormatError, InvalidInputError, NotFoundError
from holdproof.evidence import erasable
from holdproof.memory.objects.tree_transaction import MAIN
from holdproof.model import jsontext
from holdproof.model.page import Page
from holdproof.model.transcripts import Item, Transcript

_LONGEST: Final = 1000
_ALL: Final = 2**62

# --- writing -----------------------------------------------------------------------------------------------------

_TOUCH = sql(
    "INSERT INTO transcripts (ns, name, rev, last, state, subject, created_at, updated_at)"
    " VALUES (:ns, :name, 1, :count, coalesce(:state, '{}'), :subject, :now, :now)"
    " ON CONFLICT (ns, name) DO UPDATE SET rev = transcripts.rev + 1, last = transcripts.last + :count,"
    " state = coalesce(:state, transcripts.state), subject = coalesce(transcripts.subject, :subject), updated_at = :now"
    " WHERE :expected = -1 OR transcripts.rev = :expected RETURNING n, rev, last"
)
_RENEW = sql(
    "UPDATE transcripts SET rev = rev + 1, state = coalesce(:state, state), last = last + :count,"
    " subject = coalesce(subject, :subject), updated_at = :now"
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
    subject: str | None = None,
    ns: str = MAIN,
) -> int:
    """Add items at the end, and replace the document by `state` or keys of it by `changes`, as one; the new `rev`.

    With `subject`, a transcript that is nobody's yet becomes that person's.
    """
    bodies = [_to_json(item) for item in items]
    # The row first: it serializes writers and reserves the numbers of all items at once.
    size = sum(len(body.encode()) for body in bodies)
    n, rev, last = _touch(tx, name, ns, count=len(bodies), size=size, state=state, expected=expected, subject=subject)
    if changes:
        _merge(tx, n, changes)
    _add(tx, n, last - len(bodies), ((None, None, body) for body in bodies))
    return rev


_ADD_NEW = sql(
    "INSERT INTO transcript_items (transcript, seq, key, tag, body) VALUES (:transcript, :seq, :key, NULL, :body)"
    " ON CONFLICT (transcript, key) WHERE key IS NOT NULL DO NOTHING"
)


def append_new(
    tx: Tx, name: str, items: Sequence[tuple[str | None, Any]], *, subject: str | None = None, ns: str = MAIN
) -> builtins.list[Any]:
    """Add (key, value) items at the end, except those whose key is there already; return the values that were added.

    A writer that does not know whether its last call arrived sends the items again, and nothing is there twice.
    """
    bodies = [(None if key is None else _named("key", key), value, _to_json(value)) for key, value in items]
    size = sum(len(body.encode()) for _, _, body in bodies)
    n, _, last = _touch(tx, name, ns, count=len(bodies), size=size, subject=subject)
    added = []
    # A number of an item that was there stays unused: numbers are never given twice, and may have gaps.
    for seq, (key, value, body) in enumerate(bodies, last - len(bodies) + 1):
        if tx.count(_ADD_NEW, transcript=n, seq=seq, key=key, body=body):
            added.append(value)
    return added


def put_item(
    tx: Tx,
    name: str,
    key: str,
    value: Any,
    *,
    tag: str | None = None,
    subject: str | None = None,
    ns: str = MAIN,
) -> Item:
    """Add an item that is found by its key at the end, replacing the one that had that key."""
    body = _to_json(value)
    n, _, last = _touch(tx, name, ns, count=1, size=len(body.encode()), subject=subject)
    tx.execute(_DROP, transcript=n, key=_named("key", key))
    _add(tx, n, last - 1, [(key, None if tag is None else _named("tag", tag), body)])
    return Item(last, json.loads(body), key, tag)


def put_state(
    tx: Tx, name: str, state: Any, *, expected: int | None = None, subject: str | None = None, ns: str = MAIN
) -> int:
    """Replace the document beside the items; return the new `rev`."""
    _, rev, _ = _touch(tx, name, ns, state={} if state is None else state, expected=expected, subject=subject)
    return rev


def update_state(
    tx: Tx, name: str, changes: Mapping[str, Any], *, expected: int | None = None, ns: str = MAIN
) -> dict[str, Any]:
    """Change some keys of the document, leave the others as they are, and return the whole document."""
    n, _, _ = _touch(tx, name, ns, expected=expected)
    return _merge(tx, n, changes)


_STATE = sql("SELECT state FROM transcripts WHERE n = :n")
_REPLACE = sql("UPDATE transcripts SET state = :state WHERE n = :n")


def _merge(tx: Tx, n: int, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Change keys of a document that is ours to change."""
    [(text,)] = tx.all(_STATE, n=n)
    document = json.loads(text)
    if not isinstance(document, dict):
        raise InvalidInputError("the document of the transcript is no object, and has no keys to change")
    merged = {**document, **changes}
    tx.execute(_REPLACE, n=n, state=_to_json(merged), expect=1)
    return merged


def _touch(
    tx: Tx,
    name: str,
    ns: str,
    *,
    count: int = 0,
    size: int = 0,
    state: Any = None,
    expected: int | None = None,
    subject: str | None = None,
) -> tuple[int, int, int]:
    """Take a transcript's next `rev` and numbers; nobody else has it before this transaction ends."""
    row: dict[str, Any] = {"name": _named("name", name), "ns": ns, "count": count, "now": tx.now}
    # Labelled before the row is taken: an erasure waits for the label, and so never for a row that waits for it.
    row["subject"] = None if subject is None else encryption.label(tx, _named("subject", subject), ns=ns)
    row["state"] = None if state is None else _to_json(state)
    if expected is not None and (isinstance(expected, bool) or not 0 <= expected < _ALL):
        raise InvalidInputError("expected is the rev that was seen, 0 where there was none", expected=expected)
    if tx.limiter is not None and (count or row["state"]):
        tx.limiter.store(tx, ns, size + len((row["state"] or "").encode()))
    numbers = tx.one(_RENEW if expected else _TOUCH, **row, expected=-1 if expected is None else expected)
    if numbers is None:
        raise ConflictError(
            f"the transcript {name} was changed since rev {expected}: read it again", name=name, expected=expected
        )
    n, rev, last = numbers
    tx.note(USED, Use("written", "transcripts", ns, n))
    return int(n), int(rev), int(last)


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


def pop_item(tx: Tx, name: str, *, ns: str = MAIN) -> Item | None:
    """Remove the last item and return it; None where there is none."""
    n = _held(tx, name, ns)
    row = None if n is None else tx.one(_POP, transcript=n)
    return None if row is None else _item(row)


def delete_item(tx: Tx, name: str, key: str, *, ns: str = MAIN) -> bool:
    """Remove the item with a key; return whether there was one."""
    n = _held(tx, name, ns)
    return n is not None and tx.count(_DROP, transcript=n, key=key) == 1


def delete_items(tx: Tx, name: str, *, ns: str = MAIN) -> int:
    """Remove all items and keep the document; return how many there were."""
    n = _held(tx, name, ns)
    return 0 if n is None else tx.count(_CLEAR, transcript=n)


_CUT = sql(
    "DELETE FROM transcript_items WHERE transcript = :transcript AND seq >= :first AND seq <= :last RETURNING seq"
)


def delete_range(tx: Tx, name: str, *, first: int = 0, last: int = _ALL, ns: str = MAIN) -> builtins.list[int]:
    """Remove the items whose numbers are from `first` to `last`; return those numbers, in order."""
    n = _held(tx, name, ns)
    return [] if n is None else sorted(seq for (seq,) in tx.all(_CUT, transcript=n, first=first, last=last))


def delete(tx: Tx, name: str, *, ns: str = MAIN) -> bool:
    """Remove a transcript with its items and its document; return whether there was one."""
    n = _held(tx, name, ns)
    if n is None:
        return False
    tx.execute(_CLEAR, transcript=n)
    tx.execute(_REMOVE, transcript=n, expect=1)
    return True


def _held(tx: Tx, name: str, ns: str) -> int | None:
    """Return the number of a transcript that is now ours to change, None where there is none."""
    row = tx.one(_HOLD, name=name, ns=ns, now=tx.now)
    if row is None:
        return None
    n, _ = row
    return int(n)


_ERASE_ITEMS = sql(
    "DELETE FROM transcript_items WHERE transcript IN (SELECT n FROM transcripts WHERE subject = :subject)"
)
_ERASE = sql("DELETE FROM transcripts WHERE subject = :subject")


def _erase(tx: Tx, handle: str) -> int:
    tx.execute(_ERASE_ITEMS, subject=handle)
    return tx.count(_ERASE, subject=handle)


erasable.register_rows(erasable.UnloggedRows("transcripts", _erase))

# --- reading -----------------------------------------------------------------------------------------------------

_LATEST = sql(
    "SELECT i.seq, i.key, i.tag, i.body FROM transcript_items i JOIN transcripts t ON t.n = i.transcript"
    " WHERE t.ns = :ns AND t.name = :name AND i.seq < :before ORDER BY i.seq DESC LIMIT :limit"
)
_TAGGED = sql(
    "SELECT i.seq, i.key, i.tag, i.body FROM transcript_items i JOIN transcripts t ON t.n = i.transcript"
    " WHERE t.ns = :ns AND t.name = :name AND i.tag = :tag AND i.seq < :before ORDER BY i.seq DESC LIMIT :limit"
)


def list_items(
    tx: Tx, name: str, *, tag: str | None = None, cursor: str | None = None, limit: int = 100, ns: str = MAIN
) -> Page[Item]:
    """List the items of a transcript, the newest first: all, or those with a tag."""
    items = read_items(tx, name, tag=tag, before=paging.last_id(cursor), last=paging.fetch(limit), ns=ns)
    return paging.page(reversed(items), limit, lambda item: (item.seq,))


def read_items(
    tx: Tx, name: str, *, last: int | None = None, before: int = _ALL, tag: str | None = None, ns: str = MAIN
) -> builtins.list[Item]:
    """Read the items in the order they were added: all, the last so many, those before a number, those with a tag.

    Frameworks hand a whole conversation to a model; `list_items` is the same a page at a time.
    """
    _note_read(tx, ns, [name])
    of = {"ns": ns, "name": name, "before": before, "limit": _ALL if last is None else max(0, last)}
    rows = tx.all(_LATEST, **of) if tag is None else tx.all(_TAGGED, **of, tag=tag)
    rows.reverse()
    values = _load([body for _, _, _, body in rows], name)
    return [Item(seq, value, key, tag) for (seq, key, tag, _), value in zip(rows, values, strict=True)]


_KEYED = sql(
    "SELECT i.seq, i.key, i.tag, i.body FROM transcript_items i JOIN transcripts t ON t.n = i.transcript"
    " WHERE t.ns = :ns AND t.name = :name AND i.key = :key"
)


def get_item(tx: Tx, name: str, key: str, *, ns: str = MAIN) -> Item:
    """Return the item with a key; NotFoundError where there is none."""
    row = tx.one(_KEYED, ns=ns, name=name, key=key)
    _note_read(tx, ns, [name])
    if row is None:
        raise NotFoundError(f"the transcript {name} has no item {key}", name=name, key=key)
    return _item(row)


_GET = sql("SELECT name, rev, state, created_at, updated_at, ns FROM transcripts WHERE ns = :ns AND name = :name")


def get(tx: Tx, name: str, *, ns: str = MAIN) -> Transcript:
    """Return a transcript with its document; NotFoundError where there is none."""
    row = tx.one(_GET, ns=ns, name=name)
    _note_read(tx, ns, [name])
    if row is None:
        raise NotFoundError(f"there is no transcript {name}", listed_by="transcripts list", name=name)
    return _transcript(row)


_LIST = sql(
    "SELECT name, rev, state, created_at, updated_at, ns FROM transcripts WHERE ns = :ns AND name > :after"
    " AND name >= :prefix AND name < :end ORDER BY name LIMIT :limit"
)


def list(tx: Tx, *, prefix: str = "", cursor: str | None = None, limit: int = 100, ns: str = MAIN) -> Page[Transcript]:
    """List the transcripts whose names begin with `prefix`, by name."""
    (after,) = paging.decode(cursor, "")
    rows = tx.all(_LIST, ns=ns, after=after, prefix=prefix, end=_after(prefix), limit=paging.fetch(limit))
    _note_read(tx, ns, (name for name, *_ in rows))
    return paging.page(map(_transcript, rows), limit, lambda transcript: (transcript.name,))


_LAST = sql(
    "SELECT t.name, i.body FROM transcripts t JOIN transcript_items i ON i.transcript = t.n"
    " WHERE t.ns = :ns AND t.name >= :prefix AND t.name < :end"
    " AND i.seq = (SELECT max(l.seq) FROM transcript_items l WHERE l.transcript = t.n)"
)


def last_items(tx: Tx, *, prefix: str, ns: str = MAIN) -> dict[str, Any]:
    """Return the value of the last item of each transcript whose name begins with `prefix`, by name."""
    rows = tx.all(_LAST, ns=ns, prefix=prefix, end=_after(prefix))
    _note_read(tx, ns, (name for name, _ in rows))
    return {name: json.loads(body) for name, body in rows}


def _note_read(tx: Tx, ns: str, names: Iterable[str]) -> None:
    """Note for the step that reads them which transcripts it has used (executors/uses.py)."""
    for name in names:
        tx.note(USED, Use("read", "transcripts", ns, name))


def _after(prefix: str) -> str:
    """Return what is after all names that begin with a prefix."""
    # No name holds the last code point: it is not printable.
    return prefix + chr(0x10FFFF)


# --- values ------------------------------------------------------------------------------------------------------


def _named(what: str, text: Any) -> str:
    return validation.name(what, text, most=_LONGEST)


def _to_json(value: Any) -> str:
    return validation.to_json("an item", value, jsontext.readable)


def _load(texts: Sequence[str], name: str) -> Sequence[Any]:
    """Return the values of many JSON texts, parsed at once: half the time of one by one."""
    try:
        values: Sequence[Any] = json.loads(f"[{','.join(texts)}]")
    except ValueError as error:
        raise FormatError(f"the transcript {name} holds what is no JSON", name=name) from error
    if len(values) != len(texts):
        raise FormatError(f"the transcript {name} holds what is no JSON", name=name)
    return values


def _item(row: Row) -> Item:
    seq, key, tag, body = row
    return Item(seq, json.loads(body), key, tag)


def _transcript(row: Row) -> Transcript:
    name, rev, state, created_at, updated_at, ns = row
    return Transcript(name, rev, json.loads(state), created_at, updated_at, ns)
