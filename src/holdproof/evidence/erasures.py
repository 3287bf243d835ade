"""Erasures in the log: what was erased, by whom and when, by handles only; every proof stays valid.

Rules:
- An erased record's newest leaf is of type `erasure`, under the record's own handle; its row and salt are gone.
- The erasure itself is a row with a leaf of its own, which names the handles of everything that went.
- A subject's leaf commits to handle and times only: no name, no hash, no key; its tombstone is the next version.
- Of a subject, the row says what its certificate says (upkeep/erasure_certificate.py): what went, what was derived from
  it, what is left and why, by handles, ids of objects and numbers of rows.
- Files are removed after the commit, so an edited list would have the store destroy its own files: the list is under
  the leaf, and before anything is removed the row is proven against the signed head. Once they are gone, the next
  version of the leaf says so, and their names go, which may identify the subject.
"""

import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Final, NamedTuple

from holdproof.crypto import canonical
from holdproof.db import Row, Tx, sql
from holdproof.errors import FormatError, HoldproofError
from holdproof.evidence import leaves, log, logged_tables
from holdproof.evidence.erasable import Removed
from holdproof.evidence.leaves import Projection
from holdproof.model.coverage import Cover, columns
from holdproof.model.erasure import Erasure

SUBJECTS: Final = Projection("subjects", 1, ("handle", "ns", "created_at", "erased_at"))
_BEFORE_CERTIFICATES: Final = Projection(
    "erasures", 1, ("id", "kind", "target", "who", "count", "leaf_ids", "erased_at", "files")
)
ERASURES: Final = Projection("erasures", 2, (*_BEFORE_CERTIFICATES.columns, "certificate"))
LOGGED: Final = (
    logged_tables.describe(
        SUBJECTS,
        kinds=("key",),
        key="handle",
        further=columns(
            "name_hash key",
            Cover.NONE,
            "backups leave them out; content of a subject whose key was edited does not open, and a subject whose name"
            " was edited is not found; of an erased subject both must be gone, which verify checks",
        ),
    ),
    logged_tables.describe(ERASURES, kinds=("erasure",), key="id", older=(_BEFORE_CERTIFICATES,)),
)

_PROJECTIONS: Final = {each.name: each for each in (_BEFORE_CERTIFICATES, ERASURES)}
GARBAGE: Final = "memory/garbage"
"""What is due once objects were erased: their blocks, which garbage collection finds."""
_FOLDERS: Final = ("dboms", "blobs", "images")
_PAGE: Final = 100
_SUBJECT = sql("SELECT handle, ns, created_at, erased_at, leaf_id, leaf_ver FROM subjects WHERE handle = :handle")
_STAMP = sql(
    "UPDATE subjects SET leaf_id = :leaf_id, leaf_ver = :leaf_ver, leaf_salt = :leaf_salt WHERE handle = :handle"
)


def log_subjects(tx: Tx, handles: list[str]) -> None:
    """Log subjects that were used for the first time, in the same transaction."""
    for handle in handles:
        log_subject(tx, handle)


def log_subject(tx: Tx, handle: str) -> None:
    """Log a subject as it is now: the next version under its handle."""
    row = tx.one(_SUBJECT, handle=handle)
    assert row is not None, "a subject is logged in the transaction that made it"
    *columns, leaf_id, leaf_ver = row
    values = dict(zip(SUBJECTS.columns, columns, strict=True))
    next_version = (leaf_ver or 0) + 1
    mark = leaves.stamp(tx, "key", SUBJECTS, values, leaf_id=leaf_id, leaf_ver=next_version, ns=values["ns"])
    tx.execute(_STAMP, handle=handle, **mark._asdict(), expect=1)


_ADD = sql(
    "INSERT INTO erasures (id, kind, target, who, count, leaf_ids, erased_at, files, certificate, leaf_id, leaf_ver,"
    " leaf_salt) VALUES (:id, :kind, :target, :who, :count, :leaf_ids, :erased_at, :files, :certificate, :leaf_id,"
    " :leaf_ver, :leaf_salt)"
)


