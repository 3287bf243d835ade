"""State: what an agent keeps from one flow to the next. Rules: those of documents.py."""

from typing import Any, Final

from holdproof.db import Tx, sql
from holdproof.evidence.leaves import Projection
from holdproof.model.records import Document, DocumentVersion
from holdproof.runtime import documents, logged_rows
from holdproof.runtime.documents import Shelf
from holdproof.runtime.logged_rows import MAIN

STATE: Final = logged_rows.register(
    Projection("agent_state", 1, ("agent_id", "data", "version", "updated_at", "ns")), kind="state", key="agent_id"
)
SHELF: Final = Shelf(
    kind="state",
    key="agent_id",
    owner="agent",
    projection=STATE,
    find=sql(
        "SELECT s.data, s.version, s.updated_at, s.leaf_id, s.leaf_ver FROM agent_registry a"
        " LEFT JOIN agent_state s ON s.agent_id = a.agent_id AND s.ns = a.ns WHERE a.agent_id = :key AND a.ns = :ns"
    ),
    add=sql(
        "INSERT INTO agent_state (agent_id, data, version, updated_at, ns, leaf_id, leaf_ver, leaf_salt)"
        " VALUES (:agent_id, :data, :version, :updated_at, :ns, :leaf_id, :leaf_ver, :leaf_salt)"
    ),
    change=sql(
        "UPDATE agent_state SET data = :data, version = :version, updated_at = :updated_at, leaf_id = :leaf_id,"
        " leaf_ver = :leaf_ver, leaf_salt = :leaf_salt"
        " WHERE agent_id = :agent_id AND ns = :ns AND version = :version - 1"
    ),
)


def put(tx: Tx, agent_id: str, data: Any, *, ns: str = MAIN) -> Document:
    """Keep a value for an agent, whatever it had before."""
    return documents.put(tx, SHELF, agent_id, logged_rows.dump(data), expected=None, ns=ns)


def update(tx: Tx, agent_id: str, data: Any, *, expected_version: int, ns: str = MAIN) -> Document:
    """Replace the state that was read as that version; 0 means there was none."""
    return documents.put(tx, SHELF, agent_id, logged_rows.dump(data), expected=expected_version, ns=ns)


def read(tx: Tx, agent_id: str, *, ns: str = MAIN) -> Document:
    """What is kept for an agent."""
    return documents.shown(agent_id, documents.find(tx, SHELF, agent_id, ns))


def versions(
    tx: Tx, agent_id: str, *, before: int | None = None, limit: int = 100, ns: str = MAIN
) -> tuple[DocumentVersion, ...]:
    """What the log knows of the state of an agent, the newest first."""
    return documents.versions(tx, SHELF, agent_id, before=before, limit=limit, ns=ns)
