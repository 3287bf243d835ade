"""Check every row against its leaf, and every leaf against its row.

Rules:
- A row matches the leaf it names: handle, version, type, projection and commitment.
- A row is the newest version of its record; an older one that was put back is found.
- A row that names no leaf is UNLOGGED; one that names a leaf the log does not have is TAMPERED.
- A leaf is filed under the record and version it names, or a newer one could be hidden and an older row put back.
- A record in the log has its row, or its newest leaf, a later one than its first, is an erasure and a row of `erasures`
  names its handle, or a pruning does. A record that a pruning names has no row: one that was put back is found.
- A record in an archive of retention may have a row or none: it counts on neither side of the sums.
- Memory is bounded: rows and leaves are read in pages limited by rows and bytes. Whether each record has its row is
  decided by two sums over handles; only where they differ are the missing ones searched one by one.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import partial
from hashlib import sha256
from itertools import pairwise
from typing import Final, NamedTuple

from holdproof.db import Row, Tx, Work, sql
from holdproof.evidence import archives, erasures, leaves, logged_tables, prunings, tree
from holdproof.evidence.archives import ArchivedRecords
from holdproof.evidence.logged_tables import LoggedTable, Place
from holdproof.model.verdicts import Verdict
from holdproof.model.verify import Finding
from holdproof.upkeep import kernel_tables
from holdproof.upkeep.verification.findings import EXPLAIN, RESTORE, WAIT, Findings, HasDatabase, read

_PAGE: Final = 500
_PAGE_BYTES: Final = 16 << 20
_LEAVES: Final = 2_000
_RANGE: Final = 100_000
_MODULUS: Final = 1 << 256
_TABLE: Final = re.compile(r'"p":"([^"/]+)/')
_ERASURE: Final = '"t":"erasure"'
NO_LEAF: Final = (Verdict.UNLOGGED, "the row has no leaf: it was not written through Holdproof")
UNKNOWN_LEAF: Final = (Verdict.TAMPERED, "the row names a leaf that the log does not have")


def check(context: HasDatabase, findings: Findings) -> Work[None]:
    """Walk every logged table, then the log, and compare."""
    # The size is read first: records appended meanwhile count on neither side.
    size = (yield from read(context, tree.state)).size
    # Archives too: a record that one names meanwhile still had its row, or is looked for by name.
    archived = yield from read(context, archives.archived)
    sums: dict[str, int] = {}
    for table in kernel_tables.LOGGED.values():
        sums[table.table] = yield from _walk_table(context, table, size, archived, findings)
    pruned = yield from _walk_prunings(context, findings)
    logged = yield from _walk_log(context, size, archived, findings)
    for table in kernel_tables.LOGGED.values():
        if (sums[table.table] + pruned[table.table]) % _MODULUS != logged.sums[table.table]:
            yield from _name_lost(context, table, logged.starts, findings)
            yield from _name_returned(context, table, findings)
    for name in sorted(logged.sums.keys() - sums.keys()):
        findings.skip(
            f"{findings.checked[f'leaves of {name}']} leaves speak of {name}, a table this version does not walk"
        )


class _Page(NamedTuple):
    """A page of rows, checked."""

    width: int
    last: Place
    is_last: bool
    total: int
    findings: list[Finding]


def _walk_table(
    context: HasDatabase, table: LoggedTable, size: int, archived: ArchivedRecords, findings: Findings
) -> Work[int]:
    """Check every row; return the sum over the handles of records that the log had at the start."""
    total = 0
    after = table.start
    # Keys that sort before the first one would be skipped by the walk.
    for (key,) in (yield from read(context, lambda tx: tx.all(table.strays, first=table.first))):
        what = "the row has a key that Holdproof never gives: it was added"
        findings.add(Finding(Verdict.TAMPERED, what, EXPLAIN, table=table.table, row=str(key)))
    while True:
        page = yield from read(context, partial(_judge_page, table=table, after=after, size=size, archived=archived))
        for finding in page.findings:
            findings.add(finding)
        total += page.total
        findings.checked[table.table] += page.width
        findings.tell(f"rows of {table.table}", findings.checked[table.table])
        if page.is_last:
            return total % _MODULUS
        after = page.last


def _judge_page(tx: Tx, table: LoggedTable, after: Place, size: int, archived: ArchivedRecords) -> _Page:
    """Check a page of rows; on the reader's thread, so that hashing does not block an event loop."""
    limit = page_size(tx, table, after, _PAGE)
    rows = tx.all(table.rows, **table.page(after, limit))
    wrong = [finding for row in rows if (finding := judge(table, row)) is not None]
    logged = [logged_tables.logged_row(row) for row in rows]
    # Records that began after `size` was read are left to the next run: the walk over the log does not meet them.
    begun_before = (each for each in logged if each.first_index is not None and each.first_index < size)
    total = sum(_number(each.leaf_id) for each in begun_before if not archived.has(table.table, each.first_index))
    return _Page(len(rows), table.place(rows[-1]) if rows else after, len(rows) < limit, total, wrong)


