"""The ledger: the one verified intent of each flow.

Rules:
- Rows are only added; the first write for a flow wins, and every later one is given the first.
"""

from collections.abc import Mapping
from typing import Any, Final

from holdproof.db import Row, Tx, lock_exclusive, sql
from holdproof.errors import NotFoundError
from holdproof.evidence.leaves import Projection
from holdproof.model.records import LedgerEntry, LedgerPage
from holdproof.runtime import logged_rows
from holdproof.runtime.logged_rows import MAIN

LEDGER: Final = logged_rows.register(
    Projection(
        "decision_ledger_entries",
        1,
        (
            *("id", "dfid", "root_dfid", "agent_id", "intent_payload", "context_ref", "evidence_hash", "signature"),
            *("committed_at", "ns"),
        ),
    ),
    kind="ledger",
    key="id",
    first=-1,
)

_FLOW = logged_rows.numbered(
    "SELECT root_dfid, agent_id, {id} FROM decision_flows WHERE dfid = :dfid AND ns = :ns", "decision_ledger_entries"
)
_ADD = sql(
    "INSERT INTO decision_ledger_entries (id, dfid, root_dfid, agent_id, intent_payload, context_ref, evidence_hash,"
    " signature, committed_at, ns, leaf_id, leaf_ver, leaf_salt) VALUES (:id, :dfid, :root_dfid, :agent_id,"
    " :intent_payload, :context_ref, :evidence_hash, :signature, :committed_at, :ns, :leaf_id, :leaf_ver, :leaf_salt)"
)


def append(
    tx: Tx,
    flow_id: str,
    intent: Any,
    *,
    context_ref: str,
    evidence_hash: str,
    signature: str = "",
    ns: str = MAIN,
) -> LedgerEntry:
    """Commit a flow's intent; where there is one already, that one is given back."""
    said = {"intent_payload": logged_rows.dump(intent), "context_ref": context_ref, "evidence_hash": evidence_hash}
    return commit(tx, flow_id, said | {"signature": signature}, ns=ns)


def commit(tx: Tx, flow_id: str, said: Mapping[str, Any], *, ns: str) -> LedgerEntry:
    """Commit an entry in full, in columns; `said` may name another agent and root than the flow's."""
    lock_exclusive(tx, f"flow:{flow_id}")
    first = tx.one(_GET, dfid=flow_id, ns=ns)
    if first is not None:
        return _entry(first)
    flow = tx.one(_FLOW, dfid=flow_id, ns=ns)
    if flow is None:
        raise NotFoundError(f"there is no flow {flow_id}", flow_id=flow_id)
    known = {
        "id": flow[2],
        "dfid": flow_id,
        "root_dfid": flow[0],
        "agent_id": flow[1],
        "committed_at": tx.now,
        "ns": ns,
    }
    row = {**dict.fromkeys(LEDGER.columns), **known, **said}
    logged_rows.add(tx, _ADD, "ledger", LEDGER, row)
    return _entry(tuple(row.values()))


_GET = sql(
    "SELECT id, dfid, root_dfid, agent_id, intent_payload, context_ref, evidence_hash, signature, committed_at, ns"
    " FROM decision_ledger_entries WHERE dfid = :dfid AND ns = :ns"
)


def get(tx: Tx, flow_id: str, *, ns: str = MAIN) -> LedgerEntry:
    """The entry of one flow."""
    row = tx.one(_GET, dfid=flow_id, ns=ns)
    if row is None:
        raise NotFoundError(f"flow {flow_id} has no entry in the ledger", flow_id=flow_id)
    return _entry(row)


_LIST = sql(
    "SELECT id, dfid, root_dfid, agent_id, intent_payload, context_ref, evidence_hash, signature, committed_at, ns"
    " FROM decision_ledger_entries WHERE id > :after AND ns = :ns"
    " AND (CAST(:agent_id AS TEXT) IS NULL OR agent_id = :agent_id) ORDER BY id LIMIT :limit"
)


def list(tx: Tx, *, agent_id: str | None = None, ns: str = MAIN, after: int = 0, limit: int = 100) -> LedgerPage:
    """Entries in the order they came, a page at a time: pass `next` of a page as `after`."""
    found = tx.all(_LIST, agent_id=agent_id, ns=ns, after=after, limit=logged_rows.limited(limit))
    return LedgerPage(*logged_rows.paged(found, limit, _entry, lambda entry: entry.id))


def _entry(row: Row) -> LedgerEntry:
    return LedgerEntry(*(*row[:4], logged_rows.load(row[4]), *row[5:]))
