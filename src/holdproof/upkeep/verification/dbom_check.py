"""Check DBOMs: files against rows, rows against signatures.

Rules:
- The row's DBOM is of its evaluation, hashes its result, has its score and time, and a judge key that counted at its
  leaf signed it: so not even the holder of the log key can change what was decided.
- A legacy signature is UNSIGNED on an imported row, whose leaf says so; anywhere else it is a downgrade: TAMPERED.
- An imported row without a DBOM is UNSIGNED too. A signed decision without its DBOM is TAMPERED.
- Every DBOM has its file with exactly the row's text; edited or replaced ones are found. A file that is not here is
  MISSING_HERE: the row has the same text, so nothing is lost, and with `repair` it is written again.
- A DBOM file that no row accounts for is UNLOGGED.
- Files are written a moment after their rows: what looks wrong is checked again before it is reported.
- A row that does not match its leaf has been reported as such; its DBOM is checked all the same.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

from holdproof.crypto import attest, canonical, dbom
from holdproof.crypto.attest import LegacySigma
from holdproof.db import Call, Tx, Work, ask, sql
from holdproof.errors import FormatError, HoldproofError, ProofError
from holdproof.evidence import dbom_files, keys
from holdproof.evidence.dbom_files import DueFile
from holdproof.evidence.logged_tables import Place
from holdproof.model.keys import Key
from holdproof.model.verdicts import Verdict
from holdproof.model.verify import Finding
from holdproof.store.context import Context
from holdproof.upkeep import kernel_tables
from holdproof.upkeep.verification.findings import MOST, RESTORE, Findings, read
from holdproof.upkeep.verification.row_check import page_size

_PAGE: Final = 200
_PAUSES: Final = (0.05, 0.2, 0.8)
_SURE: Final = 20
"""After so many wrong files the check no longer waits for the next one to be written."""
_REWRITE: Final = "keep the file aside, then run `holdproof dbom repair --full` to write it again from the database"
_REWRITE_MISSING: Final = "run `holdproof dbom repair --full` to write it again from the database"
_REPAIRED: Final = "nothing: it was written again from the database"
_NONE: Final = "nothing can be done: it was imported like that"
_IMPORTED: Final = '"t":"legacy_import"'
_ROWS = sql(
    "SELECT b.id, b.ns, b.battle_id, b.raw_result, b.dbom_hash, b.dbom, l.idx, l.leaf, b.score, b.timestamp,"
    " CASE WHEN EXISTS (SELECT 1 FROM battles e WHERE e.ns = b.ns AND e.battle_id = b.battle_id AND e.id < b.id)"
    " THEN 0 ELSE 1 END FROM battles b"
    " LEFT JOIN log_leaves l ON l.id = b.leaf_id AND l.ver = 1 WHERE b.id > :after ORDER BY b.id LIMIT :limit",
    # There a leaf may wait for the sequencer: an imported row must not pass for a downgrade meanwhile.
    postgres="SELECT b.id, b.ns, b.battle_id, b.raw_result, b.dbom_hash, b.dbom, l.idx, coalesce(l.leaf, p.leaf),"
    " b.score, b.timestamp,"
    " CASE WHEN EXISTS (SELECT 1 FROM battles e WHERE e.ns = b.ns AND e.battle_id = b.battle_id AND e.id < b.id)"
    " THEN 0 ELSE 1 END FROM battles b LEFT JOIN log_leaves l ON l.id = b.leaf_id AND l.ver = 1"
    " LEFT JOIN log_pending p ON p.id = b.leaf_id AND p.ver = 1 WHERE b.id > :after ORDER BY b.id LIMIT :limit",
)


class DbomRow(NamedTuple):
    """The columns of a row of `battles` that its DBOM is checked against, and its first leaf."""

    id: int
    ns: str
    evaluation_id: str
    raw_result: str | None
    dbom_hash: str | None
    dbom: str | None
    leaf_index: int | None
    leaf: str | None
    score: float | None
    timestamp: str | None
    is_first: int
    """1 on the first row of its evaluation: files are compared once for each evaluation, not for each row."""


def check(context: Context, findings: Findings, *, repair: bool = False) -> Work[None]:
    """Check the DBOM of every row, then every DBOM file; with `repair` write deleted files again."""
    after: int | None = 0
    while after is not None:
        after = yield from _check_page(context, findings, repair, partial(_judge_page, after=after or 0, most=_PAGE))
    yield from _unlisted_files(context, findings)


def check_row(context: Context, findings: Findings, row: int, *, repair: bool = False) -> Work[None]:
    """Check the DBOM of the row with that id and the files of its evaluation."""
    yield from _check_page(context, findings, repair, partial(_judge_page, after=row - 1, most=1))


_JudgedPage = tuple[list[DbomRow], list[Finding], int | None]
"""Rows, their findings, and the row id to continue after; None after the last page."""


def _check_page(
    context: Context, findings: Findings, repair: bool, judge_page: Callable[[Tx], _JudgedPage]
) -> Work[int | None]:
    rows, wrong, following = yield from read(context, judge_page)
    for finding in wrong:
        findings.add(finding)
        findings.checked["unsigned"] += finding.verdict is Verdict.UNSIGNED
    yield from _files(context, rows, findings, repair)
    findings.checked["DBOMs"] += sum(row.dbom is not None for row in rows)
    findings.tell("DBOMs", findings.checked["DBOMs"])
    return following


def _judge_page(tx: Tx, after: int, most: int) -> _JudgedPage:
    # The page is limited by bytes as well: results and DBOMs may be large.
    limit = page_size(tx, kernel_tables.LOGGED["battles"], Place(after), most)
    rows = [DbomRow(*row) for row in tx.all(_ROWS, after=after, limit=limit)]
    # In the page's own snapshot: a key that came in while this walk was under way has signed rows of this page.
    ring = {key.keyid: key for key in keys.keyring(tx)}
    judged = (judge(row, ring) for row in rows)
    following = rows[-1].id if len(rows) == limit else None
    return rows, [finding for finding in judged if finding is not None], following


def judge(row: DbomRow, ring: dict[str, Key]) -> Finding | None:
    """Return the finding about a row's DBOM; None if it is valid."""
    imported = _IMPORTED in (row.leaf or "")
    if row.dbom is None:
        return _lacking(row, imported)
    try:
        key = _signer(row, ring)
    except (FormatError, ProofError) as error:
        verdict = Verdict.UNSIGNED if imported else Verdict.TAMPERED
        return _finding(row, verdict, f"its DBOM does not hold: {error}", _NONE if imported else RESTORE)
    if key is None and imported:
        return _finding(row, Verdict.UNSIGNED, "imported with a simulated signature: nobody signed it", _NONE)
    if key is None:
        what = "a signed DBOM was replaced by one with a simulated signature: a downgrade"
        return _finding(row, Verdict.TAMPERED, what)
    if not key.trusted_at(row.leaf_index):
        what = f"its DBOM is signed with a judge's key that does not count from leaf {key.revoked_from} on"
        return _finding(row, Verdict.REVOKED_KEY, what, "decide it again under a key that counts")
    return None


