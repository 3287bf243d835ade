"""Check anchors again: each under the key of the other log, over a head of this one.

Rules:
- An anchor that was edited, or whose head this log does not continue, is TAMPERED: it was checked before it was stored.
- Whose key it holds under the log cannot say: one that the settings do not name is told as not checked.
"""

from functools import partial

from holdproof.db import Work, call
from holdproof.evidence import anchors, attested_heads
from holdproof.model.verdicts import Verdict
from holdproof.model.verify import Finding
from holdproof.store.context import Context
from holdproof.upkeep import anchoring
from holdproof.upkeep.verification.findings import EXPLAIN, Findings, read


def check(context: Context, findings: Findings) -> Work[None]:
    """Check every anchor again, and say whose keys they rest on if the settings do not name them."""
    trusted = yield from call(lambda: anchoring.trusted(context))
    keys: set[str] = set()
    after: str | None = attested_heads.FIRST
    while after is not None:
        page = yield from read(context, partial(anchors.check, after=after))
        findings.checked["anchors"] += page.checked
        keys |= page.keys
        after = page.after
        for anchor, why in page.flaws:
            what = f"an anchor that does not hold: {why}"
            findings.add(Finding(Verdict.TAMPERED, what, EXPLAIN, table="head_anchors", row=anchor))
    for key in sorted(keys - {trusted}):
        findings.skip(f"whether a log that heads are anchored in is the right one: the settings do not name key {key}")
