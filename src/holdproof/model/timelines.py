"""A flow as a story: the flows below it, their steps, and what happened, in order."""

from dataclasses import dataclass

from holdproof.model.flows import FlowTree, Step
from holdproof.model.value import Value


@dataclass(frozen=True, slots=True)
class Happening(Value):
    """Something that happened in a flow; `ref` is the id of the record that tells of it."""

    at: str
    kind: str
    """opened, transition, step begun, step ended, lock, asked, answered or audit."""
    flow_id: str
    what: str
    note: str | None
    ref: str


@dataclass(frozen=True, slots=True)
class Timeline(Value):
    """A flow, all flows below it with their steps, and a page of what happened; `next` is where the next one begins."""

    tree: FlowTree
    steps: tuple[Step, ...]
    happened: tuple[Happening, ...]
    next: str | None