def _lacking(row: DbomRow, imported: bool) -> Finding | None:
    """Return the finding about a row without a DBOM; a row without a leaf has been reported as such."""
    if imported:
        return _finding(row, Verdict.UNSIGNED, "imported without a DBOM: nobody signed it", _NONE)
    return _finding(row, Verdict.TAMPERED, "the DBOM of a signed decision is gone") if row.leaf else None


def _finding(row: DbomRow, verdict: Verdict, what: str, remedy: str = RESTORE) -> Finding:
    return Finding(verdict, what, remedy, table="battles", row=str(row.id))


def _signer(row: DbomRow, ring: dict[str, Key]) -> Key | None:
    """Return the judge's key that signed the row's DBOM; None for a legacy signature; ProofError for neither."""
    parsed = dbom.parse((row.dbom or "").encode())
    sigma = attest.parse_sigma(parsed.sigma_judge)
    if isinstance(sigma, LegacySigma):
        return None
    fields = parsed.fields
    if fields.evaluation_id != row.evaluation_id:
        raise ProofError("it is of another evaluation")
    if row.raw_result is None or canonical.sha256_hex(row.raw_result.encode()) != fields.h_delta:
        raise ProofError("it hashes another result")
    if (row.dbom_hash, row.score, row.timestamp) != (fields.h_delta, fields.score_cis, fields.timestamp):
        raise ProofError("its hash, score or time is not the row's")
    key = ring.get(sigma.keyid)
    if key is None or key.role != "judge":
        raise ProofError(f"it is signed with {sigma.keyid[:16]}, which is no judge's key here")
    attest.verify(parsed, keys.public(key))
    return key


# --- files -------------------------------------------------------------------------------------------------------


