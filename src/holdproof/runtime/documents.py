"""Values with a version: what contexts of flows and states of agents have in common.

Rules:
- A version grows by one with every write, and every version is a leaf.
- `update` writes only over the version that was read; else StaleVersionError, and nothing changes.
- The snapshot id is the first 16 hex digits of SHA-256 of the canonical JSON, in whatever text the value is stored; of
  the text itself where the value has no canonical JSON.
"""

from dataclasses import dataclass
from typing import Any

from holdproof.crypto import canonical
from holdproof.db import Query, Row, Tx, lock_exclusive, sql
from holdproof.errors import InvalidInputError, NotFoundError, StaleVersionError
from holdproof.evidence.leaves import Projection
from holdproof.model.records import Document, DocumentVersion
from holdproof.runtime import logged_rows


@dataclass(frozen=True, slots=True)
class Shelf:
    """A table of documents: `find` gives data, version, updated_at, leaf_id, leaf_ver and what else there is.

    A row of NULLs says that the owner has no document, no row that there is no owner.
    """

    kind: str
    key: str
    owner: str
    """What the key names: "flow" or "agent"."""
    projection: Projection
    find: Query
    add: Query
    change: Query


def put(tx: Tx, shelf: Shelf, key: str, text: str, *, expected: int | None, ns: str, **more: Any) -> Document:
    """Write the next version; over `expected` only, if that is given."""
    lock_exclusive(tx, f"{shelf.owner}:{key}")
    known = tx.one(shelf.find, key=key, ns=ns)
    if known is None:
        raise NotFoundError(f"there is no {shelf.owner} {key}", key=key)
    version = known[1] or 0
    if expected is not None and expected != version:
        raise StaleVersionError(
            f"version {expected} was to be replaced, but it is {version} now", expected=expected, version=version
        )
    row = {shelf.key: key, "data": text, "version": version + 1, "updated_at": tx.now, "ns": ns, **more}
    if not version:
        logged_rows.add(tx, shelf.add, shelf.kind, shelf.projection, row)
    else:
        logged_rows.change(tx, shelf.change, shelf.kind, shelf.projection, row, leaf_id=known[3], leaf_ver=known[4])
    return shown(key, (text, version + 1, tx.now))


def find(tx: Tx, shelf: Shelf, key: str, ns: str) -> Row:
    """The row of a document that must be there."""
    row = tx.one(shelf.find, key=key, ns=ns)
    if row is None or row[0] is None:
        raise NotFoundError(f"nothing is kept for {shelf.owner} {key}", key=key)
    return row


def shown(key: str, row: Row) -> Document:
    """A row as a value."""
    value = logged_rows.load(row[0])
    return Document(key, value, row[1], row[2], canonical.sha256_hex(_canonical(row[0], value))[:16])


def _canonical(text: str, value: Any) -> bytes:
    try:
        return canonical.dumps(value)
    except InvalidInputError:  # another kernel's text may hold numbers that JCS has not
        return text.encode()


_VERSIONS = sql(
    "SELECT ver, idx, leaf FROM log_leaves WHERE id = :id AND ver < :before ORDER BY ver DESC LIMIT :limit",
    postgres="SELECT ver, idx, leaf FROM (SELECT ver, idx, leaf FROM log_leaves WHERE id = :id UNION ALL"
    " SELECT ver, NULL, leaf FROM log_pending WHERE id = :id) AS known WHERE ver < :before"
    " ORDER BY ver DESC LIMIT :limit",
)


def versions(tx: Tx, shelf: Shelf, key: str, *, before: int | None, limit: int, ns: str) -> tuple[DocumentVersion, ...]:
    """What the log knows of a document, the newest first; of older versions only the commitment is left."""
    row = tx.one(shelf.find, key=key, ns=ns)
    if row is None:
        raise NotFoundError(f"there is no {shelf.owner} {key}", key=key)
    until = logged_rows.LAST if before is None else logged_rows.position("before", before)
    found = [] if row[3] is None else tx.all(_VERSIONS, id=row[3], before=until, limit=logged_rows.limited(limit))
    said = [(ver, idx, logged_rows.load(leaf)) for ver, idx, leaf in found]
    return tuple(DocumentVersion(ver, idx, leaf["ts"], leaf["h"]) for ver, idx, leaf in said)
