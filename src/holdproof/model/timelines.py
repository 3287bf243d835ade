"""Timelines: a flow with its sub-flows, their steps, and what happened, in order."""

from dataclasses import dataclass

from holdproof.model.flows import FlowResult, FlowTree, FunctionCall, Step
from holdproof.model.value import Value


@dataclass(frozen=True, slots=True)
class TimelineEvent(Value):
    """Something that happened in a flow; `ref` is the id of its record."""

    at: str
    kind: str
    """opened, transition, step begun, step ended, lock, asked, answered or audit."""
    flow_id: str
    what: str
    note: str | None
    ref: str


@dataclass(frozen=True, slots=True)
class Timeline(Value):
    """A flow, all flows below it with their steps, and a page of what happened, oldest first.

    `next_cursor` is the cursor of the page that follows; None on the last page.
    """

    tree: FlowTree
    steps: tuple[Step, ...]
    events: tuple[TimelineEvent, ...]
    next_cursor: str | None
    call: FunctionCall | None
    """The function that the flow runs, and its inputs; None for a plain block of code."""
    outcome: FlowResult
