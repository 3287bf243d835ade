"""Contexts: the input that a flow decides with.

Rules: those of documents.py, and
- A context that was taken is not returned again, neither by `take` nor by `get`, until a new one is put.
"""

from typing import Any, Final

from holdproof.crypto import canonical
from holdproof.db import Tx, lock_exclusive, sql
from holdproof.errors import ContextTakenError
from holdproof.evidence.tables import Table
from holdproof.model.namespaces import MAIN
from holdproof.model.page import Page
from holdproof.model.records import Document, DocumentVersion
from holdproof.runtime import documents
from holdproof.runtime.documents import DocumentKind, StoredDocument

CONTEXT: Final = Table(
    "flow_context",
    StoredDocument,
    kind="context",
    key="dfid",
    per_namespace=True,
    logged=("dfid", "data", "version", "updated_at", "taken_at", "ns"),
    columns={"key": "dfid"},
)
CONTEXTS: Final = DocumentKind(
    table=CONTEXT,
    owner="flow",
    find=sql(
        "SELECT c.data, c.version, c.updated_at, c.taken_at, c.leaf_id, c.leaf_ver FROM decision_flows f"
        " LEFT JOIN flow_context c ON c.dfid = f.dfid AND c.ns = f.ns WHERE f.dfid = :key AND f.ns = :ns"
    ),
    add=sql(CONTEXT.insert()),
    change=sql(
        CONTEXT.update(
            *("data", "version", "updated_at", "taken_at"),
            where="dfid = :dfid AND ns = :ns AND leaf_ver = :leaf_ver - 1",
        )
    ),
)


def put(tx: Tx, flow_id: str, data: Any, *, ns: str = MAIN) -> Document:
    """Set the context of a flow, whatever it had before."""
    return documents.put(tx, CONTEXTS, flow_id, canonical.dump_text(data), expected=None, ns=ns)


def update(tx: Tx, flow_id: str, data: Any, *, expected_version: int, ns: str = MAIN) -> Document:
    """Replace the context that was read as that version (0: there was none); StaleVersionError where it changed."""
    return documents.put(tx, CONTEXTS, flow_id, canonical.dump_text(data), expected=expected_version, ns=ns)


def get(tx: Tx, flow_id: str, *, ns: str = MAIN) -> Document:
    """Return the context of a flow; ContextTakenError where it was taken."""
    document, stored = documents.get(tx, CONTEXTS, flow_id, ns)
    if stored.taken_at is not None:
        raise ContextTakenError(
            f"the context of flow {flow_id} was taken at {stored.taken_at}", flow_id=flow_id, taken_at=stored.taken_at
        )
    return document


def take(tx: Tx, flow_id: str, *, ns: str = MAIN) -> Document:
    """Return the context of a flow once; afterwards it is taken."""
    # Of two who take a context at once the second finds it taken.
    lock_exclusive(tx, f"flow:{flow_id}")
    document = get(tx, flow_id, ns=ns)
    _, stored = documents.get(tx, CONTEXTS, flow_id, ns)
    # Taking is not another version of the document, but another leaf: the log shows when it was taken.
    CONTEXT.change(tx, CONTEXTS.change, documents.record(CONTEXTS, flow_id, stored, ns), {"taken_at": tx.now})
    return document


def versions(
    tx: Tx, flow_id: str, *, cursor: str | None = None, limit: int = 100, ns: str = MAIN
) -> Page[DocumentVersion]:
    """List what the log holds of a flow's context, newest first."""
    return documents.versions(tx, CONTEXTS, flow_id, cursor=cursor, limit=limit, ns=ns)
