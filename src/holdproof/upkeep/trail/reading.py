"""Read the trail: the entries of the log, newest first, each with what its record says.

Rules:
- Entries come from the log, in its order; the records only lend their words. So nothing that is in the log is missing
  here, and nothing stands here that is not in the log.
- An entry whose record was erased or removed by retention stays, and says so.
- A record is joined by its handle. It is not compared with its entry here: that is what `verify` does.
- A page looks at a bounded number of entries: one that a filter leaves short names where the next one begins.
- On PostgreSQL an entry is here once it is under a signed head, a tenth of a second after its commit.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from holdproof import paging, validation
from holdproof.crypto import merkle
from holdproof.db import Query, Row, Tx, sql
from holdproof.errors import NotFoundError
from holdproof.evidence import leaves
from holdproof.model.namespaces import EVERY
from holdproof.model.page import Page
from holdproof.model.times import BEGINNING, END
from holdproof.model.trail import LogEntry, TrailEntry
from holdproof.upkeep import kernel_tables
from holdproof.upkeep.trail import describe

_CHUNK: Final = 1_000
_MOST_READ: Final = 20_000
"""How many entries one page looks at; a filter that matches few of them leaves the rest to the next page."""
_REMOVED: Final = "removed"
_HANDLES: Final = "SELECT value FROM json_each(:handles)"
_HANDLES_POSTGRES: Final = "SELECT value FROM json_array_elements_text(CAST(:handles AS JSON))"


class TrailFilters(NamedTuple):
    """Which entries are asked for; None and the whole of time leave nothing out."""

    since: str = BEGINNING
    until: str = END
    agent_id: str | None = None
    flow_id: str | None = None
    person: str | None = None
    kind: str | None = None
    ns: str = EVERY

    def admits_leaf(self, fields: Mapping[str, Any]) -> bool:
        """Whether an entry passes by what stands in the entry itself."""
        if not self.since <= fields["ts"] < self.until:
            return False
        return self.ns in (EVERY, fields["ns"])

    def admits(self, entry: TrailEntry) -> bool:
        """Whether an entry passes by what its record says."""
        filters = ((self.agent_id, entry.agent_id), (self.flow_id, entry.flow_id), (self.person, entry.person))
        return all(value is None or value == actual for value, actual in filters)

    @property
    def by_record(self) -> bool:
        """Whether records have to be read to filter."""
        return any(each is not None for each in (self.agent_id, self.flow_id, self.person))


def trail(
    tx: Tx,
    *,
    since: str | None = None,
    until: str | None = None,
    agent_id: str | None = None,
    flow_id: str | None = None,
    person: str | None = None,
    kind: str | None = None,
    cursor: str | None = None,
    limit: int = 100,
    ns: str = EVERY,
) -> Page[TrailEntry]:
    """List everything that happened, newest first: flows, steps, approvals, memory, keys, lockdowns, access.

    `since` and `until` are times, or how long ago: `30m`, `1h`, `7d`. Every entry of the log is one item, in the order
    of the log. A page may be short where filters match little; its `next_cursor` says that there is more to look at.
    """
    filters = TrailFilters(
        BEGINNING if since is None else validation.moment_or_span("since", since, tx.now),
        END if until is None else validation.moment_or_span("until", until, tx.now),
        agent_id,
        flow_id,
        person,
        # A kind that does not exist would find nothing, which reads like "nothing happened".
        None if kind is None else validation.one_of("kind", kind, leaves.TYPES),
        ns,
    )
    (before,) = paging.decode(cursor, validation.LAST)
    validation.limited(limit)
    handles = None if flow_id is None else _handles_of(tx, flow_id, ns)
    entries: tuple[TrailEntry, ...] = ()
    looked = 0
    while looked < _MOST_READ:
        chunk = _entries(tx, handles, before, filters.kind)
        if not chunk:
            return Page([*entries])
        looked += len(chunk)
        admitted = [each for each in chunk if filters.admits_leaf(each.fields)]
        # Without a filter by record no more records are read than the page shows.
        visible = admitted if filters.by_record else admitted[: limit - len(entries) + 1]
        entries += tuple(entry for entry in _described(tx, visible) if filters.admits(entry))
        if len(entries) > limit:
            return Page([*entries[:limit]], paging.encode(entries[limit - 1].index))
        before = chunk[-1].place
        # Entries come in the order of the log, and their times follow it closely.
        if max(each.fields["ts"] for each in chunk) < filters.since:
            return Page([*entries])
    return Page([*entries], paging.encode(before))


class _Leaf(NamedTuple):
    """A row of the log, parsed."""

    place: int
    handle: str
    version: int
    text: str
    fields: Mapping[str, Any]

    @property
    def table(self) -> str:
        return str(self.fields["p"]).partition("/")[0]


_UNREADABLE: Final = {"ts": "", "t": "unreadable", "p": "", "ns": ""}
"""What is read of an entry that Holdproof did not write; `verify` tells of it."""


def _parse(row: Row) -> _Leaf:
    index, handle, version, text = row
    try:
        fields = {**_UNREADABLE, **json.loads(text)}
    except (ValueError, TypeError):
        fields = _UNREADABLE
    readable = all(isinstance(fields[name], str) for name in _UNREADABLE)
    return _Leaf(index, handle, version, str(text), fields if readable else _UNREADABLE)


_ENTRIES = sql(
    "SELECT idx, id, ver, leaf FROM log_leaves WHERE idx < :before AND leaf LIKE :like ORDER BY idx DESC LIMIT :limit"
)
_ENTRIES_OF = sql(
    f"SELECT idx, id, ver, leaf FROM log_leaves WHERE id IN ({_HANDLES}) AND idx < :before AND leaf LIKE :like"  # noqa: S608
    " ORDER BY idx DESC LIMIT :limit",
    postgres=f"SELECT idx, id, ver, leaf FROM log_leaves WHERE id IN ({_HANDLES_POSTGRES})"  # noqa: S608
    " AND idx < :before AND leaf LIKE :like ORDER BY idx DESC LIMIT :limit",
)


def _entries(tx: Tx, handles: str | None, before: int, kind: str | None, limit: int = _CHUNK) -> tuple[_Leaf, ...]:
    """Return the next entries, newest first, of one kind or of all, of some records or of all."""
    # In an entry the type stands before the time; a name that holds this text has its quotes escaped.
    like = "%" if kind is None else f'%,"t":"{kind}","ts":"%'
    bounds = {"before": before, "like": like, "limit": limit}
    rows = tx.all(_ENTRIES, **bounds) if handles is None else tx.all(_ENTRIES_OF, handles=handles, **bounds)
    return tuple(_parse(row) for row in rows)


_OF_FLOW: Final[Mapping[str, Query]] = {
    name: sql(f"SELECT leaf_id FROM {name} WHERE dfid = :dfid AND (:ns = '*' OR ns = :ns)")  # noqa: S608
    for name, logged in kernel_tables.LOGGED.items()
    if {"dfid", "ns"} <= {*logged.columns}
}


def _handles_of(tx: Tx, flow_id: str, ns: str) -> str:
    """Return the handles of everything recorded of a flow, as JSON: its entries are entries by these, not by a walk."""
    return json.dumps([handle for query in _OF_FLOW.values() for (handle,) in tx.all(query, dfid=flow_id, ns=ns)])


# --- entries with their records ----------------------------------------------------------------------------------


def _rows_by_handle(table: str, columns: Sequence[str]) -> Query:
    listed = ", ".join(columns)
    text = f"SELECT leaf_id, leaf_ver, {listed} FROM {table} WHERE leaf_id IN ("  # noqa: S608 (names come from code)
    return sql(f"{text}{_HANDLES})", postgres=f"{text}{_HANDLES_POSTGRES})")


_RECORDS: Final[Mapping[str, Query]] = {
    name: _rows_by_handle(name, logged.columns) for name, logged in kernel_tables.LOGGED.items()
}
_AGENTS = sql(
    "SELECT dfid, ns, agent_id FROM decision_flows WHERE dfid IN (SELECT value FROM json_each(:flows))",
    postgres="SELECT dfid, ns, agent_id FROM decision_flows WHERE dfid IN"
    " (SELECT value FROM json_array_elements_text(CAST(:flows AS JSON)))",
)


class _Record(NamedTuple):
    """The newest version of a record, as its table has it."""

    version: int
    columns: Mapping[str, Any]


def _records(tx: Tx, entries: Sequence[_Leaf]) -> dict[str, _Record]:
    """Return the records of entries by handle: one query for each table among them."""
    by_table: dict[str, set[str]] = {}
    for entry in entries:
        by_table.setdefault(entry.table, set()).add(entry.handle)
    records: dict[str, _Record] = {}
    for table, handles in by_table.items():
        logged = kernel_tables.LOGGED.get(table)
        if logged is None:
            continue
        for handle, version, *cells in tx.all(_RECORDS[table], handles=json.dumps(sorted(handles))):
            records[handle] = _Record(version, dict(zip(logged.columns, cells, strict=True)))
    return records


def _described(tx: Tx, entries: Sequence[_Leaf]) -> tuple[TrailEntry, ...]:
    """Return entries in words, in their order."""
    records = _records(tx, entries)
    flows = sorted({flow for each in records.values() if (flow := each.columns.get("dfid"))})
    rows = tx.all(_AGENTS, flows=json.dumps(flows)) if flows else []
    agents = {(flow_id, ns): agent for flow_id, ns, agent in rows}
    return tuple(_entry(each, records.get(each.handle), agents) for each in entries)


def _entry(leaf: _Leaf, record: _Record | None, agents: Mapping[tuple[str, str], str]) -> TrailEntry:
    fields = leaf.fields
    if record is None:
        # An erasure has an entry under the handle of each record that it removed.
        words = describe.Words("record erased" if fields["t"] == "erasure" else "of a record that was removed since")
        flow_id = agent_id = key = None
        state = _REMOVED
    else:
        columns = record.columns
        newest = record.version == leaf.version
        state = "current" if newest else "superseded"
        key = str(columns[kernel_tables.LOGGED[leaf.table].key])
        words = describe.words(leaf.table, fields["t"], key, describe.Version(columns, leaf.version, newest))
        flow_id = columns.get("dfid")
        agent_id = columns.get("agent_id") or agents.get((str(flow_id), fields["ns"]))
    return TrailEntry(
        index=leaf.place,
        at=fields["ts"],
        kind=fields["t"],
        what=words.what,
        note=words.note,
        flow_id=flow_id,
        agent_id=agent_id,
        person=words.person,
        proposal=words.proposal,
        table=leaf.table,
        key=key,
        state=state,
        entry=leaf.handle,
        version=leaf.version,
        ns=fields["ns"],
    )


# --- entries as they stand ---------------------------------------------------------------------------------------

_BY_INDEX = sql("SELECT idx, id, ver, leaf FROM log_leaves WHERE idx = :idx")
_BY_HANDLE = sql("SELECT idx, id, ver, leaf FROM log_leaves WHERE id = :id ORDER BY ver DESC LIMIT 1")


def list(
    tx: Tx, *, kind: str | None = None, cursor: str | None = None, limit: int = 100, ns: str = EVERY
) -> Page[LogEntry]:
    """List the entries of the log as they stand there, newest first; of one namespace a page may be short."""
    if kind is not None:
        validation.one_of("kind", kind, leaves.TYPES)
    (before,) = paging.decode(cursor, validation.LAST)
    page = paging.page(_entries(tx, None, before, kind, paging.fetch(limit)), limit, lambda leaf: (leaf.place,))
    visible = [leaf for leaf in page.items if ns in (EVERY, leaf.fields["ns"])]
    events = _described(tx, visible)
    return Page([_log_entry(leaf, event) for leaf, event in zip(visible, events, strict=True)], page.next_cursor)


def at(tx: Tx, index: int, *, ns: str = EVERY) -> LogEntry | None:
    """Return the entry of a number; None where the log has none, or it is of another namespace."""
    row = tx.one(_BY_INDEX, idx=index)
    leaf = None if row is None else _parse(row)
    if leaf is None or ns not in (EVERY, leaf.fields["ns"]):
        return None
    (event,) = _described(tx, [leaf])
    return _log_entry(leaf, event)


def get(tx: Tx, entry: str, *, ns: str = EVERY) -> LogEntry:
    """Return one entry of the log: by its index, or by the handle of a record the entry of its newest version."""
    is_index = entry.isascii() and entry.isdigit() and len(entry) <= len(str(validation.LAST)) - 1
    row = tx.one(_BY_INDEX, idx=int(entry)) if is_index else tx.one(_BY_HANDLE, id=entry)
    leaf = None if row is None else _parse(row)
    if leaf is None or ns not in (EVERY, leaf.fields["ns"]):
        raise NotFoundError(f"the log has no entry {entry}; `holdproof log list` names those it has", entry=entry)
    (event,) = _described(tx, [leaf])
    return _log_entry(leaf, event)


def _log_entry(leaf: _Leaf, event: TrailEntry) -> LogEntry:
    return LogEntry(leaf.place, leaf.text, merkle.leaf_hash(leaf.text.encode()).hex(), dict(leaf.fields), event)
