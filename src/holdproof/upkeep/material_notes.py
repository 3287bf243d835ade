"""Notes of what the steps of flows use: objects that they read and write, skills that they load.

Rules:
- What is read inside a step is noted before it is given to the step, and what is written in the transaction that writes
  it: neither is there without the other.
- A note is an event of the flow, under the log (`memory.read`, `memory.written`, `skill.loaded`); of a person's flow it
  is sealed, but for what was written: an erasure must follow it in a backup that has no keys. It has ids of objects,
  which are never sealed, and of notes, threads and transcripts the numbers of their rows.
- Outside of steps nothing is noted, and a read stays a read.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from holdproof.content import encryption
from holdproof.crypto import canonical
from holdproof.db import OPENED, Flows, Tx, Use, sql
from holdproof.executors.uses import IN_STEPS_OF
from holdproof.memory.objects import tree_transaction
from holdproof.model.memory import Near, Object
from holdproof.model.page import Page
from holdproof.model.skills import LoadedSkill
from holdproof.runtime import audit, recorded

READ: Final = "memory.read"
WRITTEN: Final = "memory.written"
LOADED: Final = "skill.loaded"

_SUBJECT_OF: Final = {
    kind: sql(f"SELECT subject FROM {kind} WHERE n = :n")  # noqa: S608 (names come from here)
    for kind in ("notes", "transcripts")
}
_NUMBER_OF = sql("SELECT n FROM transcripts WHERE ns = :ns AND name = :name")


def flows_in_steps() -> Flows:
    """Return the flows, by namespace and id, inside one of whose steps the caller is."""
    return IN_STEPS_OF.get()


def note_read(tx: Tx, flows: Flows, value: Any, *, ns: str, at: str | None = None) -> None:
    """Note which objects a method returned, and the state of the memory that it read."""
    used = [_facts(each) for each in _objects(value)]
    # An erasure that runs meanwhile sees the note, or this waits for it and gives nothing.
    for handle in sorted(set(tx.noted(OPENED))):
        encryption.check_alive(tx, handle)
    if used:
        tree = str(tree_transaction.root(tx, ns))
        _note(tx, flows, READ, {"objects": used, "tree": tree, "snapshot": at, "ns": ns})


def note_written(tx: Tx, flows: Flows, changes: Mapping[str, Object | None], *, ns: str) -> None:
    """Note which objects were put and deleted (None), and the state of the memory afterwards."""
    absent = {"version": None, "cid": None}
    used = [{"id": id, **absent} if each is None else _facts(each) for id, each in changes.items()]
    if used:
        _note(tx, flows, WRITTEN, {"objects": used, "tree": str(tree_transaction.root(tx, ns)), "ns": ns})


def note_uses(tx: Tx, flows: Flows, used: frozenset[Use]) -> None:
    """Note which notes, threads and transcripts were read and written, by the numbers of their rows."""
    for event_type, action in ((READ, "read"), (WRITTEN, "written")):
        rows: dict[str, dict[str, set[int]]] = {}
        for use in used:
            number = _number(tx, use)
            if number is not None and action == use.action == "read" and use.kind in _SUBJECT_OF:
                _check_alive(tx, use.kind, number)
            if use.action == action and number is not None:
                rows.setdefault(use.ns, {}).setdefault(use.kind, set()).add(number)
        for ns, kinds in sorted(rows.items()):
            detail = {"rows": {kind: sorted(numbers) for kind, numbers in sorted(kinds.items())}, "ns": ns}
            _note(tx, flows, event_type, detail)


def _check_alive(tx: Tx, kind: str, number: int) -> None:
    """Raise ErasedError for a row of a person who was erased meanwhile."""
    row = tx.one(_SUBJECT_OF[kind], n=number)
    if row is not None and (subject := next(iter(row))) is not None:
        encryption.check_alive(tx, subject)


def _number(tx: Tx, use: Use) -> int | None:
    """Return the number of a row that was used; None of a transcript that is not there."""
    if isinstance(use.key, int):
        return use.key
    row = tx.one(_NUMBER_OF, ns=use.ns, name=use.key)
    if row is None:
        return None
    (number,) = row
    return int(number)


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
    columns = {"event_type": event_type, "severity": "DEBUG", "step_id": "", "state": ""}
    columns["detail_json"] = canonical.dump_text(detail)
    for ns, flow_id in sorted(flows):
        # A flow of a person who was erased meanwhile leaves nothing behind.
        if event_type == WRITTEN and (subject := recorded.subject_of(tx, flow_id, ns=ns)) is not None:
            encryption.check_alive(tx, subject)
        audit.write(tx, flow_id, columns, ns=ns, sealed=event_type != WRITTEN)


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
