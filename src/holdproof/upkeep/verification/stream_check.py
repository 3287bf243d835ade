"""Check whose entries are: an entry stands in the stream of the agent that its record names, or of its flow's agent.

Rules:
- Every numbered version of every record that is still there is compared; what was erased or pruned names nobody.
- A record without an agent and without a flow is nobody's. Of a flow that is gone the agent is not known.
- Kind and namespace, which the entry itself says, are compared where entries are counted (number_check.py).
"""

from collections.abc import Mapping
from functools import partial
from typing import Final, NamedTuple

from holdproof.db import Query, Tx, Work, sql
from holdproof.evidence import leaves, numbering
from holdproof.evidence.logged_tables import LoggedTable, Place
from holdproof.model.verdicts import Verdict
from holdproof.model.verify import Finding
from holdproof.upkeep import kernel_tables
from holdproof.upkeep.verification.findings import RESTORE, Findings, HasDatabase, read

_PAGE: Final = 500
_REASSIGNED: Final = frozenset({"schedules"})
"""Tables whose records may name another agent in their next version."""


class _Entry(NamedTuple):
    """An entry of a record, beside whom its record names."""

    key: object
    ns: str
    newest: int
    agent_id: str | None
    flow_id: str | None
    flow_agent_id: str | None
    """The agent of that flow; None where the flow is gone."""
    leaf_index: int | None
    version: int | None
    text: str | None


def _entries(table: LoggedTable) -> Query:
    """Return the query of a page of records, by key, each with all of its entries."""
    named = {name: f"t.{name}" if name in table.columns else "NULL" for name in ("agent_id", "dfid", "ns")}
    order = f"t.{table.key}, t.ns" if table.per_namespace else f"t.{table.key}"
    after = "(:after, :after_ns)" if table.per_namespace else ":after"
    start = f"({order})" if table.per_namespace else order
    # Names come from code, never from a user.
    return sql(
        f"SELECT r.k, r.ns, r.leaf_ver, r.agent_id, r.dfid, f.agent_id, l.idx, l.ver, l.leaf FROM (SELECT t.{table.key}"  # noqa: S608
        f" AS k, coalesce({named['ns']}, '') AS ns, t.leaf_id, t.leaf_ver, {named['agent_id']} AS agent_id,"
        f" {named['dfid']} AS dfid FROM {table.table} t WHERE {start} > {after} ORDER BY {order} LIMIT :limit) r"
        " LEFT JOIN decision_flows f ON f.dfid = r.dfid AND f.ns = r.ns LEFT JOIN log_leaves l ON l.id = r.leaf_id"
        " ORDER BY r.k, r.ns, l.ver"
    )


_ENTRIES: Final = {name: _entries(table) for name, table in kernel_tables.LOGGED.items()}


class _Page(NamedTuple):
    """A page of records, checked."""

    checked: int
    misfiled: list[int]
    after: Place | None


def check(context: HasDatabase, findings: Findings) -> Work[None]:
    """Compare every numbered entry with its record; one in the stream of another agent is TAMPERED."""
    for table in kernel_tables.LOGGED.values():
        after: Place | None = table.start
        while after is not None:
            page = yield from read(context, partial(_judge, table=table, after=after))
            for index in page.misfiled:
                what = f"the entry is numbered in the stream of another agent than its record in {table.table} names"
                findings.add(Finding(Verdict.TAMPERED, what, RESTORE, table="log_leaves", row=str(index)))
            findings.checked["attributed entries"] += page.checked
            after = page.after


_STREAMS = sql("SELECT stream, agent_id FROM log_streams")


def _judge(tx: Tx, table: LoggedTable, after: Place) -> _Page:
    """Check a page of records; on the reader's thread, and in one snapshot with the streams."""
    rows = tx.all(_ENTRIES[table.table], **table.page(after, _PAGE))
    agents: dict[str, str] = dict(tx.all(_STREAMS))
    entries = [_Entry(*row) for row in rows]
    judged = [(each.leaf_index, right) for each in entries if (right := _is_right(table, each, agents)) is not None]
    places = dict.fromkeys(Place(each.key, each.ns if table.per_namespace else "") for each in entries)
    last = [*places][-1] if len(places) == _PAGE else None
    return _Page(len(judged), [index for index, right in judged if not right and index is not None], last)


def _is_right(table: LoggedTable, entry: _Entry, agents: Mapping[str, str]) -> bool | None:
    """Return whether an entry stands in the stream of its agent; None where that cannot be said."""
    if entry.text is None or (table.table in _REASSIGNED and entry.version != entry.newest):
        return None
    number = numbering.number_of(entry.text)
    kind = numbering.kind_of(entry.text)
    # A stream that is not there is found where entries are counted; an erasure stands under the handle of its record.
    if number is None or number.stream not in agents or kind not in table.kinds:
        return None
    source = leaves.source_of(kind, entry.ns, {"agent_id": entry.agent_id, "dfid": entry.flow_id})
    if source is None:
        return None
    (agent_id, _, _), flow_id = source
    if agent_id or flow_id is None:
        return agents[number.stream] == agent_id
    return None if entry.flow_agent_id is None else agents[number.stream] == entry.flow_agent_id
