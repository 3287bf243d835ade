"""State: what an agent keeps from one flow to the next. Rules: those of documents.py."""

from typing import Any, Final

from holdproof.crypto import canonical
from holdproof.db import Tx, sql
from holdproof.evidence.tables import Table
from holdproof.model.namespaces import MAIN
from holdproof.model.page import Page
from holdproof.model.records import Document, DocumentVersion
from holdproof.runtime import documents
from holdproof.runtime.documents import DocumentKind, StoredDocument

STATE: Final = Table(
    "agent_state",
    StoredDocument,
    kind="state",
    key="agent_id",
    per_namespace=True,
    logged=("agent_id", "data", "version", "updated_at", "ns"),
    columns={"key": "agent_id"},
)
STATES: Final = DocumentKind(
    table=STATE,
    owner="agent",
    # A state is never taken: that column is of contexts only.
    find=sql(
        "SELECT s.data, s.version, s.updated_at, NULL, s.leaf_id, s.leaf_ver FROM agent_registry a"
        " LEFT JOIN agent_state s ON s.agent_id = a.agent_id AND s.ns = a.ns WHERE a.agent_id = :key AND a.ns = :ns"
    ),
    add=sql(STATE.insert()),
    change=sql(
        STATE.update(
            "data", "version", "updated_at", where="agent_id = :agent_id AND ns = :ns AND version = :version - 1"
        )
    ),
)


def put(tx: Tx, agent_id: str, data: Any, *, ns: str = MAIN) -> Document:
    """Set the state of an agent, whatever it had before."""
    return documents.put(tx, STATES, agent_id, canonical.dump_text(data), expected=None, ns=ns)


def update(tx: Tx, agent_id: str, data: Any, *, expected_version: int, ns: str = MAIN) -> Document:
    """Replace the state that was read as that version (0: there was none); StaleVersionError where it changed."""
    return documents.put(tx, STATES, agent_id, canonical.dump_text(data), expected=expected_version, ns=ns)


def get(tx: Tx, agent_id: str, *, ns: str = MAIN) -> Document:
    """Return the state of an agent."""
    document, _ = documents.get(tx, STATES, agent_id, ns)
    return document


def versions(
    tx: Tx, agent_id: str, *, cursor: str | None = None, limit: int = 100, ns: str = MAIN
) -> Page[DocumentVersion]:
    """List what the log holds of an agent's state, newest first."""
    return documents.versions(tx, STATES, agent_id, cursor=cursor, limit=limit, ns=ns)