def record(
    tx: Tx,
    kind: str,
    target: str,
    *,
    who: str,
    removed: list[Removed],
    outside: int = 0,
    due: Iterable[str] = (),
    certify: Callable[[Erasure], str] | None = None,
) -> Erasure:
    """Log an erasure: a leaf for each record under its own handle, and one for the erasure itself.

    `outside` counts what goes though no leaf covers it, `due` names what is to be removed beside files. `certify` makes
    what the certificate says.
    """
    handles = sorted(each.leaf_id for each in removed)
    # Sorted, so that the same erasure gives the same text on every database.
    files = json.dumps(sorted({*due, *(name for each in removed for name in each.files)}))
    row = {
        "id": tx.new_id(),
        "kind": kind,
        "target": target,
        "who": who,
        "count": len(removed) + outside,
        "leaf_ids": json.dumps(handles),
        "erased_at": tx.now,
        "files": files,
    }
    row["certificate"] = None if certify is None else certify(_erasure(tuple(row.values())))
    # A leaf of type `erasure` under each record's handle: whoever proves the record later learns that it was erased.
    for each in removed:
        leaves.stamp(tx, "erasure", ERASURES, row, leaf_id=each.leaf_id, leaf_ver=each.leaf_ver + 1)
    mark = leaves.stamp(tx, "erasure", ERASURES, row)
    tx.execute(_ADD, **row, **mark._asdict(), expect=1)
    return _erasure(tuple(row.values()))


# One without an index waits for the sequencer.
_ERASED = sql(
    "SELECT e.id, e.leaf_ids FROM erasures e LEFT JOIN log_leaves l ON l.id = e.leaf_id AND l.ver = e.leaf_ver"
    " WHERE e.id > :after AND (l.idx IS NULL OR l.idx >= :since) ORDER BY e.id LIMIT :limit"
)


def among(tx: Tx, handles: set[str], *, since: int = 0) -> set[str]:
    """Return those of these records that an erasure names, one whose entry stands at `since` in the log or behind it.

    A tombstone leaf alone could have been forged.
    """
    named: set[str] = set()
    after = ""
    while page := tx.all(_ERASED, after=after, since=since, limit=_PAGE):
        named.update(handle for _, text in page for handle in json.loads(text) if handle in handles)
        after = page[-1][0]
    return named


_COLUMNS: Final = "id, kind, target, who, count, leaf_ids, erased_at, files, certificate"
_ALL = sql(f"SELECT {_COLUMNS} FROM erasures ORDER BY id")  # noqa: S608 (a constant of this file)


def history(tx: Tx) -> list[Erasure]:
    """Return every erasure, oldest first."""
    return [_erasure(row) for row in tx.all(_ALL)]


LAST: Final = "\U0010ffff"
"""Sorts after every id."""
_BEFORE = sql(
    f"SELECT {_COLUMNS} FROM erasures WHERE id < :before ORDER BY id DESC LIMIT :limit"  # noqa: S608
)


def before(tx: Tx, id: str, *, limit: int) -> list[Erasure]:
    """Return erasures with ids before that one, the newest first."""
    return [_erasure(row) for row in tx.all(_BEFORE, before=id, limit=limit)]


def _erasure(row: tuple[object, ...]) -> Erasure:
    key, kind, target, who, count, handles, moment, files, *certificate = row
    try:
        leaf_ids, names = tuple(json.loads(str(handles))), tuple(json.loads(str(files)))
        erasure = Erasure(str(key), str(kind), str(target), str(who), int(str(count)), leaf_ids, str(moment), names)
        text = next(iter(certificate), None)
        return erasure if text is None else replace(erasure, mode=json.loads(str(text))["derived"]["mode"])
    except (KeyError, ValueError, TypeError) as error:
        raise FormatError(f"the erasure {key} is not what Holdproof writes", id=str(key)) from error


class PendingRemoval(NamedTuple):
    """Files of a committed erasure that are still on disk."""

    id: str
    files: tuple[str, ...]


_ROW: Final = f"SELECT {', '.join(ERASURES.columns)}, leaf_id, leaf_ver, leaf_salt FROM erasures"  # noqa: S608
_DUE = sql(f"{_ROW} WHERE files <> '[]' ORDER BY id")
_ONE = sql(f"{_ROW} WHERE id = :id")
_DONE = sql(
    "UPDATE erasures SET files = :files, leaf_ver = :leaf_ver, leaf_salt = :leaf_salt"
    " WHERE id = :id AND leaf_id = :leaf_id AND leaf_ver = :leaf_ver - 1"
)


