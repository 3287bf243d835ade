"""Memory as a whole: what its own checks say, as findings."""

from collections.abc import Callable
from functools import partial
from typing import Final

from holdproof.db import Work
from holdproof.memory import checks, notechecks, threadchecks
from holdproof.memory.checks import Checked, Flaw
from holdproof.model.verdicts import Verdict
from holdproof.model.verify import Finding
from holdproof.upkeep.findings import RESTORE, Findings, Holds, read

_MISSING: Final = "words or vectors of some objects, which were never written: `holdproof objects reindex` does"


def check(context: Holds, found: Findings) -> Work[None]:
    """Leaf, commit, tree and record: every block is what it was, every snapshot signed, every index right."""
    yield from _pages(context, found, "blocks", checks.content)
    yield from _pages(context, found, "commits", checks.snapshots)
    yield from _pages(context, found, "blocks of threads", threadchecks.blocks)
    yield from _pages(context, found, "checkpoints of threads", threadchecks.checkpoints)
    yield from _pages(context, found, "writes of threads", threadchecks.writes)
    yield from _pages(context, found, "notes", notechecks.notes)
    spaces, flaws = yield from read(context, checks.names)
    for flaw in flaws:
        found.add(_finding(flaw))
    for ns in spaces:
        yield from _pages(context, found, "objects", partial(checks.tree, ns=ns))
        yield from _pages(context, found, "indexed objects", partial(checks.index, ns=ns))
        yield from _pages(context, found, "volatile fields", partial(checks.vectors, ns=ns))
        yield from _pages(context, found, "vectors of objects", partial(checks.vector_rows, ns=ns))


def _pages(context: Holds, found: Findings, what: str, check: Callable[..., Checked]) -> Work[None]:
    after: object = None
    while True:
        page = yield from read(context, lambda tx: check(tx, after=after))  # noqa: B023
        found.checked[what] += page.seen
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
