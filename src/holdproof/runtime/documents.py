"""Versioned documents: what contexts of flows and states of agents have in common.

Rules:
- A version grows by one with every write, and every version is a leaf.
- `update` replaces only the version that its caller read; else StaleVersionError, and nothing changes.
- The context of a person's flow is sealed, and read as erased once that person was.
- The snapshot id is the first 16 hex digits of SHA-256 of the canonical JSON, in whatever text the value is stored; of
  the text itself where the value has no canonical JSON.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

from holdproof import paging
from holdproof.crypto import canonical
from holdproof.db import Query, Tx, lock_exclusive, sql
from holdproof.errors import InvalidInputError, NotFoundError, StaleVersionError
from holdproof.evidence.tables import StoredRecord, Table
from holdproof.model import jsontext
from holdproof.model.page import Page
from holdproof.model.records import Document, DocumentVersion
from holdproof.runtime import recorded


@dataclass(frozen=True, slots=True)
class StoredDocument:
    """A row of a table of documents; `key` is the column of its owner's id, `taken_at` is of contexts only."""

    key: str
    data: str
    version: int
    updated_at: str
    taken_at: str | None
    ns: str


@dataclass(frozen=True, slots=True)
class DocumentKind:
    """A table of documents and its queries.

    `find` joins the owner with its document: a row of NULLs says that the owner has no document, no row that there is
    no owner.
    """

    table: Table[StoredDocument]
    owner: str
    """What the key names: "flow" or "agent"."""
    find: Query
    add: Query
    change: Query

    @property
    def key(self) -> str:
        """The column of the owner's id."""
        return self.table.key


class _Stored(NamedTuple):
    """A row of `DocumentKind.find`."""

    data: str | None
    version: int | None
    updated_at: str | None
    taken_at: str | None
    leaf_id: str | None
    leaf_ver: int | None


def put(tx: Tx, kind: DocumentKind, key: str, text: str, *, expected: int | None, ns: str) -> Document:
    """Write the next version; with `expected` only over that one."""
    # Alone with the document until the commit: its version is read here and written below.
    lock_exclusive(tx, f"{kind.owner}:{key}")
    stored = _find(tx, kind, key, ns)
    version = stored.version or 0
    if expected is not None and expected != version:
        raise StaleVersionError(
            f"version {expected} was to be replaced, but the current version is {version}: read it and try again",
            expected=expected,
            version=version,
        )
    subject = recorded.subject_of(tx, key, ns=ns) if kind.owner == "flow" else None
    data = recorded.seal_json(tx, text, subject)
    row = {kind.key: key, "data": data, "version": version + 1, "updated_at": tx.now, "taken_at": None, "ns": ns}
    if version:
        if tx.limiter is not None:
            # Of new content, and not of what follows from it: its entry is counted without refusing.
            tx.limiter.admit(tx, ns, len(data.encode()))
        kind.table.change(tx, kind.change, record(kind, key, stored, ns), row)
    else:
        kind.table.add(tx, kind.add, row)
    return _document(tx, key, text, version + 1, tx.now)


def _find(tx: Tx, kind: DocumentKind, key: str, ns: str) -> _Stored:
    row = tx.one(kind.find, key=key, ns=ns)
    if row is None:
        raise NotFoundError(f"there is no {kind.owner} {key}", listed_by=f"{kind.owner}s list", key=key)
    return _Stored(*row)


def get(tx: Tx, kind: DocumentKind, key: str, ns: str) -> tuple[Document, _Stored]:
    """Return a document that must be there, and its row."""
    row = tx.one(kind.find, key=key, ns=ns)
    stored = None if row is None else _Stored(*row)
    if stored is None or stored.data is None:
        raise NotFoundError(f"{kind.owner} {key} has no document", key=key)
    assert stored.version is not None, "the columns of a document are not NULL"
    assert stored.updated_at is not None, "the columns of a document are not NULL"
    return _document(tx, key, stored.data, stored.version, stored.updated_at), stored


def record(kind: DocumentKind, key: str, stored: _Stored, ns: str) -> StoredRecord[StoredDocument]:
    """Return a stored document as its table's descriptor changes it."""
    row = StoredDocument(key, stored.data or "", stored.version or 0, stored.updated_at or "", stored.taken_at, ns)
    columns = {
        kind.key: key,
        "data": row.data,
        "version": row.version,
        "updated_at": row.updated_at,
        "taken_at": row.taken_at,
        "ns": ns,
    }
    assert stored.leaf_id is not None, "what is stored has its leaf"
    assert stored.leaf_ver is not None, "what is stored has its leaf"
    return StoredRecord(row, columns, stored.leaf_id, stored.leaf_ver)


def _document(tx: Tx, key: str, text: str, version: int, updated_at: str) -> Document:
    value = recorded.open_json(tx, jsontext.load(text))
    return Document(key, value, version, updated_at, canonical.sha256_hex(_canonical(text, value))[:16])


def _canonical(text: str, value: Any) -> bytes:
    try:
        return canonical.dumps(value)
    except InvalidInputError:  # another kernel's text may hold numbers that canonical JSON has not
        return text.encode()


# On PostgreSQL a leaf waits in `log_pending` until the sequencer gives it its index.
_VERSIONS = sql(
    "SELECT ver, idx, leaf FROM log_leaves WHERE id = :id AND ver < :before ORDER BY ver DESC LIMIT :limit",
    postgres="SELECT ver, idx, leaf FROM (SELECT ver, idx, leaf FROM log_leaves WHERE id = :id UNION ALL"
    " SELECT ver, NULL, leaf FROM log_pending WHERE id = :id) AS known WHERE ver < :before"
    " ORDER BY ver DESC LIMIT :limit",
)


def versions(tx: Tx, kind: DocumentKind, key: str, *, cursor: str | None, limit: int, ns: str) -> Page[DocumentVersion]:
    """List what the log holds of a document, newest first; of older versions only the commitment remains."""
    stored = _find(tx, kind, key, ns)
    before = paging.last_id(cursor)  # the cursor of this listing is a version
    most = paging.fetch(limit)
    rows = [] if stored.leaf_id is None else tx.all(_VERSIONS, id=stored.leaf_id, before=before, limit=most)
    return paging.page((_version(*row) for row in rows), limit, lambda version: (version.ver,))


def _version(ver: int, index: int | None, text: str) -> DocumentVersion:
    leaf = jsontext.load(text)
    return DocumentVersion(ver, index, leaf["ts"], leaf["h"])
