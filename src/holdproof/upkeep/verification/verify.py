"""Verify a store: its rows against its log, the log against its heads, the heads against those kept outside.

Rules:
- In this order: the database's own integrity check (a forged index could mislead every later check), the schema, the
  log and its heads, every row against its leaf and back, memory block by block, DBOMs against rows, files and keys, and
  last the application stores.
- The overall verdict is the worst one; every finding names file, table, row and what to do.
- `full` recomputes the whole tree from its leaves; without it leaf and tree are compared by size, frontier and head
  only, and the report says so: a leaf edited together with its row is found by `full`.
- `since_last` reads what was written since the newest verification on record that found nothing, of everything or of
  such a part: its cost follows what is new. The report says what it believed. Without one everything is read.
- A page that another SQLite program wrote is FOREIGN_WRITER: the checks that follow tell whether its content is right.
- A promised check that could not be run is INCOMPLETE, never VALID.
- Damage ends one check, never the run; a table that cannot be read counts as tampered with.
- With `lock`, which servers and schedules set, TAMPERED or worse locks the store, unless it is only in the application
  stores; and deleted DBOM files are written again from their rows. Without it nothing is changed.
- Memory is bounded, and writers are not blocked.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from holdproof.config import Paths
from holdproof.db import MEMORY, Call, Work, Write, ask, call
from holdproof.db.sqlite import check_file, check_structure, foreign_pages, is_tolerated, read_foreign_pages
from holdproof.errors import (
    CorruptError,
    ExpectationError,
    ForeignFileError,
    FormatError,
    HoldproofError,
    InvalidInputError,
    NotFoundError,
    QueryError,
    RevokedKeyError,
    TamperedError,
)
from holdproof.evidence import audit as audits
from holdproof.evidence import (
    erasures,
    keys,
    log,
    restores,
    retention_rules,
    tenant_limits,
    tree,
    verifications,
    witness_client,
    witness_disputes,
)
from holdproof.evidence.heads import HeadFile
from holdproof.evidence.key_files import own_keys
from holdproof.evidence.verifications import Verified
from holdproof.memory.skills import skills
from holdproof.model.progress import Progress
from holdproof.model.verdicts import Verdict
from holdproof.model.verify import Finding, Report
from holdproof.runtime import checks as flow_checks
from holdproof.store.context import Context
from holdproof.upkeep import kernel_tables, lockdown
from holdproof.upkeep.verification import (
    anchor_check,
    content_check,
    dbom_check,
    log_check,
    number_check,
    recent_check,
    row_check,
    schema_check,
    time_check,
    trusted_keys,
)
from holdproof.upkeep.verification.findings import EXPLAIN, RESTORE, WAIT, Findings, foreign_writer, on_reader, read
from holdproof.urls import redact

_BROKEN: Final = (CorruptError, QueryError, FormatError, NotFoundError, ExpectationError)
_ODD: Final = (AttributeError, KeyError, TypeError, ValueError)
"""What reading a value of an unexpected type raises; SQLite stores any type in any column."""
_WHY: Final[dict[type, str]] = {CorruptError: "a page is damaged", QueryError: "a table or column is missing"}
_logger = logging.getLogger("holdproof")


def run(
    context: Context,
    *,
    full: bool = False,
    since_last: bool = False,
    lock: bool = False,
    who: str = "operator",
    progress: Progress | None = None,
) -> Work[Report]:
    """Verify the store, and record the report in the log; with `lock` tampering locks it, and files that can be
    written again are.

    `full` recomputes the whole tree from its leaves; `since_last` checks what was written since the newest
    verification on record that found nothing, and everything in full where there is none. Findings are in the report,
    never raised.
    """
    return (yield from check(context, full=full, since_last=since_last, lock=lock, who=who, progress=progress))


def check(
    context: Context,
    *,
    full: bool = False,
    since_last: bool = False,
    lock: bool = False,
    who: str | None = None,
    progress: Progress | None = None,
) -> Work[Report]:
    """Do what `run` does; without `who` nothing is recorded."""
    if full and since_last:
        raise InvalidInputError("everything in full, or what is new since the last time: one of the two")
    findings = Findings(progress)
    verified = (yield from _last(context)) if since_last else None
    if verified is not None:
        mode = verifications.SINCE
        checks = _checks_since(context, findings, verified, repair=lock)
    else:
        mode = verifications.FULL if full or since_last else verifications.FAST
        checks = _checks(context, findings, mode == verifications.FULL, repair=lock)
    yield from _run_checks(context, findings, checks)
    report = findings.report(mode)
    if who is not None:
        report = yield from _record(report, who)
    if lock and report.locks:
        locked = yield from lockdown.respond(context, report)
        report = replace(report, locked=locked.id)
    return report


def _last(context: Context) -> Work[Verified | None]:
    """Return the verification to continue; None where there is none, or none that can be believed.

    While the store is locked there is none: what was found may stand in no report, where the log itself is in doubt.
    """
    if (yield from lockdown.status(context)) is not None:
        return None
    try:
        return (yield from read(context, verifications.to_continue))
    except (*_BROKEN, TamperedError):
        return None


def _record(report: Report, who: str) -> Work[Report]:
    """Record a report; return it, with a word about it where that is impossible."""
    # A doubtful log must not grow: a head over it would sign what somebody put there.
    if lockdown.in_doubt(report):
        return _unrecorded(report, "the log itself is in doubt")
    try:
        logged = {*kernel_tables.LOGGED, lockdown.LOG}
        yield from ask(Write(partial(verifications.record, report=report, who=who, logged=logged)))
    except HoldproofError as error:
        return _unrecorded(report, error.message)
    return report


def _unrecorded(report: Report, why: str) -> Report:
    return replace(report, not_checked=[*report.not_checked, f"this verification has no entry in the log: {why}"])


def kernel(context: Context, *, progress: Progress | None = None) -> Work[Report]:
    """Verify a kernel that is not live yet, in full, without locking it and without the application stores."""
    findings = Findings(progress)
    checks = _checks(context, findings, True)
    yield from _run_checks(context, findings, [each for each in checks if each[0] not in _LIVE])
    return findings.report("kernel")


def _run_checks(
    context: Context, findings: Findings, checks: Sequence[tuple[str, Callable[[], Work[None]]]]
) -> Work[None]:
    for title, check in checks:
        findings.tell(title)
        try:
            yield from check()
        # InvalidInputError too: a check takes no input but what is stored.
        except (*_BROKEN, InvalidInputError, *_ODD) as error:
            cut = _unreadable(context, title, error)
            findings.add(cut)
            _logger.warning("verify: %s", cut.what, exc_info=isinstance(error, _ODD))


def _unreadable(context: Context, title: str, error: Exception) -> Finding:
    """Return the finding for a check that damage has ended."""
    why, tables = _why(error)
    what = f"{title}: cannot be read to the end ({why})"
    return Finding(Verdict.TAMPERED, what, RESTORE, file=_where(context), table=tables)


def _why(error: Exception) -> tuple[str, str]:
    """Return the reason and the tables; a failed query is named by its tables, not by its text."""
    tables = ", ".join(error.fields.get("tables", ())) if isinstance(error, HoldproofError) else ""
    return (_WHY.get(type(error), str(error)) if tables else str(error)), tables


def _checks(
    context: Context, findings: Findings, full: bool, *, repair: bool = False
) -> list[tuple[str, Callable[[], Work[None]]]]:
    if not full:
        findings.skip(
            "the tree was not recomputed from its leaves, nor their numbers, nor the text search from its words"
            " (--full does)"
        )
    return [
        ("database", partial(_database, context, findings)),
        ("schema", partial(schema_check.check, context, findings)),
        ("log", partial(_log, context, findings, full=full)),
        *([("numbers", partial(number_check.check, context, findings))] if full else []),
        ("rows", partial(row_check.check, context, findings)),
        ("keys", partial(_keys, context, findings)),
        ("flows", partial(_flows, context, findings)),
        ("skills", partial(_skills, context, findings)),
        ("erasures", partial(_erasures, context, findings)),
        ("retention rules", partial(_retention_rules, context, findings)),
        ("limits of namespaces", partial(_tenant_limits, context, findings)),
        ("time tokens", partial(time_check.check, context, findings, 0 if full else None)),
        ("anchors", partial(anchor_check.check, context, findings)),
        ("memory", partial(content_check.check_memory, context, findings, full)),
        ("DBOMs", partial(dbom_check.check, context, findings, repair=repair)),
        (_TRUST, partial(_trust, context, findings)),
        (_SERVICES, partial(content_check.check_services, context, findings)),
    ]


def _checks_since(
    context: Context, findings: Findings, verified: Verified, *, repair: bool
) -> list[tuple[str, Callable[[], Work[None]]]]:
    findings.skip(
        f"what was written before entry {verified.size}, of which the verification of {verified.at} found nothing"
        " wrong; memory block by block, application stores, numbers of entries, the text search, DBOM files of"
        " evaluations without a new entry, and the file's own structure (without --since-last)"
    )
    return [
        ("pages", partial(_foreign_pages, context, findings)),
        ("schema", partial(schema_check.check, context, findings)),
        ("log", partial(_log, context, findings, since=verified)),
        ("rows", partial(recent_check.check, context, findings, verified.size, repair=repair)),
        ("keys", partial(_keys, context, findings)),
        ("skills", partial(_skills, context, findings)),
        ("erasures", partial(_erasures, context, findings)),
        ("retention rules", partial(_retention_rules, context, findings)),
        ("limits of namespaces", partial(_tenant_limits, context, findings)),
        ("time tokens", partial(time_check.check, context, findings, verified.size)),
        ("anchors", partial(anchor_check.check, context, findings)),
        (_TRUST, partial(_trust, context, findings)),
    ]


_TRUST: Final = "trust"
_SERVICES: Final = "services"
_LIVE: Final = (_TRUST, _SERVICES)
"""Checks of a store in its home; a copy that is not live yet has neither."""


def is_foreign_writer(error: HoldproofError, target: str | Path) -> bool:
    """Whether a store does not open only because of pages that another program wrote; they are read from then on."""
    if not isinstance(error, CorruptError) or not isinstance(target, Path) or not target.exists():
        return False
    if is_tolerated(target) or check_structure(target) or not foreign_pages(target):
        return False
    read_foreign_pages(target)
    return True


def damaged(error: HoldproofError, paths: Paths, target: str | Path, *, lock: bool = False) -> Report:
    """Return the report on a database that cannot be opened; raises the error again if it is no damage.

    Where there has never been a store, a file that is no store is a wrong path and no tampering.
    """
    # A head file proves that a store was here once.
    was_store = paths.heads.exists()
    if not isinstance(error, _BROKEN) and not (was_store and isinstance(error, ForeignFileError)):
        raise error
    problems = check_file(target) if isinstance(target, Path) and target.exists() else []
    findings = Findings()
    findings.place = redact(str(target))
    why, tables = _why(error)
    for problem in problems or [f"the store cannot be opened: {why}"]:
        findings.add(Finding(Verdict.TAMPERED, problem, RESTORE, file=str(target), table="" if problems else tables))
    findings.skip("everything but the database file: it is damaged, so nothing in it was believed")
    report = findings.report("file")
    return replace(report, locked=lockdown.lock_unopened(paths, report).id) if lock else report


def _database(context: Context, findings: Findings) -> Work[None]:
    """Run the database's own check, and look for pages that another program wrote."""
    path = context.database.backend.facts().get("path")
    findings.place = str(path)
    if context.database.dialect == "postgres":
        problems: list[str] = yield from ask(Call(context.database.backend.check))
        findings.skip("the server's pages and indexes: PostgreSQL checks its own (data checksums, amcheck)")
    elif path == MEMORY:
        problems = []
    else:
        problems = yield from call(check_structure, Path(str(path)))
        yield from _foreign_pages(context, findings)
    for problem in problems:
        findings.add(Finding(Verdict.TAMPERED, f"integrity check: {problem}", RESTORE, file=_where(context)))


