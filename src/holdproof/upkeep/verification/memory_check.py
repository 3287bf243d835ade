"""Memory as a whole: what its own checks say, as findings."""

from collections.abc import Callable
from functools import partial
from typing import Final

from holdproof.db import Work
from holdproof.memory.notes import notes
from holdproof.memory.objects import object_checks
from holdproof.memory.objects.object_checks import CheckedPage, Flaw
from holdproof.memory.threads import thread_checks
from holdproof.model.verdicts import Verdict
from holdproof.model.verify import Finding
from holdproof.upkeep.verification.findings import RESTORE, Findings, Holds, read

_MISSING: Final = "words or vectors of some objects, which were never written: `holdproof objects reindex` does"


def check(context: Holds, found: Findings) -> Work[None]:
    """Leaf, commit, tree and record: every block is what it was, every snapshot signed, every index right."""
    yield from _pages(context, found, "blocks", object_checks.content)
    yield from _pages(context, found, "commits", object_checks.snapshots)
    yield from _pages(context, found, "blocks of threads", thread_checks.blocks)
    yield from _pages(context, found, "checkpoints of threads", thread_checks.checkpoints)
    yield from _pages(context, found, "writes of threads", thread_checks.writes)
    yield from _pages(context, found, "notes", notes.check_page)
    spaces, flaws = yield from read(context, object_checks.names)
    for flaw in flaws:
        found.add(_finding(flaw))
    for ns in spaces:
        yield from _pages(context, found, "objects", partial(object_checks.tree, ns=ns))
        yield from _pages(context, found, "indexed objects", partial(object_checks.index, ns=ns))
        yield from _pages(context, found, "volatile fields", partial(object_checks.vectors, ns=ns))
        yield from _pages(context, found, "vectors of objects", partial(object_checks.vector_rows, ns=ns))


def _pages(context: Holds, found: Findings, what: str, check: Callable[..., CheckedPage]) -> Work[None]:
    after: object = None
    while True:
        page = yield from read(context, lambda tx: check(tx, after=after))  # noqa: B023
        found.checked[what] += page.rows
        found.tell(f"memory: {what}", found.checked[what])
        for flaw in page.flaws:
            if flaw.missing:
                found.skip(_MISSING)
            else:
                found.add(_finding(flaw))
        if page.last is None:
            return
        after = page.last


def _finding(flaw: Flaw) -> Finding:
    return Finding(Verdict.TAMPERED, flaw.what, RESTORE, table=flaw.table, row=flaw.row)
