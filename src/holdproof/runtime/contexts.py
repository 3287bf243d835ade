"""Context: what a flow is given to decide with.

Rules: those of documents.py, and
- A context that was taken is not given again, neither by `take` nor by `read`, until a new one is put.
"""

from typing import Any, Final

from holdproof.db import Tx, lock_exclusive, sql
from holdproof.errors import ContextTakenError
from holdproof.evidence.leaves import Projection
from holdproof.model.records import Document, DocumentVersion
from holdproof.runtime import documents, logged_rows
from holdproof.runtime.documents import Shelf
from holdproof.runtime.logged_rows import MAIN

CONTEXT: Final = logged_rows.register(
    Projection("flow_context", 1, ("dfid", "data", "version", "updated_at", "taken_at", "ns")),
    kind="context",
    key="dfid",
)
SHELF: Final = Shelf(
    kind="context",
    key="dfid",
    owner="flow",
    projection=CONTEXT,
    find=sql(
        "SELECT c.data, c.version, c.updated_at, c.leaf_id, c.leaf_ver, c.taken_at FROM decision_flows f"
        " LEFT JOIN flow_context c ON c.dfid = f.dfid AND c.ns = f.ns WHERE f.dfid = :key AND f.ns = :ns"
    ),
    add=sql(
        "INSERT INTO flow_context (dfid, data, version, updated_at, taken_at, ns, leaf_id, leaf_ver, leaf_salt)"
        " VALUES (:dfid, :data, :version, :updated_at, :taken_at, :ns, :leaf_id, :leaf_ver, :leaf_salt)"
    ),
    change=sql(
        "UPDATE flow_context SET data = :data, version = :version, updated_at = :updated_at, taken_at = :taken_at,"
        " leaf_id = :leaf_id, leaf_ver = :leaf_ver, leaf_salt = :leaf_salt"
        " WHERE dfid = :dfid AND ns = :ns AND leaf_ver = :leaf_ver - 1"
    ),
)


def put(tx: Tx, flow_id: str, data: Any, *, ns: str = MAIN) -> Document:
    """Give a flow its context, whatever it had before."""
    return documents.put(tx, SHELF, flow_id, logged_rows.dump(data), expected=None, ns=ns, taken_at=None)


def update(tx: Tx, flow_id: str, data: Any, *, expected_version: int, ns: str = MAIN) -> Document:
    """Replace the context that was read as that version; 0 means there was none."""
    return documents.put(tx, SHELF, flow_id, logged_rows.dump(data), expected=expected_version, ns=ns, taken_at=None)


def read(tx: Tx, flow_id: str, *, ns: str = MAIN) -> Document:
    """The context of a flow."""
    row = documents.find(tx, SHELF, flow_id, ns)
    if row[5] is not None:
        raise ContextTakenError(
            f"the context of flow {flow_id} was taken at {row[5]}", flow_id=flow_id, taken_at=row[5]
        )
    return documents.shown(flow_id, row)


def take(tx: Tx, flow_id: str, *, ns: str = MAIN) -> Document:
    """Read the context for the only time."""
    lock_exclusive(tx, f"flow:{flow_id}")
    document = read(tx, flow_id, ns=ns)
    text, version, updated, leaf_id, leaf_ver, _ = documents.find(tx, SHELF, flow_id, ns)
    row = {"dfid": flow_id, "data": text, "version": version, "updated_at": updated, "taken_at": tx.now, "ns": ns}
    logged_rows.change(tx, SHELF.change, "context", CONTEXT, row, leaf_id=leaf_id, leaf_ver=leaf_ver)
    return document


def versions(
    tx: Tx, flow_id: str, *, before: int | None = None, limit: int = 100, ns: str = MAIN
) -> tuple[DocumentVersion, ...]:
    """What the log knows of the context of a flow, the newest first."""
    return documents.versions(tx, SHELF, flow_id, before=before, limit=limit, ns=ns)