def _files(context: Context, rows: list[DbomRow], findings: Findings, repair: bool) -> Work[None]:
    """Compare the files of every evaluation whose first row is on this page."""
    if context.head_file is None:  # a store in memory has no files
        return
    ids = [(row.ns, row.evaluation_id) for row in rows if row.is_first]
    wrong = yield from _compare_all(context, ids, findings)
    for pause_s in _PAUSES if findings.checked["wrong DBOM files"] < _SURE else ():
        if not wrong:  # a file is written a moment after its row, and removed a moment after it
            return
        yield from ask(Call(partial(time.sleep, pause_s)))
        again = yield from _compare_all(context, list(wrong), None)
        wrong = {evaluation: again[evaluation] for evaluation in wrong if evaluation in again}
    for evaluation, listed in wrong.items():
        # Files that were edited are evidence: an evaluation that has one is left as it is.
        deleted = all(each.verdict is Verdict.MISSING_HERE for each in listed)
        repaired = repair and deleted and (yield from _write_again(context, *evaluation))
        for finding in listed:
            findings.add(replace(finding, verdict=Verdict.VALID, remedy=_REPAIRED) if repaired else finding)
        findings.checked["DBOM files written again" if repaired else "wrong DBOM files"] += len(listed)


def _write_again(context: Context, ns: str, evaluation_id: str) -> Work[bool]:
    """Write the missing files of an evaluation from its rows; False if the disk refuses."""
    folder = dbom_files.of_store(context)
    try:
        yield from ask(Call(lambda: folder.publish(ns, evaluation_id) if folder is not None else None))
    except HoldproofError:
        return False
    return folder is not None


def _compare_all(
    context: Context, ids: list[tuple[str, str]], findings: Findings | None
) -> Work[dict[tuple[str, str], list[Finding]]]:
    """Return the findings about the files of these evaluations, by evaluation."""
    due = yield from read(context, lambda tx: [(each, dbom_files.due(tx, *each)) for each in ids])
    wrong: dict[tuple[str, str], list[Finding]] = yield from ask(
        Call(lambda: {each: listed for each, files in due if (listed := _compare_each(context, each[0], files))})
    )
    if findings is not None:
        findings.checked["DBOM files"] += sum(len(files) for _, files in due)
    return wrong


def _compare_each(context: Context, ns: str, files: list[DueFile]) -> list[Finding]:
    folder = dbom_files.folder_of(context.paths.dboms, ns)
    return [finding for file in files if (finding := compare(folder / file.name, file.text)) is not None]


def compare(path: Path, text: str) -> Finding | None:
    """Return the finding about a DBOM file that should have this text; None if it has."""

    def finding(what: str) -> Finding:
        return Finding(Verdict.TAMPERED, what, _REWRITE, file=str(path), table="battles")

    try:
        data = path.read_bytes()
    except FileNotFoundError:
        what = "the DBOM file was deleted, or is on the machine that wrote it"
        return Finding(Verdict.MISSING_HERE, what, _REWRITE_MISSING, file=str(path), table="battles")
    except OSError as error:
        return finding(f"the DBOM file cannot be read: {error.strerror}")
    if data == text.encode():
        return None
    try:
        legacy = isinstance(attest.parse_sigma(dbom.parse(data).sigma_judge), LegacySigma)
    except FormatError:
        legacy = False
    if legacy:
        return finding("the DBOM file was replaced by one with a simulated signature (a downgrade)")
    return finding("the DBOM file is not the one in the database: it was edited or replaced")


def _unlisted_files(context: Context, findings: Findings) -> Work[None]:
    """Report files that no row accounts for."""
    if context.head_file is None:
        return
    files = context.paths.dboms.rglob("dbom_*.json")
    odd: list[Path] = []
    while page := (yield from _next_files(files)):
        odd += yield from _unknown(context, page)
        if len(odd) > MOST:
            break
    for pause_s in _PAUSES if odd else ():
        yield from ask(Call(partial(time.sleep, pause_s)))
        odd = yield from _unknown(context, odd)
    for path in sorted(odd):
        what = "no row accounts for this DBOM file: Holdproof did not write it, or its evaluation was removed"
        findings.add(Finding(Verdict.UNLOGGED, what, "keep it aside and find out where it came from", file=str(path)))


def _next_files(files: Iterator[Path]) -> Work[list[Path]]:
    effect: Call[list[Path]] = Call(lambda: list(islice(files, _PAGE)))
    return (yield from ask(effect))


def _unknown(context: Context, paths: list[Path]) -> Work[list[Path]]:
    """Return those of the files that still exist and belong to no row."""
    dboms = context.paths.dboms
    named = yield from read(context, lambda tx: {path for path in paths if dbom_files.is_due(tx, dboms, path)})
    return [path for path in paths if path not in named and path.exists()]
