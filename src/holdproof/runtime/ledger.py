"""The ledger: the one verified intent of each flow.

Rules:
- Rows are only added; the first write for a flow wins, and every later one returns the first.
- Of a person's flow the intent is sealed, and read as erased once that person was.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from holdproof import validation
from holdproof.crypto import canonical
from holdproof.db import Tx, lock_exclusive, sql
from holdproof.errors import NotFoundError
from holdproof.evidence.tables import Table, numbered
from holdproof.model import jsontext
from holdproof.model.namespaces import MAIN
from holdproof.model.page import Page
from holdproof.model.records import LedgerEntry
from holdproof.runtime import recorded

LEDGER: Final = Table(
    "decision_ledger_entries",
    LedgerEntry,
    kind="ledger",
    key="id",
    logged=(
        *("id", "dfid", "root_dfid", "agent_id", "intent_payload", "context_ref", "evidence_hash", "signature"),
        *("committed_at", "ns"),
    ),
    columns={"intent": "intent_payload"},
    loads={"intent_payload": jsontext.load},
)

_FLOW = numbered(
    "SELECT root_dfid, agent_id, subject, {id} FROM decision_flows WHERE dfid = :dfid AND ns = :ns",
    "decision_ledger_entries",
)
_ADD = sql(LEDGER.insert())


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
    """Commit a flow's intent; where the flow has an entry already, return that one."""
    columns = {
        "intent_payload": canonical.dump_text(intent),
        "context_ref": context_ref,
        "evidence_hash": evidence_hash,
        "signature": signature,
    }
    return commit(tx, flow_id, columns, ns=ns)


def commit(tx: Tx, flow_id: str, columns: Mapping[str, Any], *, ns: str) -> LedgerEntry:
    """Commit an entry, given by column; `columns` may name another agent and root than the flow's."""
    # Two writers of one flow must not both find no entry.
    lock_exclusive(tx, f"flow:{flow_id}")
    first = LEDGER.find(tx, _GET, dfid=flow_id, ns=ns)
    if first is not None:
        return _shown(tx, first)
    flow = tx.one(_FLOW, dfid=flow_id, ns=ns)
    if flow is None:
        raise NotFoundError(f"there is no flow {flow_id}", listed_by="flows list", flow_id=flow_id)
    root, agent_id, subject, number = flow
    # `columns` comes last: another kernel may name another agent and root than the flow's.
    row = {
        **dict.fromkeys(LEDGER.columns),
        "id": number,
        "dfid": flow_id,
        "root_dfid": root,
        "agent_id": agent_id,
        "committed_at": tx.now,
        "ns": ns,
        **columns,
    }
    if row["intent_payload"] is not None:
        row["intent_payload"] = recorded.seal_json(tx, row["intent_payload"], subject)
    LEDGER.add(tx, _ADD, row)
    return _shown(tx, LEDGER.from_columns(row))


def _shown(tx: Tx, entry: LedgerEntry) -> LedgerEntry:
    return replace(entry, intent=recorded.open_json(tx, entry.intent))


_GET = sql(LEDGER.select("WHERE dfid = :dfid AND ns = :ns"))


def get(tx: Tx, flow_id: str, *, ns: str = MAIN) -> LedgerEntry:
    """Return the entry of one flow."""
    entry = LEDGER.find(tx, _GET, dfid=flow_id, ns=ns)
    if entry is None:
        raise NotFoundError(f"flow {flow_id} has no entry in the ledger", flow_id=flow_id)
    return _shown(tx, entry)


# By number: rows are only added, so that the newest has the largest.
_LIST = sql(
    LEDGER.select(
        "WHERE id < :before AND ns = :ns AND (CAST(:agent_id AS TEXT) IS NULL OR agent_id = :agent_id)"
        " ORDER BY id DESC LIMIT :limit"
    )
)


def list(
    tx: Tx, *, agent_id: str | None = None, cursor: str | None = None, limit: int = 100, ns: str = MAIN
) -> Page[LedgerEntry]:
    """List entries, newest first."""
    page = LEDGER.page(tx, _LIST, cursor, limit, agent_id=agent_id, ns=ns)
    return Page([_shown(tx, each) for each in page.items], page.next_cursor)


_SCAN = sql(LEDGER.select("WHERE id > :after AND ns = :ns ORDER BY id LIMIT :limit"))


def scan(tx: Tx, *, after: int = 0, limit: int = 100, ns: str = MAIN) -> tuple[LedgerEntry, ...]:
    """Return the next entries, oldest first, for adapters; `after` is the id of the last one read."""
    entries = LEDGER.all(tx, _SCAN, ns=ns, after=after, limit=validation.limited(limit))
    return tuple(_shown(tx, each) for each in entries)
