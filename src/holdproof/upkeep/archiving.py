"""Archive a month of records: into a folder that an outsider can check, under one entry, and then out of the store.

Rules:
- Nothing is removed before the archive lies where it is to lie, was read back and checked, and has its entry.
- An archive is there as a whole or not: a folder gets its name, and a bucket the manifest, last.
- A month that a floor keeps is refused; what a hold names stays in the store, and is not archived.
- A record that does not match its entry is not archived, and nothing is.
- One entry names an archive of up to 250,000 records; a month with more has several. Entries and tree stay.
- Killed between the entry and the removal, records are in both; the next run archives those once more.
- Where the month is a partition of PostgreSQL, of which nothing stays, it is dropped as a whole by a login that may.
"""

import hashlib
import json
import os
from array import array
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Final, NamedTuple

from holdproof import folders, validation
from holdproof.content import disk, parquet
from holdproof.crypto import canonical
from holdproof.db import Call, Read, Row, Tx, Work, Write, ask, partitioned_schema, sql
from holdproof.errors import HoldproofError, InvalidInputError, ProofError, RetentionHeldError, TamperedError
from holdproof.evidence import archives, log, logged_tables, retention_rules, tree, trust
from holdproof.evidence.logged_tables import COLUMNS, logged_row
from holdproof.model.namespaces import EVERY, MAIN
from holdproof.model.progress import Progress
from holdproof.model.retention import MonthArchive, MonthArchived
from holdproof.model.times import month_bounds
from holdproof.store.context import Context
from holdproof.upkeep import kernel_tables
from holdproof.upkeep.backups import bucket_places
from holdproof.upkeep.backups.backup_list import no_progress
from holdproof.upkeep.verification import archive_check
from holdproof.upkeep.verification.archive_check import HEAD, MANIFEST, PAYLOAD_TYPE, PROOF, RECORDS, TRUST
from holdproof.upkeep.verification.row_check import judge

_PAGE: Final = 200
_GROUP: Final = 5_000
"""How many rows a group of the Parquet file has at least, but for the last."""
_GROUP_BYTES: Final = 8 << 20
_REMOVED: Final = 5_000
"""How many rows a transaction removes."""

_TABLE: Final = kernel_tables.LOGGED[archives.TABLES["audit"]]
_OF_MONTH: Final = (
    "FROM decision_audit_events t JOIN decision_flows f ON f.dfid = t.dfid AND f.ns = t.ns"
    " WHERE t.created_at >= :start AND t.created_at < :end"
)
_HELD: Final = retention_rules.HELD.format(flow="f")
_BOUNDS = sql("SELECT min(id), max(id) FROM decision_audit_events WHERE created_at >= :start AND created_at < :end")
_COUNT_DUE = sql(f"SELECT count(*) {_OF_MONTH} AND NOT{_HELD}")
_COUNT_HELD = sql(f"SELECT count(*) {_OF_MONTH} AND{_HELD}")
_IDS = sql(
    f"SELECT t.id {_OF_MONTH} AND t.id > :after AND t.id <= :last AND NOT{_HELD} AND EXISTS (SELECT 1 FROM log_leaves l"  # noqa: S608
    " WHERE l.id = t.leaf_id AND l.ver = t.leaf_ver AND l.idx < :size) ORDER BY t.id LIMIT :limit"
)
_LISTED: Final = "IN (SELECT value FROM json_each(:ids))"
_LISTED_POSTGRES: Final = (
    "= ANY (ARRAY(SELECT CAST(value AS BIGINT) FROM json_array_elements_text(CAST(:ids AS JSON))))"
)
_SELECTED = logged_tables.selecting(_TABLE, "id", f"t.id {_LISTED}", f"t.id {_LISTED_POSTGRES}")
_ALL_HELD: Final = (
    "SELECT 1 FROM retention_rules h WHERE h.kind = 'hold' AND h.scope = 'everything' AND h.lifted_at IS NULL"
)
_EVERYTHING_HELD = sql(f"{_ALL_HELD} LIMIT 1")
_NOT_HELD: Final = (
    f" AND NOT EXISTS ({_ALL_HELD}) AND NOT EXISTS (SELECT 1 FROM decision_flows f"  # noqa: S608
    f" WHERE f.dfid = decision_audit_events.dfid AND f.ns = decision_audit_events.ns AND{_HELD})"
)
_REMOVE = sql(
    f"DELETE FROM decision_audit_events WHERE id {_LISTED}{_NOT_HELD}",  # noqa: S608
    postgres=f"DELETE FROM decision_audit_events WHERE id {_LISTED_POSTGRES}{_NOT_HELD}",  # noqa: S608
)