def _foreign_pages(context: Context, findings: Findings) -> Work[None]:
    """Look for pages of the database file that another program wrote."""
    path = context.database.backend.facts().get("path")
    findings.place = str(path)
    if context.database.dialect == "postgres" or path == MEMORY:
        return
    pages = yield from call(foreign_pages, Path(str(path)))
    if pages:
        findings.add(foreign_writer(pages, str(path)))
        # The checks that follow decide whether the content is right, so they have to read these pages.
        yield from call(read_foreign_pages, Path(str(path)))


def _log(context: Context, findings: Findings, *, full: bool = False, since: Verified | None = None) -> Work[None]:
    """Run the audit of the log: its heads, its keys, the kept heads; in full, or what is new, the tree itself."""
    audited = yield from audits.audit(
        context, full=full, since=since, progress=lambda done, total: findings.tell("log", done, total)
    )
    for flaw in audited.findings:
        row = "" if flaw.index is None else str(flaw.index)
        findings.add(
            Finding(flaw.verdict, flaw.what, _REMEDIES.get(flaw.verdict, RESTORE), table=lockdown.LOG, row=row)
        )
    findings.left_off += audited.left_off
    findings.checked["log size"] = audited.size
    findings.level = (yield from on_reader(context, witness_client.level(context))).text
    origin = (yield from read(context, log.head)).checkpoint.origin
    # The head that the audit saw, and not a newer one: who continues this report begins where it ended.
    findings.head = {"origin": origin, "size": audited.size, "root": audited.root}
    findings.since = yield from read(context, log_check.first_time)
    findings.trusted_by = yield from read(context, log_check.signers)
    yield from _identity(context, findings, log.generation(origin)[0])