def page_size(tx: Tx, table: LoggedTable, after: Place, most: int) -> int:
    """Return how many rows to read as a page: at most `most`, and at least one however large it is."""
    total = 0
    for count, (size,) in enumerate(tx.all(table.sizes, **table.page(after, most))):
        total += size
        if total > _PAGE_BYTES:
            return max(1, count)
    return most


def judge(table: LoggedTable, row: Row) -> Finding | None:
    """Return the finding about a row; None if it matches its leaf."""
    logged = logged_tables.logged_row(row)

    def finding(verdict: Verdict, what: str, remedy: str = EXPLAIN) -> Finding:
        return Finding(verdict, what, remedy, table=table.table, row=str(table.place(row)))

    if logged.leaf_id is None:
        return finding(*NO_LEAF)
    if logged.leaf is None:
        return finding(*UNKNOWN_LEAF)
    problem = logged_tables.mismatch(table, row)
    if problem:
        return finding(Verdict.TAMPERED, problem, RESTORE)
    if logged.newest is not None and logged.newest > logged.leaf_ver:
        what = f"version {logged.leaf_ver} of the row was put back; the log has {logged.newest}"
        return finding(Verdict.TAMPERED, what, RESTORE)
    if logged.leaf_index is None:
        return finding(Verdict.PENDING, "committed, not yet under a signed head", WAIT)
    return None


def _walk_prunings(context: HasDatabase, findings: Findings) -> Work[dict[str, int]]:
    """Return the sum over the handles of records that retention removed, by table."""
    sums: dict[str, int] = defaultdict(int)
    after: str | None = ""
    while after is not None:
        page, after = yield from read(context, partial(prunings.pruned, after=after))
        for name, handles in page.items():
            sums[name] += sum(map(_number, handles))
            findings.checked["pruned"] += len(handles)
    return sums


class _Logged(NamedTuple):
    """The sums over the handles of the records in the log by table, and indexes that divide the log into ranges."""

    sums: dict[str, int]
    starts: list[int]


def _walk_log(context: HasDatabase, size: int, archived: ArchivedRecords, findings: Findings) -> Work[_Logged]:
    """Walk the leaves that exist; a forged size cannot make it walk for ever."""
    sums: dict[str, int] = defaultdict(int)
    counts: Counter[str] = Counter()
    start = 0
    starts = [0]
    while start < size:
        page = yield from read(context, partial(_read_leaves, start=start, end=size, archived=archived))
        for index in page.misfiled:
            what = "the leaf is filed under another record or version than its own: the log was edited"
            findings.add(Finding(Verdict.TAMPERED, what, RESTORE, table="log", row=str(index)))
        # Indexes are dense, so fewer rows than indexes means missing leaves.
        if page.width < page.end - start:
            what = f"leaves are missing between {start} and {page.end}: {page.width} of {page.end - start} are there"
            findings.add(Finding(Verdict.TAMPERED, what, RESTORE, table="log", row=str(start)))
        if page.archived:
            findings.checked["archived"] += page.archived
        for name, numbers in page.handles.items():
            sums[name] += sum(numbers)
            counts[name] += len(numbers)
        start = page.end
        findings.checked["leaves"] += page.width
        if findings.checked["leaves"] >= len(starts) * _RANGE:
            starts.append(start)
        findings.tell("leaves", start, size)
    for name in counts.keys() - kernel_tables.LOGGED.keys():
        findings.checked[f"leaves of {name}"] = counts[name]
    return _Logged(defaultdict(int, {name: total % _MODULUS for name, total in sums.items()}), [*starts, size])


