"""The sweep of a whole store: what time has ended, in whatever domain, is put away."""

from dataclasses import replace

from holdproof.db import Work
from holdproof.memory.notes import notes
from holdproof.model.coordination import SweepResult
from holdproof.runtime import sweeps


def run() -> Work[SweepResult]:
    """Sweep once; what was put away, and what is left for others."""
    swept = yield from sweeps.run()
    return replace(swept, notes=(yield from notes.sweep()))