def _identity(context: Context, findings: Findings, named: str) -> Work[None]:
    """Check that the store is the one that its log names, and did not replace another."""
    store_id = yield from read(context, log_check.store_id)
    if named != f"holdproof/{store_id}":
        what = f"the store calls itself {store_id}, its log is that of {named}"
        findings.add(Finding(Verdict.TAMPERED, what, EXPLAIN, table="store_facts", row="store_id"))
    if context.head_file is not None:
        yield from _check_head_file(context, context.head_file, findings, named)


def _trust(context: Context, findings: Findings) -> Work[None]:
    """Check that this home vouches for the store: a whole store made elsewhere is sound in itself."""
    head_file = context.head_file
    for dispute in (yield from read(context, witness_disputes.open_disputes)):
        verdict = Verdict[dispute.verdict]
        # Outside: a witness is somebody else, who locks a store only if it was added as one that may.
        outside = not dispute.locks
        findings.add(Finding(verdict, str(dispute), _REMEDIES[verdict], table="witness_disputes", outside=outside))
    for restore in (yield from read(context, restores.disagreeing)):
        what = "the restore does not agree with its own entry or with the head it trusts: it was made up"
        findings.add(Finding(Verdict.TAMPERED, what, EXPLAIN, table="restores", row=str(restore.n)))
    if head_file is None:
        return
    own, heads = yield from call(lambda: (own_keys(context.keys), head_file.kept_here()))
    name, is_ours = yield from read(
        context, lambda tx: (log.generation(tree.state(tx).origin)[0], trusted_keys.vouches(tx, own, heads))
    )
    # Whoever signed it: the keys of this home also sign for a new store in the place of one that was deleted.
    for what in (yield from call(head_file.replaced, name)):
        findings.add(Finding(Verdict.TAMPERED, what, _SUBSTITUTED, table=lockdown.LOG))
    if not is_ours and heads:
        what = f"the log of {name} is signed with a key that nothing in this home vouches for"
        findings.add(Finding(Verdict.TAMPERED, what, _SUBSTITUTED, table=lockdown.LOG))
    elif not is_ours:
        findings.skip("whether the log's keys are the right ones: this home sees the store for the first time")
    yield from _check_restores(context, head_file, findings)