class _Scope(NamedTuple):
    """A month whose records may be archived: its bounds, and what is in it."""

    start: str
    end: str
    first: int | None
    last: int | None
    size: int
    head: str
    due: int
    under_hold: int


@dataclass(slots=True)
class _Selection:
    """The records that were written into an archive: their numbers, and where their entries stand."""

    ids: "array[int]" = field(default_factory=lambda: array("q"))
    indexes: "array[int]" = field(default_factory=lambda: array("q"))


def archive(
    context: Context,
    what: str = "audit",
    *,
    month: str,
    to: str | os.PathLike[str],
    who: str = "operator",
    dry_run: bool = False,
    progress: Progress | None = None,
) -> Work[MonthArchived]:
    """Write the records of a month that has ended into a folder or s3://bucket/folder, check them, and remove them.

    Of every namespace. Entries stay in the log, and one names each archive; what is under a legal hold stays too.
    """
    validation.name("who", who)
    validation.one_of("what", what, archives.TABLES)
    tell = progress or no_progress
    scope: _Scope = yield from ask(Read(partial(_scope, what=what, month=month)))
    if dry_run:
        return MonthArchived(what, month, dry_run, scope.due, scope.under_hold, [], dropped=False)
    written: list[MonthArchive] = []
    selections: list[_Selection] = []
    after = None if scope.first is None else scope.first - 1
    while after is not None:
        part, selection = yield from _archive_some(context, what, month, scope, after=after, to=to, who=who, tell=tell)
        if part is None:
            break
        written.append(part)
        selections.append(selection)
        after = selection.ids[-1] if len(selection.ids) == archive_check.MOST else None
    ids = array("q", chain.from_iterable(selection.ids for selection in selections))
    dropped = bool(ids) and (yield from ask(Write(partial(_drop, scope=scope, ids=ids))))
    removed = len(ids) if dropped else 0
    for selection in () if dropped else selections:
        removed += yield from _remove(selection, tell)
    rest = yield from ask(Read(partial(_scope, what=what, month=month)))
    return MonthArchived(what, month, dry_run, removed, rest.under_hold, written, dropped)


def _scope(tx: Tx, *, what: str, month: str) -> _Scope:
    """Return what is in a month; RetentionHeldError where a rule keeps it, InvalidInputError before it has ended."""
    start, end = month_bounds(month)
    if end > tx.now:
        raise InvalidInputError(
            f"{month} has not ended: only a month that nothing is added to is archived", month=month
        )
    _check_rules(tx, what, month, end)
    [(first, last)] = tx.all(_BOUNDS, start=start, end=end)
    [(due,)] = tx.all(_COUNT_DUE, start=start, end=end)
    [(under_hold,)] = tx.all(_COUNT_HELD, start=start, end=end)
    return _Scope(start, end, first, last, log.head(tx).checkpoint.size, tree.state(tx).head, due, under_hold)


def _check_rules(tx: Tx, what: str, month: str, end: str) -> None:
    # A month has the records of every namespace: the rules of each count.
    spaces = {MAIN, *(rule.ns for rule in retention_rules.every(tx, all=False, ns=EVERY))}
    for ns in sorted(spaces):
        rules = retention_rules.check_everything(tx, ns=ns)
        before = retention_rules.earliest(tx, what, rules)
        if before is not None and end > before:
            days = rules.floor_days(what)
            raise RetentionHeldError(
                f"a retention floor keeps {what} for {days} days: {month} is younger", what=what, month=month
            )


# --- one archive -------------------------------------------------------------------------------------------------


def _archive_some(
    context: Context,
    what: str,
    month: str,
    scope: _Scope,
    *,
    after: int,
    to: str | os.PathLike[str],
    who: str,
    tell: Progress,
) -> Work[tuple[MonthArchive | None, _Selection]]:
    """Write, check and record one archive; None where nothing is left to be archived."""
    id, now = yield from ask(Read(lambda tx: (tx.new_id(), tx.now)))
    place = _Place.named(context, to, f"{what}-{month}-{id}")
    selection = _Selection()
    facts: dict[str, canonical.Json] = {
        "v": 1,
        "what": what,
        "table": _TABLE.table,
        "month": month,
        "size": scope.size,
        "made_at": now,
    }
    try:
        yield from ask(Call(partial(_write_records, place.staging, _rows(context, scope, after, selection, tell))))
        if not selection.ids:
            return None, selection
        yield from ask(Call(partial(_write_proof, context, place.staging, scope, selection)))
        # After the head: it must not be older than that.
        signed = yield from trust.trust(context)
        yield from ask(Call(partial(_add, place.staging, TRUST, signed.text.encode())))
        facts |= {"count": len(selection.ids), "files": _files(place.staging)}
        document = yield from trust.sign_document(
            context, "archive", PAYLOAD_TYPE, lambda _: canonical.dumps({**facts, "origin": _origin(scope)})
        )
        yield from ask(Call(partial(_add, place.staging, MANIFEST, document.text.encode())))
        tell(f"checking {month}", 0, 0)
        yield from ask(Call(partial(_check, place.staging)))
        yield from ask(Call(partial(place.settle, tell)))
    finally:
        # Here and not in a thread: a generator that is closed may not ask for anything more.
        place.clear()
    digest = hashlib.sha256(document.text.encode()).hexdigest()
    archive = MonthArchive(id, what, month, len(selection.ids), place.name, digest, who, now)
    yield from ask(Write(partial(_record, archive=archive, indexes=sorted(selection.indexes), end=scope.end)))
    return archive, selection


