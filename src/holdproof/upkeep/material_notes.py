"""Notes of what the steps of flows use: objects that they read and write, skills that they load.

Rules:
- What is read inside a step is noted in the transaction that reads it, and what is written in the one that writes it:
  neither is there without the other.
- A note is an event of the flow, under the log (`memory.read`, `memory.written`, `skill.loaded`); of a person's flow it
  is sealed.
- Outside of steps nothing is noted, and a read stays a read.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from holdproof.db import Tx
from holdproof.memory.objects import tree_transaction
from holdproof.model.memory import Near, Object
from holdproof.model.page import Page
from holdproof.model.skills import LoadedSkill
from holdproof.runtime import audit
from holdproof.runtime.flow_run import IN_STEPS_OF

READ: Final = "memory.read"
WRITTEN: Final = "memory.written"
LOADED: Final = "skill.loaded"

Flows = frozenset[tuple[str, str]]


def flows_in_steps() -> Flows:
    """Return the flows, by namespace and id, inside one of whose steps the caller is."""
    return IN_STEPS_OF.get()


def note_read(tx: Tx, flows: Flows, value: Any, *, ns: str, at: str | None = None) -> None:
    """Note which objects a method returned, and the state of the memory that it read."""
    used = [_facts(each) for each in _objects(value)]
    if used:
        tree = str(tree_transaction.root(tx, ns))
        _note(tx, flows, READ, {"objects": used, "tree": tree, "snapshot": at, "ns": ns})


def note_written(tx: Tx, flows: Flows, changes: Mapping[str, Object | None], *, ns: str) -> None:
    """Note which objects were put and deleted (None), and the state of the memory afterwards."""
    absent = {"version": None, "cid": None}
    used = [{"id": id, **absent} if each is None else _facts(each) for id, each in changes.items()]
    if used:
        _note(tx, flows, WRITTEN, {"objects": used, "tree": str(tree_transaction.root(tx, ns)), "ns": ns})


def note_loaded(tx: Tx, flows: Flows, skill: LoadedSkill) -> None:
    """Note which skill was loaded, and who approved it."""
    approval = skill.approval
    detail = {
        "path": skill.path,
        "root": approval.root,
        "approval_id": approval.id,
        "approved_by": approval.approved_by,
        "approved_at": approval.approved_at,
    }
    _note(tx, flows, LOADED, detail)


def _note(tx: Tx, flows: Flows, event_type: str, detail: Mapping[str, Any]) -> None:
    for ns, flow_id in sorted(flows):
        audit.record(tx, flow_id, event_type, severity="DEBUG", detail=detail, ns=ns)


def _objects(value: Any) -> Iterable[Object]:
    """Return the objects of what a method of memory returns."""
    if isinstance(value, Object):
        return [value]
    if isinstance(value, Near):
        return [value.object]
    if isinstance(value, Page | tuple | list):
        return [each for item in value for each in _objects(item)]
    return []


def _facts(item: Object) -> dict[str, Any]:
    return {"id": item.id, "version": item.version, "cid": item.cid}