def _check_restores(context: Context, head_file: HeadFile, findings: Findings) -> Work[None]:
    """Report restores that gave up heads of this home, and that it did not make."""
    heads, restored_here = yield from call(lambda: (head_file.largest(), head_file.restored_here()))
    reach = yield from read(context, lambda tx: restores.reach(tx, restored_here))
    for origin, size in reach.sizes.items():
        head = heads.get(origin)
        if size is None or head is None or head.checkpoint.size <= size or reach.gives_up(origin):
            continue
        what = f"a restore gave up the heads of {origin} after {size} that were kept here, and was not made here"
        findings.add(Finding(Verdict.ROLLED_BACK, what, _RESTORED, table="restores", row=str(reach.left_by[origin])))


_RESTORED: Final = (
    "find out who replaced the database by one that was copied or restored elsewhere, and restore the newest backup; if"
    " the restore was made on another machine of this store, `holdproof start-over --reason TEXT`"
)
_SUBSTITUTED: Final = (
    "keep both; find out who replaced the database; restore a backup of the store that was here; if it was replaced on"
    " purpose, `holdproof start-over --reason TEXT`"
)


def _check_head_file(context: Context, head_file: HeadFile, findings: Findings, named: str) -> Work[None]:
    """Report what is in the head file that this run could not compare."""
    heads, restored_here, unreadable = yield from call(
        lambda: (head_file.largest(), head_file.restored_here(), head_file.unreadable())
    )
    if others := sorted({log.generation(origin)[0] for origin in heads} - {named}):
        findings.skip(f"heads of other stores were kept here too ({', '.join(others)}): theirs is another database")
    largest = [*heads.values()]
    relevances = yield from read(context, lambda tx: log.relevances(tx, largest, restored_here))
    given_up = [each.checkpoint for each, counts in zip(largest, relevances, strict=True) if counts is None]
    for head in (each for each in given_up if log.generation(each.origin)[0] == named):
        findings.skip(f"heads of {head.origin} up to {head.size} leaves were kept, whose end a restore gave up")
    if unreadable:
        findings.skip(f"heads kept in {head_file.path}: {unreadable} of its lines torn or damaged")


