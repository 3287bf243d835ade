"""Patches: which way a flow takes where its code was changed; flow_run.py has the rules of the record."""

from holdproof import validation
from holdproof.db import Work
from holdproof.runtime.flow_run import OWN, PATCHED, FlowRun, outside_steps, record_own


def patched(run: FlowRun, name: str) -> Work[bool]:
    """Return whether to take the new way: True in a flow that gets here first after the change, and ever after.

    False in a flow that had gone on from here before the change. The answer for a name is the same within a flow. Once
    no flow needs the old way, remove it together with this call: what it recorded is then passed over.
    """
    validation.name("name", name)
    outside_steps(run, "patched")
    own = f"{PATCHED}{name}"
    if own not in run.patches:
        asked_before = (own, 1) in run.journal
        # What is recorded and not reached yet lies after this place, and was recorded without asking.
        old_way = not asked_before and bool(run.unreached)
        run.patches[own] = False if old_way else (yield from record_own(run, own.removeprefix(OWN), lambda _: True))
    return run.patches[own]