def _origin(scope: _Scope) -> str:
    origin, _, _ = scope.head.partition("\n")
    return origin


def _record(tx: Tx, *, archive: MonthArchive, indexes: Sequence[int], end: str) -> None:
    # A rule may have come while the archive was written.
    _check_rules(tx, archive.what, archive.month, end)
    archives.record(tx, archive, indexes)


def _write_records(folder: Path, rows: Iterator[list[Any]]) -> None:
    """Write `records.parquet`, all of it or nothing."""
    with disk.translated(folder):
        folders.make(folder)
        disk.deliver(folder / RECORDS, parquet.write(archive_check.columns(_TABLE), _groups(rows), name="archive"))
        _sync_file(folder / RECORDS)


def _rows(context: Context, scope: _Scope, after: int, selection: _Selection, tell: Progress) -> Iterator[list[Any]]:
    """Yield the next records as rows of the file, and note which they are."""
    while len(selection.ids) < archive_check.MOST:
        limit = min(_PAGE, archive_check.MOST - len(selection.ids))
        page = context.database.read(partial(_read_page, scope=scope, after=after, limit=limit)).result()
        for row in page:
            logged = logged_row(row)
            selection.ids.append(logged.key)
            assert logged.leaf_index is not None, "only what is under the head was selected"
            selection.indexes.append(logged.leaf_index)
            yield [logged.leaf_index, logged.leaf, bytes(logged.leaf_salt).hex(), *row[COLUMNS:]]
        tell("records", len(selection.ids), scope.due)
        if len(page) < limit:
            return
        after = selection.ids[-1]


def _read_page(tx: Tx, *, scope: _Scope, after: int, limit: int) -> list[Row]:
    bounds = {"start": scope.start, "end": scope.end, "after": after, "last": scope.last, "size": scope.size}
    ids = [id for (id,) in tx.all(_IDS, limit=limit, **bounds)]
    rows = tx.all(_SELECTED, ids=json.dumps(ids))
    for row in rows:
        finding = judge(_TABLE, row)
        if finding is not None:
            raise TamperedError(
                f"{_TABLE.table} {logged_row(row).key}: {finding.what}; nothing was archived: run `holdproof verify`",
                table=_TABLE.table,
                row=str(logged_row(row).key),
            )
    return rows


def _groups(rows: Iterator[list[Any]]) -> Iterator[list[list[Any]]]:
    group: list[list[Any]] = []
    size = 0
    for row in rows:
        group.append(row)
        size += sum(len(each) for each in row if isinstance(each, str))
        if len(group) == _GROUP or size >= _GROUP_BYTES:
            yield group
            group = []
            size = 0
    yield group


def _write_proof(context: Context, folder: Path, scope: _Scope, selection: _Selection) -> None:
    indexes = sorted(selection.indexes)
    hashes = context.database.read(lambda tx: tree.prove_many(tx, indexes, scope.size)).result()
    _add(folder, PROOF, b"".join(hashes))
    _add(folder, HEAD, scope.head.encode())


def _add(folder: Path, name: str, data: bytes) -> None:
    with disk.translated(folder):
        disk.write(folder / name, data)