def _keys(context: Context, findings: Findings) -> Work[None]:
    """Check that every key was admitted by a valid statement; a row and a leaf alone are not enough."""
    flawed: dict[str, str] = yield from read(context, keys.flaws)
    for keyid, why in flawed.items():
        findings.add(
            # Somebody with the log key can append any row and leaf; only a signed statement makes a key count.
            Finding(Verdict.TAMPERED, f"a key that nobody admitted: {why}", EXPLAIN, table="keyring", row=str(keyid))
        )


def _erasures(context: Context, findings: Findings) -> Work[None]:
    """Check that erasures still to be finished remove what they recorded, and that what was erased stays erased."""
    for erasure in (yield from read(context, erasures.unproven)):
        what = "the erasure's list of files to remove is not the one it recorded: nothing of it is removed"
        findings.add(Finding(Verdict.TAMPERED, what, EXPLAIN, table="erasures", row=erasure))
    for handle in (yield from read(context, erasures.with_keys_again)):
        what = "the subject was erased, and has a key or a name again"
        findings.add(Finding(Verdict.TAMPERED, what, EXPLAIN, table="subjects", row=handle))


def _retention_rules(context: Context, findings: Findings) -> Work[None]:
    """Check that root set and lifted every retention rule: an entry alone needs the log key only."""
    for rule, why in (yield from read(context, retention_rules.flaws)).items():
        what = f"a retention rule that does not hold: {why}"
        findings.add(Finding(Verdict.TAMPERED, what, EXPLAIN, table="retention_rules", row=rule))


def _tenant_limits(context: Context, findings: Findings) -> Work[None]:
    """Check that root set every limit of a namespace."""
    for rule, why in (yield from read(context, tenant_limits.flaws)).items():
        what = f"a limit of a namespace that does not hold: {why}"
        findings.add(Finding(Verdict.TAMPERED, what, EXPLAIN, table="tenant_limits", row=rule))


def _skills(context: Context, findings: Findings) -> Work[None]:
    """Check that every approval of a skill is signed with a key that counts."""
    after: str | None = ""
    while after is not None:
        count, flawed, after = yield from read(context, partial(skills.flaws, after=after))
        findings.checked["approvals of skills"] += count
        for row, why in flawed.items():
            revoked = isinstance(why, RevokedKeyError)
            verdict = Verdict.REVOKED_KEY if revoked else Verdict.TAMPERED
            remedy = "look at the skill and approve it again" if revoked else EXPLAIN
            what = f"an approval that does not hold: {why}"
            findings.add(Finding(verdict, what, remedy, table="skill_approvals", row=row))


def _flows(context: Context, findings: Findings) -> Work[None]:
    """Check that a flow's status and times follow from its transitions, which are under the log."""
    after: flow_checks.FlowKey | None = ("", "")
    while after is not None:
        page = partial(flow_checks.flows, after=after)
        astray, after = yield from read(context, page)
        for what in astray:
            findings.add(Finding(Verdict.TAMPERED, what, EXPLAIN, table="decision_flows"))


_REMEDIES: Final = {**lockdown.REMEDIES, Verdict.PENDING: WAIT, Verdict.TAMPERED: RESTORE}


def _where(context: Context) -> str:
    return str(context.database.backend.facts().get("path", "")) if context.head_file is not None else ":memory:"
