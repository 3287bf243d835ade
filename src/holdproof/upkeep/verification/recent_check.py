"""Check what was written since a verification: every record with an entry that it did not see.

Rules:
- Such a record has its row, which matches its newest entry, or an erasure or a pruning names it. Entry, erasure and
  pruning are new themselves: whatever stands before in the log was not read again, and may have been edited.
- A row that names no entry is UNLOGGED, one that names an entry which the log does not have TAMPERED, whenever it was
  added.
- Of flows that were written to, the status follows from their transitions; of evaluations, the DBOM is checked.
- A record without a new entry is not read: it is believed as the verification left it.
- Rows are found in one pass over each table for a range of entries; memory is bounded by the range.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from holdproof.db import Row, Tx, Work, sql
from holdproof.evidence import erasures, logged_tables, tree
from holdproof.evidence.logged_tables import LoggedTable, Place
from holdproof.model.verdicts import Verdict
from holdproof.model.verify import Finding
from holdproof.runtime import checks as flow_checks
from holdproof.store.context import Context
from holdproof.upkeep import kernel_tables
from holdproof.upkeep.verification import dbom_check, row_check
from holdproof.upkeep.verification.findings import EXPLAIN, RESTORE, Findings, read
from holdproof.upkeep.verification.row_check import LostRecord

_LOGGED: Final = kernel_tables.LOGGED
_RANGE: Final = 50_000
_PAGE: Final = 100


def check(context: Context, findings: Findings, since: int, *, repair: bool) -> Work[None]:
    """Check every record with an entry from that size of the log on, and look for rows without one."""
    for table in _LOGGED.values():
        for key, handle in (yield from read(context, partial(_unlogged, table=table))):
            verdict, what = row_check.NO_LEAF if handle is None else row_check.UNKNOWN_LEAF
            findings.add(Finding(verdict, what, EXPLAIN, table=table.table, row=str(key)))
    # The size is read once: what is appended meanwhile is left to the next run.
    size = (yield from read(context, tree.state)).size
    for start in range(since, size, _RANGE):
        bounds = _Range(start, min(size, start + _RANGE), since)
        yield from _check_range(context, findings, bounds, repair)
        findings.tell("entries since", min(size, start + _RANGE) - since, size - since)


def _unlogged(tx: Tx, table: LoggedTable) -> list[Row]:
    return tx.all(table.unlogged)


class _Range(NamedTuple):
    """The entries from `start` up to `end`, and where those begin that are new."""

    start: int
    end: int
    since: int


class _Entries(NamedTuple):
    """The entries of a range: by table and record where the first of them stands, and erased records."""

    by_table: Mapping[str, Mapping[str, int]]
    tombstones: Mapping[str, int]
    width: int


class _Judged(NamedTuple):
    """What was checked of a table: the records met, the keys of their rows, and the flows they belong to."""

    handles: set[str]
    keys: list[Any]
    flows: set[str]


def _check_range(context: Context, findings: Findings, bounds: _Range, repair: bool) -> Work[None]:
    entries = yield from read(context, partial(_read_entries, start=bounds.start, end=bounds.end))
    findings.checked["leaves"] += entries.width
    records = {name: indexes for name, indexes in entries.by_table.items() if name in _LOGGED}
    for name in entries.by_table.keys() - _LOGGED.keys():
        findings.skip(f"entries that speak of {name}, a table this version does not walk")
    # All rows before what follows from several: damage to one table must not hide that of another.
    judged = {}
    for name in records:
        judged[name] = yield from _check_table(context, findings, _LOGGED[name], bounds)
    for row in judged["battles"].keys if "battles" in judged else ():
        yield from dbom_check.check_row(context, findings, row, repair=repair)
    for flow_id in sorted({flow_id for each in judged.values() for flow_id in each.flows}):
        for what in (yield from read(context, partial(flow_checks.flow, flow_id=flow_id))):
            findings.add(Finding(Verdict.TAMPERED, what, EXPLAIN, table="decision_flows"))
    for name, indexes in records.items():
        missing = [(index, handle) for handle, index in indexes.items() if handle not in judged[name].handles]
        yield from _check_lost(context, findings, _LOGGED[name], missing, bounds.since)
    yield from _check_tombstones(context, findings, entries.tombstones, judged, bounds.since)


def _check_tombstones(
    context: Context, findings: Findings, tombstones: Mapping[str, int], judged: Mapping[str, _Judged], since: int
) -> Work[None]:
    # An erasure that was finished has a second version of its own.
    of_records = tombstones.keys() - (judged["erasures"].handles if tombstones else set())
    named = yield from read(context, partial(erasures.among, handles={*of_records}, since=since))
    for handle in sorted(of_records - named):
        what = f"the record {handle} has an erasure put into the log for it, which none of the store's names"
        findings.add(Finding(Verdict.TAMPERED, what, RESTORE, table="log_leaves", row=str(tombstones[handle])))


_ENTRIES = sql("SELECT idx, id, ver, leaf FROM log_leaves WHERE idx >= :start AND idx < :end ORDER BY idx")


def _read_entries(tx: Tx, start: int, end: int) -> _Entries:
    by_table: dict[str, dict[str, int]] = defaultdict(dict)
    tombstones = {}
    rows = tx.all(_ENTRIES, start=start, end=end)
    for index, handle, version, text in rows:
        table = row_check.table_of(text)
        records = by_table[table]
        # The tombstone of a record is the next version under its handle.
        if table == "erasures" and version > 1:
            tombstones[handle] = index
        else:
            records.setdefault(handle, index)
    return _Entries(by_table, tombstones, len(rows))


def _check_table(context: Context, findings: Findings, table: LoggedTable, bounds: _Range) -> Work[_Judged]:
    """Check the rows of a table whose records have an entry in that range."""
    written = yield from read(context, lambda tx: tx.all(table.written, start=bounds.start, end=bounds.end))
    places = [Place(*row) for row in written]
    judged = _Judged(set(), [place.key for place in places], set())
    for at in range(0, len(places), _PAGE):
        rows = yield from read(context, partial(_rows, table=table, places=places[at : at + _PAGE]))
        for row in rows:
            finding = row_check.judge(table, row) or _misfiled(table, row, bounds.since)
            if finding is not None:
                findings.add(finding)
            judged.handles.add(logged_tables.logged_row(row).leaf_id)
            if "dfid" in table.columns:
                judged.flows.add(str(row[table.column("dfid")]))
        findings.checked[table.table] += len(rows)
    return judged


def _misfiled(table: LoggedTable, row: Row, since: int) -> Finding | None:
    """Return the finding about a record with a new entry whose newest one is not new."""
    index = logged_tables.logged_row(row).leaf_index
    if index is None or index >= since:
        return None
    what = f"entry {index}, which is older than others of the record, is filed as its newest: the log was edited"
    return Finding(Verdict.TAMPERED, what, RESTORE, table=table.table, row=str(table.place(row)))


def _rows(tx: Tx, table: LoggedTable, places: Sequence[Place]) -> list[Row]:
    # A row may be gone since its place was read: its record is then looked for among the erased.
    by_place = (
        tx.one(table.current, key=each.key, **({"ns": each.ns} if table.per_namespace else {})) for each in places
    )
    return [row for row in by_place if row is not None]


def _check_lost(
    context: Context, findings: Findings, table: LoggedTable, missing: Sequence[tuple[int, str]], since: int
) -> Work[None]:
    for at in range(0, len(missing), _PAGE):
        lost_records = yield from read(context, partial(_lost_records, missing=missing[at : at + _PAGE]))
        yield from row_check.report_lost(context, table, lost_records, findings, since=since)


_TEXT = sql("SELECT leaf FROM log_leaves WHERE idx = :idx")
_NEWEST = sql(
    "SELECT leaf FROM log_leaves WHERE id = :handle ORDER BY ver DESC LIMIT 1",
    # There a tombstone may wait for the sequencer.
    postgres="SELECT w.leaf FROM (SELECT ver, leaf FROM log_leaves WHERE id = :handle"
    " UNION ALL SELECT ver, leaf FROM log_pending WHERE id = :handle) w ORDER BY w.ver DESC LIMIT 1",
)


def _lost_records(tx: Tx, missing: Sequence[tuple[int, str]]) -> list[LostRecord]:
    entries = ((index, handle, tx.one(_TEXT, idx=index), tx.one(_NEWEST, handle=handle)) for index, handle in missing)
    return [LostRecord(index, handle, *text, *newest) for index, handle, text, newest in entries if text and newest]
