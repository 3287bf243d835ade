"""Checks of content: memory block by block, and what the application stores hold.

Rules:
- Memory: leaf, commit, tree and record agree; every block is what its CID says, every snapshot is signed.
- Application stores: their database files are intact, and every blob is what its row says. None of it is under the log:
  what is wrong there is reported, but does not lock the kernel.
- A store that nobody has used is not created for the check; one that cannot be opened is INCOMPLETE.
"""

from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Final

from holdproof.db import MEMORY, Work, call
from holdproof.db.sqlite import check_structure, foreign_pages, read_foreign_pages
from holdproof.db.sqlite.search_check import check_search
from holdproof.errors import HoldproofError
from holdproof.memory.notes import notes
from holdproof.memory.objects import object_checks
from holdproof.memory.objects.object_checks import CheckedPage, ObjectFlaw
from holdproof.memory.threads import thread_checks, thread_entries
from holdproof.model.verdicts import Verdict
from holdproof.model.verify import Finding
from holdproof.storage.executors import SyncStorageExecutor
from holdproof.storage.open_stores import OpenStores
from holdproof.store.context import Context
from holdproof.upkeep.verification.findings import RESTORE, Findings, HasDatabase, foreign_writer, read

_MISSING: Final = "words or vectors of some objects, which were never written: `holdproof objects reindex` does"


def check_memory(context: HasDatabase, findings: Findings, full: bool) -> Work[None]:
    """Check every block, commit, thread, note and index of memory; with `full` also what the text search goes by."""
    yield from _pages(context, findings, "blocks", object_checks.content)
    yield from _pages(context, findings, "commits", object_checks.snapshots)
    yield from _pages(context, findings, "blocks of threads", thread_checks.blocks)
    yield from _pages(context, findings, "checkpoints of threads", thread_checks.checkpoints)
    yield from _pages(context, findings, "logged checkpoints", thread_entries.check_page)
    yield from _pages(context, findings, "writes of threads", thread_checks.writes)
    yield from _pages(context, findings, "notes", notes.check_page)
    yield from _check_search(context, findings, full)
    spaces, flaws = yield from read(context, object_checks.names)
    for flaw in flaws:
        findings.add(_finding(flaw))
    for ns in spaces:
        yield from _pages(context, findings, "entries of histories", partial(object_checks.history, ns=ns))
        yield from _pages(context, findings, "objects", partial(object_checks.tree, ns=ns))
        yield from _pages(context, findings, "indexed objects", partial(object_checks.index, ns=ns))
        yield from _pages(context, findings, "volatile fields", partial(object_checks.vectors, ns=ns))
        yield from _pages(context, findings, "vectors of objects", partial(object_checks.vector_rows, ns=ns))


def _check_search(context: HasDatabase, findings: Findings, full: bool) -> Work[None]:
    """Compare the full-text index of SQLite with its table; on PostgreSQL it is an index, which the server checks."""
    path = context.database.backend.facts().get("path")
    if not full or context.database.dialect != "sqlite" or path == MEMORY:
        return
    for problem in (yield from call(check_search, Path(str(path)), "object_search")):
        findings.add(Finding(Verdict.TAMPERED, problem, RESTORE, table="object_search"))


def _pages(context: HasDatabase, findings: Findings, what: str, check: Callable[..., CheckedPage]) -> Work[None]:
    after: object = None
    while True:
        page = yield from read(context, partial(check, after=after))
        findings.checked[what] += page.rows
        findings.tell(f"memory: {what}", findings.checked[what])
        for flaw in page.flaws:
            if flaw.missing:
                findings.skip(_MISSING)
            else:
                findings.add(_finding(flaw))
        if page.last is None:
            return
        after = page.last


def _finding(flaw: ObjectFlaw) -> Finding:
    return Finding(Verdict.TAMPERED, flaw.what, RESTORE, table=flaw.table, row=flaw.row)


def check_services(context: Context, findings: Findings) -> Work[None]:
    """Check the database files of the application stores, then every blob."""
    if context.head_file is None:  # a store in memory has its application stores in memory
        return
    for path in (context.paths.membrane_db, context.paths.telemetry_db):
        if not (yield from call(path.exists)):
            continue
        for problem in (yield from call(check_structure, path)):
            what = f"integrity check: {problem}"
            findings.add(Finding(Verdict.TAMPERED, what, RESTORE, file=str(path), outside=True))
        if pages := (yield from call(foreign_pages, path)):
            findings.add(foreign_writer(pages, str(path), outside=True))
            yield from call(read_foreign_pages, path)
    for finding in (yield from call(_blobs, context, findings)):
        findings.add(finding)


def _blobs(context: Context, report: Findings) -> list[Finding]:
    def tell(done: int) -> None:
        report.checked["blobs"] = done
        report.tell("blobs", done)

    with closing(OpenStores(context.settings, context.paths, SyncStorageExecutor)) as stores:
        try:
            blobs = stores.open("blobs") if stores.exists("blobs") else None
        except HoldproofError as error:
            what = f"the blobs were not checked: their store cannot be opened ({error.message})"
            remedy = "correct its settings or start its server, then verify again"
            return [Finding(Verdict.INCOMPLETE, what, remedy, outside=True)]
        wrong: list[Finding] = blobs.check(progress=tell) if blobs is not None else []
        return wrong