def _sync_file(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _files(folder: Path) -> dict[str, canonical.Json]:
    files: dict[str, canonical.Json] = {}
    for name in archive_check.FILES:
        digest, size = archive_check.file_digest(folder / name)
        files[name] = {"sha256": digest, "bytes": size}
    return files


def _check(folder: Path) -> None:
    """Raise ProofError unless the archive proves what it is to prove, read back from the disk."""
    report = archive_check.check(folder)
    for finding in report.findings:
        raise ProofError(f"the archive does not hold, and nothing was removed: {finding.what}", path=str(folder))


# --- where it goes -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Place:
    """Where an archive is made, and where it goes from there."""

    name: str
    staging: Path
    target: Path | None
    bucket: "bucket_places.BucketPlace | None"

    @classmethod
    def named(cls, context: Context, to: str | os.PathLike[str], name: str) -> "_Place":
        """Return the place of an archive of that name in a folder, or in s3://bucket/folder."""
        bucket = bucket_places.opened(to)
        if bucket is None:
            target = Path(to).expanduser().absolute() / name
            # Beside its place, so that the last step is a rename.
            return cls(str(target), target.with_name(f".{name}.partial"), target, None)
        child = bucket.child(name)
        return cls(child.url, context.paths.cache / "archives" / name, None, child)

    def settle(self, tell: Progress) -> None:
        """Put the finished archive where it belongs; read back what a bucket has of it."""
        if self.target is not None:
            with disk.translated(self.target):
                folders.sync(self.staging)
                os.replace(self.staging, self.target)
                folders.sync(self.target.parent)
            return
        assert self.bucket is not None, "an archive goes into a folder or into a bucket"
        try:
            self._send(self.bucket, tell)
        except BaseException:
            with suppress(HoldproofError):
                self.bucket.bucket.remove_below(self.bucket.path)
            raise

    def _send(self, place: "bucket_places.BucketPlace", tell: Progress) -> None:
        # The manifest last: without it nothing takes the rest for an archive.
        for name in (*archive_check.FILES, MANIFEST):
            sent = place.bucket.send(self.staging / name, place.name_of(name), tell)
            if place.bucket.entry(place.name_of(name), sent.size, tell) != sent:
                raise ProofError(f"{self.name}/{name} is not what was sent: nothing was removed", path=self.name)

    def clear(self) -> None:
        """Remove what is left of the work; what reached its place stays."""
        if self.staging.is_dir():
            disk.remove_tree(self.staging)


# --- removing ----------------------------------------------------------------------------------------------------


_PARTITION = sql(
    "SELECT :name WHERE 1 = 0",
    # Only whoever owns the table may drop a part of it; others remove the rows.
    postgres="SELECT c.relname FROM pg_class c JOIN pg_inherits i ON i.inhrelid = c.oid JOIN pg_class p"
    " ON p.oid = i.inhparent WHERE p.oid = to_regclass('decision_audit_events') AND c.relname = :name"
    " AND pg_has_role(current_user, p.relowner, 'USAGE') AND pg_has_role(current_user, c.relowner, 'USAGE')",
)
_ALL_IDS = sql(
    "SELECT id FROM decision_audit_events WHERE created_at >= :start AND created_at < :end AND id > :after"
    " ORDER BY id LIMIT :limit"
)
_MANY: Final = 50_000


def _drop(tx: Tx, *, scope: _Scope, ids: "array[int]") -> bool:
    """Drop the partition of a month if all that is in it was archived and nothing is held; whether it was."""
    partition = partitioned_schema.month_name(datetime.fromisoformat(scope.start))
    if tx.one(_PARTITION, name=partition) is None:
        return False
    # Nobody adds to the month from here on, and others go on reading it.
    tx.script(f"LOCK TABLE {partition} IN SHARE MODE")
    [(under_hold,)] = tx.all(_COUNT_HELD, start=scope.start, end=scope.end)
    if under_hold or tx.one(_EVERYTHING_HELD) is not None or not _has_only(tx, scope, ids):
        return False
    # A partition's foreign key ends with it: in the order in which everybody locks the two.
    tx.script("LOCK TABLE decision_flows IN ACCESS EXCLUSIVE MODE")
    tx.script(f"ALTER TABLE {partitioned_schema.TABLE} DETACH PARTITION {partition}; DROP TABLE {partition}")
    return True


def _has_only(tx: Tx, scope: _Scope, ids: "array[int]") -> bool:
    """Whether every record of the month is one of these, which are ascending."""
    after = scope.first - 1 if scope.first is not None else 0
    archived = iter(ids)
    while page := tx.all(_ALL_IDS, start=scope.start, end=scope.end, after=after, limit=_MANY):
        # One pass over both: `in` takes from the iterator until it meets the number.
        if not all(id in archived for (id,) in page):
            return False
        [after] = page[-1]
    return True


def _remove(selection: _Selection, tell: Progress) -> Work[int]:
    """Remove the rows of an archive that is recorded, unless a hold came meanwhile; return how many went."""
    removed = 0
    for at in range(0, len(selection.ids), _REMOVED):
        ids = json.dumps(selection.ids[at : at + _REMOVED].tolist())
        removed += yield from ask(Write(partial(_remove_some, ids=ids)))
        tell("removed", removed, len(selection.ids))
    return removed


def _remove_some(tx: Tx, *, ids: str) -> int:
    return tx.count(_REMOVE, ids=ids)