def due(tx: Tx) -> list[PendingRemoval]:
    """Return the removals that a crash after the commit left to do; none of a row that the log does not prove."""
    rows = [row for row in tx.all(_DUE) if _is_proven(tx, row)]
    pending = ((_id(row), _names(row)) for row in rows)
    return [PendingRemoval(key, names) for key, names in pending if names is not None]


def unproven(tx: Tx) -> list[str]:
    """Return the ids of erasures whose list of files Holdproof did not write: nothing of it will be removed."""
    return [_id(row) for row in tx.all(_DUE) if _names(row) is None or not _is_proven(tx, row)]


def _id(row: Row) -> str:
    key, *_ = row
    return str(key)


def _is_proven(tx: Tx, row: Row) -> bool:
    """Return whether the log covers a row as it is: by its signed head, or, where it waits for one, by its entry."""
    *columns, leaf_id, leaf_ver, salt = row
    try:
        text = log.prove_entry(tx, str(leaf_id), leaf_ver)
        entry = canonical.loads(text.encode())
        projection = _PROJECTIONS[str(entry["p"])]  # type: ignore[index,call-overload]
        commitment = projection.commit(bytes(salt), dict(zip(ERASURES.columns, columns, strict=True)))
    except (HoldproofError, KeyError, TypeError, ValueError):  # SQLite stores a value of any type in any column
        return False
    if not isinstance(entry, dict) or not leaves.is_filed(text, leaf_id, leaf_ver):
        return False
    return (entry.get("t"), entry.get("h")) == ("erasure", commitment)


_KNOWN = sql("SELECT 1 FROM erasures WHERE kind = 'subject' AND target = :target LIMIT 1")


def is_recorded(tx: Tx, target: str) -> bool:
    """Whether the erasure of that subject is recorded."""
    return tx.one(_KNOWN, target=target) is not None


def _names(row: Row) -> tuple[str, ...] | None:
    """Parse the names an erasure has yet to remove, relative to the data folder; None if one is not the store's."""
    fields = dict(zip(ERASURES.columns, row, strict=False))
    target = fields["target"]
    text = fields["files"]
    try:
        names = json.loads(text) if isinstance(text, str) else None
    except ValueError:
        return None
    return tuple(names) if isinstance(names, list) and all(_is_ours(target, name) for name in names) else None


def _is_ours(target: object, name: object) -> bool:
    if not isinstance(name, str) or "\0" in name:
        return False
    if name == GARBAGE:
        return True
    path = PurePosixPath(name)
    if path.parts[:1] == ("membrane",):  # a label, and only the one whose erasure this is
        return name == target
    return len(path.parts) > 1 and path.parts[0] in _FOLDERS and ".." not in path.parts


def is_file(name: str) -> bool:
    """Whether what is due is a file: not a label of services, nor garbage."""
    return PurePosixPath(name).parts[0] in _FOLDERS


def mark_done(tx: Tx, erasure_id: str) -> None:
    """Record that the files of an erasure are removed; their names go too, since they may identify the subject."""
    row = tx.one(_ONE, id=erasure_id)
    assert row is not None, "an erasure is never removed"
    *columns, leaf_id, leaf_ver, _ = row
    values = dict(zip(ERASURES.columns, columns, strict=True)) | {"files": "[]"}
    mark = leaves.stamp(tx, "erasure", ERASURES, values, leaf_id=leaf_id, leaf_ver=leaf_ver + 1)
    tx.execute(_DONE, id=erasure_id, files="[]", **mark._asdict(), expect=1)


_REKEYED = sql(
    "SELECT handle FROM subjects WHERE erased_at IS NOT NULL AND (key IS NOT NULL OR name_hash IS NOT NULL)"
    " ORDER BY handle LIMIT 100"
)


def with_keys_again(tx: Tx) -> list[str]:
    """Return erased subjects that have a key or a name again: erasing destroys both."""
    return [handle for (handle,) in tx.all(_REKEYED)]
