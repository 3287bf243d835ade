"""Objects: what agents know, each a record in the tree of its namespace.

Rules:
- A put replaces the whole object by its next version; one that says what is there already changes nothing.
- `expected_version` makes a put conditional: 0 means there is none, another number the version that was read.
- Several objects change together (`apply`) or not at all. Changes that were made from an older snapshot (`base`) are
  rebased onto what is there now; an object that others changed meanwhile goes to `resolve`, or is a MergeConflictError.
- Nothing is overwritten: every version stays in the history, a deletion is one of them.
- What is read was hashed, from the root of the tree down.
- An object that belongs to a subject (object_encryption.py) stays with it: a put that names none seals as well. One
  whose subject was erased can be deleted, not changed; to read it is an ErasedError, in lists it is `hidden`.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final

from holdproof import paging, validation
from holdproof.content import encryption
from holdproof.crypto import mst
from holdproof.crypto.cid import CID
from holdproof.db import Tx, sql
from holdproof.errors import (
    ErasedError,
    InvalidInputError,
    MergeConflictError,
    NotFoundError,
    PrunedError,
    StaleVersionError,
)
from holdproof.memory.objects import commits, records, tree_transaction
from holdproof.memory.objects.records import MAX_INT, OBJECT, ObjectRecord
from holdproof.memory.objects.tree_transaction import MAIN, TreeReader, TreeTransaction
from holdproof.model.memory import Object, ObjectFolder, ObjectFolders, ObjectVersion
from holdproof.model.page import Page

_MOST_FOLDERS: Final = 500
_MOST_COUNTED: Final = 100
"""A count of a folder ends here: to open one of a million must not read them."""
_MOST_LOOKS: Final = 1_000
_FIELDS: Final = frozenset({"type", "content", "attributes", "parent", "children", "version", "meta", "subject"})

Draft = Mapping[str, Any]
"""The fields of an object that is to be put: `type`, and the other keywords of `put`."""
Resolve = Callable[[str, Object | None, Object | None, Draft | None], Draft | None]
"""Resolve a conflict: takes the id, the base object, the current one and the draft; returns the draft to apply."""


def put(
    tx: Tx,
    id: str,
    *,
    type: str,
    content: Any = None,
    attributes: Mapping[str, Any] | None = None,
    parent: str | None = None,
    children: Iterable[str] = (),
    version: int | None = None,
    meta: Mapping[str, Any] | None = None,
    subject: str | None = None,
    expected_version: int | None = None,
    ns: str = MAIN,
) -> Object:
    """Keep an object, whatever it was before; `meta` is what changes all the time, None leaves it as it is.

    `subject` is the person whose it is: content, attributes and meta are sealed, and go when the person is erased.
    """
    edit = TreeTransaction(tx, ns)
    key = records.key_of(id)
    if expected_version is not None:
        _check_expected(edit, id, key, expected_version)
    draft = {"type": type, "content": content, "attributes": attributes, "parent": parent, "children": children}
    _put(edit, id, {**draft, "version": version, "meta": meta, "subject": subject})
    edit.finish()
    return read(edit, key, ns)


def annotate(tx: Tx, id: str, meta: Mapping[str, Any], *, ns: str = MAIN) -> Object:
    """Replace the volatile fields of an object; its own record and CID stay."""
    edit = TreeTransaction(tx, ns)
    key = records.key_of(id)
    cid = edit.find(OBJECT + key)
    if cid is None:
        raise _absent(id)
    edit.put_meta(id, meta, _subject_of(edit, edit.record(cid, key)))
    edit.finish()
    return read(edit, key, ns)


def delete(tx: Tx, id: str, *, expected_version: int | None = None, ns: str = MAIN) -> bool:
    """Remove an object from the tree and return whether there was one; its history stays, and a put brings it back."""
    edit = TreeTransaction(tx, ns)
    key = records.key_of(id)
    if expected_version is not None:
        _check_expected(edit, id, key, expected_version)
    if edit.find(OBJECT + key) is None:
        return False
    _delete(edit, id, key)
    edit.finish()
    return True


def apply(
    tx: Tx,
    changes: Mapping[str, Draft | None],
    *,
    base: str | None = None,
    resolve: Resolve | None = None,
    ns: str = MAIN,
) -> str:
    """Put and delete (None) several objects together; the new root.

    With `base`, the snapshot that the changes were made from, objects that others changed since then are conflicts.
    `resolve` may run more than once.
    """
    edit = TreeTransaction(tx, ns)
    drafts = dict(changes)
    if base is not None:
        drafts = _rebase(edit, drafts, commits.root_of(tx, base, ns=ns), resolve)
    # One query for all of them instead of one for each.
    edit.preload_versions([records.key_of(id) for id in drafts])
    for id, draft in drafts.items():
        put_or_delete(edit, id, draft)
    return str(edit.finish())


def put_or_delete(edit: TreeTransaction, id: str, draft: Draft | None) -> None:
    """Let an object be this, or nothing, once the edit is finished."""
    key = records.key_of(id)
    if draft is not None:
        _put(edit, id, draft)
    elif edit.now(OBJECT + key) is not None:
        _delete(edit, id, key)


def _rebase(
    edit: TreeTransaction, drafts: dict[str, Draft | None], base: CID, resolve: Resolve | None
) -> dict[str, Draft | None]:
    """Return the changes as they apply to the tree that is there now."""
    old = tree_transaction.view(edit.tx, base)
    rebased = dict(drafts)
    conflicts = []
    for id, draft in drafts.items():
        key = records.key_of(id)
        # Nobody else touched it since the base: the change applies as it was made.
        if old.find(OBJECT + key) == edit.find(OBJECT + key):
            continue
        if resolve is None:
            conflicts.append(id)
        else:
            rebased[id] = resolve(id, find_object(old, key, edit.ns), find_object(edit, key, edit.ns), draft)
    if conflicts:
        raise MergeConflictError(
            f"{len(conflicts)} objects were changed by others meanwhile: {', '.join(conflicts[:5])}", ids=conflicts
        )
    return rebased


def find_object(view: TreeReader, key: str, ns: str) -> Object | None:
    """Return an object of a tree, None where it has none under that key."""
    return None if view.find(OBJECT + key) is None else read(view, key, ns)


def _check_expected(edit: TreeTransaction, id: str, key: str, expected: int) -> None:
    cid = edit.find(OBJECT + key)
    version = 0 if cid is None else edit.record(cid, key).version
    if version != expected:
        raise StaleVersionError(
            f"version {expected} of {id} was to be replaced, but it is {version} now",
            id=id,
            expected=expected,
            version=version,
        )


def _put(edit: TreeTransaction, id: str, draft: Any) -> None:
    if not isinstance(draft, Mapping) or not draft.keys() <= _FIELDS:
        raise InvalidInputError(f"an object has {', '.join(sorted(_FIELDS))} and nothing else", id=id)
    key = records.key_of(id)
    record = _record(id, draft)
    # Within one transaction an object may be put twice: the second put sees the first.
    cid = edit.now(OBJECT + key)
    now = None if cid is None else edit.known.get(cid) or edit.record(cid, key)
    if draft.get("subject") is not None:
        record = record._replace(subject=encryption.label(edit.tx, draft["subject"], ns=edit.ns))
    elif now is not None:
        record = record._replace(subject=_subject_of(edit, now))
    meta = draft.get("meta")
    if meta is None and now is not None and record.subject not in (None, edit.holder(now)):
        meta = read(edit, key, edit.ns).meta  # it gets a subject: what is volatile is sealed with it
    if now is None or not _same(edit, now, record, draft.get("version")):
        edit.put(record._replace(version=_version(edit, key, cid, draft.get("version"))))
    if meta is not None:
        edit.put_meta(id, meta, record.subject)


def _subject_of(edit: TreeTransaction, now: ObjectRecord) -> str | None:
    """Return whose an object is and stays, by handle; ErasedError if that subject was erased."""
    handle = edit.holder(now)
    if handle is not None:
        encryption.check_alive(edit.tx, handle)
    return handle


def _version(edit: TreeTransaction, key: str, cid: CID | None, chosen: int | None) -> int:
    """Return the number that was given, or the next one: greater than every earlier one that was not given."""
    if chosen is not None:
        if type(chosen) is not int or not 0 <= chosen <= MAX_INT:
            raise InvalidInputError(f"a version is a whole number up to {MAX_INT}", version=str(chosen))
        return chosen
    if cid in edit.known:  # put twice in one edit: one version
        return edit.known[cid].version
    return max(edit.newest(key)) + 1


def _same(edit: TreeTransaction, now: ObjectRecord, record: ObjectRecord, version: int | None) -> bool:
    """Return whether an object is what was wanted, but for a version that nobody chose."""
    if edit.holder(now) != record.subject:
        return False
    # Compared as encoded blocks: equal bytes are equal objects, whatever Python thinks of 1 and 1.0.
    like = record._replace(version=now.version if version is None else version)
    return next(reversed(records.encode(like))) == next(reversed(records.encode(edit.whole(now))))


def _record(id: str, draft: Draft) -> ObjectRecord:
    kind = draft.get("type")
    parent = draft.get("parent")
    children = draft.get("children") or ()
    if not isinstance(kind, str) or not 0 < len(kind) <= 500 or not kind.isprintable():
        raise InvalidInputError("an object's type is a printable text of 1 to 500 characters", id=id, type=str(kind))
    if isinstance(children, str) or not all(isinstance(child, str) for child in children):
        raise InvalidInputError("children are a list of ids", id=id)
    for other in (*children, *([] if parent is None else [parent])):
        records.key_of(other)
    attributes = draft.get("attributes")
    if not isinstance(attributes, Mapping | None) or not isinstance(draft.get("meta"), Mapping | None):
        raise InvalidInputError("attributes and meta are maps", id=id)
    if not isinstance(draft.get("subject"), str | None):
        raise InvalidInputError("a subject is a text", id=id)
    return ObjectRecord(id, kind, draft.get("content"), dict(attributes or {}), parent, tuple(children), 0)


def _delete(edit: TreeTransaction, id: str, key: str) -> None:
    edit.changes[OBJECT + key] = None
    edit.put_meta(id, {})


# --- reading -----------------------------------------------------------------------------------------------------


def get(tx: Tx, id: str, *, at: str | None = None, version: int | None = None, ns: str = MAIN) -> Object:
    """Return an object as it is now, as it was in the snapshot `at`, or as its n-th write (`version`) left it.

    Raises NotFoundError where there is none, and PrunedError where retention removed that version.
    """
    if version is not None:
        if at is not None:
            raise InvalidInputError("name a snapshot (at) or a version, not both", field="version")
        return _get_version(tx, id, version, ns)
    view = view_at(tx, at, ns)
    key = records.key_of(id)
    if view.find(OBJECT + key) is None:
        raise _absent(id)
    return read(view, key, ns, hidden=False)


def list(
    tx: Tx,
    *,
    prefix: str = "",
    at: str | None = None,
    cursor: str | None = None,
    limit: int = 100,
    ns: str = MAIN,
) -> Page[Object]:
    """List the objects there are now, or were in the snapshot `at`, in the order of their keys.

    With `prefix` only those whose ids begin with it; no others are read.
    """
    return page(view_at(tx, at, ns), cursor, limit, ns, prefix)


def folders(tx: Tx, *, prefix: str = "", at: str | None = None, limit: int = 50, ns: str = MAIN) -> ObjectFolders:
    """List the folders below a prefix: what the ids that begin with it have up to the next `/`.

    Each is found by skipping the one before, so that it costs by folders, not by objects.
    """
    most = validation.count("limit", limit, least=1, most=_MOST_FOLDERS)
    view = view_at(tx, at, ns)
    names: dict[str, None] = {}
    looks = 0
    # Ids with a slash have encoded keys: the plain ones are in no folder.
    for start, end in ((max(start, "~"), end) for start, end in records.key_ranges(prefix) if end > "~"):
        place = start
        while (key := _first(view, place, end)) is not None:
            looks += 1
            if looks > _MOST_LOOKS or len(names) > most:
                break
            name, slash, _ = records.id_of(key)[len(prefix) :].partition("/")
            if not slash:
                place = f"{key}\x00"
                continue
            names[f"{prefix}{name}/"] = None
            place = next(after for first, after in records.key_ranges(f"{prefix}{name}/") if first <= key < after)
    prefixes = sorted(names)[:most]
    return ObjectFolders(
        prefix, [_folder(view, name) for name in prefixes], looks <= _MOST_LOOKS and len(names) <= most
    )


def _first(view: TreeReader, start: str, end: str) -> str | None:
    walk = mst.walk(view.get, view.root, start=f"{OBJECT}{start}", end=f"{OBJECT}{end}")
    return next((key[len(OBJECT) :] for key, _ in walk), None)


def _folder(view: TreeReader, prefix: str) -> ObjectFolder:
    counted = sum(1 for _ in islice(_keys(view, prefix, ""), _MOST_COUNTED + 1))
    return ObjectFolder(prefix, min(counted, _MOST_COUNTED), counted > _MOST_COUNTED)


def _keys(view: TreeReader, prefix: str, after: str) -> Iterator[str]:
    """Yield the keys after one whose ids begin with a prefix, in their order."""
    # NUL sorts before every character of a key: the walk begins right after the object that the cursor names.
    begin = f"{after}\x00" if after else ""
    for start, end in records.key_ranges(prefix):
        if begin < end:
            walk = mst.walk(view.get, view.root, start=f"{OBJECT}{max(start, begin)}", end=f"{OBJECT}{end}")
            yield from (key[len(OBJECT) :] for key, _ in walk)


def view_at(tx: Tx, snapshot: str | None, ns: str) -> TreeReader:
    """Return the tree as it is now, or as it was in a snapshot."""
    return tree_transaction.view(
        tx, tree_transaction.root(tx, ns) if snapshot is None else commits.root_of(tx, snapshot, ns=ns)
    )


def page(view: TreeReader, cursor: str | None, limit: int, ns: str, prefix: str = "") -> Page[Object]:
    """Return some objects of a tree, in the order of their keys."""
    (after,) = paging.decode(cursor, "")
    items = [read(view, key, ns) for key in islice(_keys(view, prefix, after), paging.fetch(limit))]
    return paging.page(items, limit, lambda item: (records.key_of(item.id),))


_HISTORY = sql(
    "SELECT n, version, cid, at, pruned_at FROM object_versions WHERE ns = :ns AND key = :key AND n < :before"
    " ORDER BY n DESC LIMIT :limit"
)


def history(tx: Tx, id: str, *, cursor: str | None = None, limit: int = 100, ns: str = MAIN) -> Page[ObjectVersion]:
    """List every write of an object, the newest first; a deletion is one of them."""
    before = paging.last_id(cursor)
    rows = tx.all(_HISTORY, ns=ns, key=records.key_of(id), before=before, limit=paging.fetch(limit))
    return paging.page((ObjectVersion(*row) for row in rows), limit, lambda item: (item.n,))


# Of each object the last row alone: one that is written all day has as many as there were writes.
_LAST_WRITES: Final = (
    "SELECT k.value, (SELECT v.at FROM object_versions v WHERE v.ns = :ns AND v.key = k.value"
    " ORDER BY v.n DESC LIMIT 1) FROM {keys}"
)
_WRITTEN = sql(
    _LAST_WRITES.format(keys="json_each(:keys) k"),
    postgres=_LAST_WRITES.format(keys="json_array_elements_text(CAST(:keys AS JSON)) AS k(value)"),
)


def last_writes(tx: Tx, ids: Sequence[str], *, ns: str = MAIN) -> dict[str, str]:
    """Return when each of these objects was written last; those that never were are left out."""
    keys = {records.key_of(id): id for id in ids}
    return {keys[key]: at for key, at in tx.all(_WRITTEN, ns=ns, keys=json.dumps([*keys])) if at is not None}


def _get_version(tx: Tx, id: str, n: int, ns: str) -> Object:
    row = tx.one(_HISTORY, ns=ns, key=records.key_of(id), before=n + 1, limit=1)
    entry = None if row is None else ObjectVersion(*row)
    if entry is None or entry.n != n or entry.cid is None:
        raise NotFoundError(f"{id} has no version {n}: `objects.history` lists those it has", id=id, n=n)
    if entry.pruned_at is not None:
        raise PrunedError(f"version {n} of {id} was pruned", id=id, n=n, pruned_at=entry.pruned_at)
    view = view_at(tx, None, ns)
    cid = commits.parse(entry.cid)
    return _to_object(view.whole(view.record(cid, records.key_of(id))), cid, {}, ns)


def read(view: TreeReader, key: str, ns: str, *, hidden: bool = True) -> Object:
    """Return an object of a tree that is known to be there, under its key; `hidden`: even one that cannot be opened."""
    cid = view.find(OBJECT + key)
    assert cid is not None, "the caller has found it"
    record = view.record(cid, key)
    try:
        return _to_object(view.whole(record), cid, view.meta(key), ns)
    except NotFoundError as error:
        if not hidden or not records.is_sealed(record.content):
            raise
        why = "erased" if isinstance(error, ErasedError) else "locked"
        closed = record._replace(content=None, subject=view.holder(record))
        return _to_object(closed, cid, {}, ns, hidden=why)


def _to_object(whole: ObjectRecord, cid: CID, meta: dict[str, Any], ns: str, hidden: str | None = None) -> Object:
    return Object(
        whole.id,
        whole.type,
        whole.content,
        whole.attributes,
        whole.parent,
        whole.children,
        whole.version,
        meta,
        str(cid),
        ns,
        whole.subject,
        hidden,
    )


def _absent(id: str) -> NotFoundError:
    return NotFoundError(f"there is no object {id}", listed_by="objects list", id=id)