class _Leaves(NamedTuple):
    """A page of leaves: how many, where the next page begins, and by table the number of each record's first leaf.

    `archived` is how many records in archives begin there: they are not among the numbers.
    """

    width: int
    end: int
    handles: dict[str, list[int]]
    misfiled: list[int]
    archived: int


_PAGE_OF_LEAVES = sql(
    "SELECT idx, id, ver, leaf FROM log_leaves WHERE idx >= :start AND idx < :end ORDER BY idx LIMIT :limit"
)


def _read_leaves(tx: Tx, start: int, end: int, archived: ArchivedRecords) -> _Leaves:
    page = tx.all(_PAGE_OF_LEAVES, start=start, end=end, limit=_LEAVES)
    handles: dict[str, list[int]] = defaultdict(list)
    misfiled = []
    away = 0
    for index, handle, version, text in page:
        if not leaves.is_filed(text, handle, version):
            misfiled.append(index)
        elif version == 1:
            table = table_of(text) or "?"
            if archived.has(table, index):
                away += 1
            else:
                handles[table].append(_number(handle))
    end = page[-1][0] + 1 if len(page) == _LEAVES else end
    return _Leaves(len(page), end, handles, misfiled, away)


def _name_lost(context: HasDatabase, table: LoggedTable, starts: list[int], findings: Findings) -> Work[None]:
    """Report the records of a table that have no row, unless they were erased, pruned or archived."""
    like = f'%"p":"{table.table}/%'
    for start, end in pairwise(starts):
        rows = yield from read(context, lambda tx: tx.all(table.missing, start=start, end=end, like=like))  # noqa: B023
        yield from report_lost(context, table, [LostRecord(*row) for row in rows], findings)
        findings.tell(f"records of {table.table}", end, starts[-1])


class LostRecord(NamedTuple):
    """A leaf whose record has no row: where it stands, and the newest leaf of the record."""

    at: int
    handle: str
    text: str
    newest: str


def report_lost(
    context: HasDatabase, table: LoggedTable, records: Sequence[LostRecord], findings: Findings, *, since: int = 0
) -> Work[None]:
    """Report the records of a table that have no row, unless they were erased, pruned or archived since an entry."""
    archived = yield from read(context, partial(archives.archived, since=since))
    records = [each for each in records if not archived.has(table.table, each.at)]
    handles = {each.handle for each in records}
    pruned = yield from read(context, partial(prunings.among, table=table.table, handles=handles, since=since))
    erased = yield from read(context, partial(erasures.among, handles=handles, since=since))
    for index, handle, text, newest in records:
        if table_of(text) != table.table or handle in pruned:
            continue
        tombstone = _ERASURE in newest and newest != text  # an erasure's own first leaf is no tombstone
        if tombstone and handle in erased:
            findings.checked["erased"] += 1
            continue
        why = " and an erasure put into the log for it, which none of the store's names" if tombstone else ""
        what = f"leaf {index} has no row: the record {handle} was deleted{why}"
        findings.add(Finding(Verdict.TAMPERED, what, RESTORE, table=table.table, row=handle))


def table_of(text: str) -> str:
    """Return the table that a leaf speaks of; empty where it does not say."""
    named = _TABLE.search(text)
    return named[1] if named else ""


def _name_returned(context: HasDatabase, table: LoggedTable, findings: Findings) -> Work[None]:
    """Report the rows of a table that retention removed and somebody inserted again."""
    after: str | None = ""
    while after is not None:
        rows, after = yield from read(context, partial(_returned, table=table, after=after))
        for key in rows:
            what = "the record was pruned, and its row was put back"
            findings.add(Finding(Verdict.TAMPERED, what, EXPLAIN, table=table.table, row=key))


def _returned(tx: Tx, table: LoggedTable, after: str) -> tuple[list[str], str | None]:
    page, following = prunings.pruned(tx, after)
    rows = (tx.one(table.key_of, handle=handle) for handle in page.get(table.table, ()))
    return [key for row in rows if row is not None for (key,) in (row,)], following


def _number(handle: str) -> int:
    # A hash, so that a forger cannot choose handles whose sum hides a missing one.
    return int.from_bytes(sha256(handle.encode()).digest(), "big")
