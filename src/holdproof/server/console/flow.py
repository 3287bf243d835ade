"""One flow: how it stands, what it waits for, its tree over time, every step, what proves it, and stepping in."""

from typing import Annotated, Any, Final, cast

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from holdproof.model.flows import TERMINAL, Flow, FlowExecution, LeaseTakeover
from holdproof.model.page import Page
from holdproof.model.timelines import Timeline, TimelineEvent
from holdproof.model.times import to_micros
from holdproof.runtime.forks import Effects
from holdproof.server.console import axes, gantt, graph
from holdproof.server.console.desk import Desk, or_default
from holdproof.server.pages import form

router = APIRouter(include_in_schema=False)

Text = Annotated[str, Query(max_length=500)]
Cursor = Annotated[str | None, Query(max_length=500)]
_STEPS: Final = 100
_TAKEN: Final = 10
EFFECTS: Final = {
    "simulate": "New steps get the results that this flow recorded. Nothing is done outside.",
    "deny": "The fork stops at the first step that is not shared. Nothing is done outside.",
    "real": "New steps run for real: they act on the world again.",
}
"""What becomes of the steps of a fork that are new."""
VERDICTS: Final = ("GOOD", "POOR", "WRONG")


@router.get("/flows/flow")
async def one(request: Request, id: Text, cursor: Cursor = None, steps: int = 0) -> Response:
    """One flow: its state, its tree over time, its steps, and what it holds."""
    desk = Desk(request)
    store = desk.store
    flow = await store.flows.get(id)
    execution = await store.flows.execution(id)
    timeline = await store.flows.timeline(id, cursor=cursor, limit=200)
    first = max(steps, 0)
    values = {
        "flow": flow,
        "execution": execution,
        "timeline": timeline,
        "gantt": await _gantt(desk, flow, timeline, execution),
        "graph": graph.lay_out(timeline.tree, id) if timeline.tree.children else None,
        "parent": await or_default(store.flows.get(flow.parent_flow_id)) if flow.parent_flow_id else None,
        "took": axes.length((to_micros(_end(flow, desk.now)) - to_micros(flow.created_at)) / 1_000_000),
        "failed": _failed(timeline, id),
        "lost": [gantt.summary(each, execution.workers) for each in execution.takeovers],
        "steps": timeline.steps[first : first + _STEPS],
        "first": first,
        "rest": max(len(timeline.steps) - first - _STEPS, 0),
        "page_size": _STEPS,
        "open": flow.status not in TERMINAL,
        "cursor": cursor,
        **await _around(desk, flow),
    }
    return await desk.render("flow.html", values)


async def _around(desk: Desk, flow: Flow) -> dict[str, Any]:
    """What belongs to a flow beside its steps; left out where the caller may not see it."""
    store = desk.store
    id = flow.flow_id
    return {
        "locks": (await or_default(store.locks.list(flow_id=id), Page([]))).items,
        "audit": await or_default(store.audit.list(flow_id=id, limit=100)),
        "context": await or_default(store.contexts.get(id)),
        "versions": (await or_default(store.contexts.versions(id, limit=20), Page([]))).items,
        "escalations": (await or_default(store.escalations.list(flow_id=id, limit=20), Page([]))).items,
        "ledger": await or_default(store.ledger.get(id)),
        "dirty": await or_default(store.sagas.get(id)),
        "retry": await or_default(store.retries.get(id)),
        "attributes": await or_default(store.flows.attributes(id), {}),
        "feedback": (await or_default(store.feedback.list(flow_id=id, limit=20), Page([]))).items,
        "verdicts": VERDICTS,
    }


def _end(flow: Flow, now: str) -> str:
    return (flow.completed_at or flow.updated_at) if flow.status in TERMINAL else max(now, flow.created_at)


def _failed(timeline: Timeline, id: str) -> Any:
    """The step that a failed flow failed at: the last of its own that failed, or None."""
    return next((each for each in reversed(timeline.steps) if each.flow_id == id and each.state == "FAILED"), None)


async def _gantt(desk: Desk, flow: Flow, timeline: Timeline, execution: FlowExecution) -> gantt.Gantt:
    """The tree over time; it needs all its events, and those of a later page are read again from the beginning."""
    events: list[TimelineEvent] = list(timeline.events)
    if timeline.next_cursor is not None:
        whole = await desk.store.flows.timeline(flow.flow_id, limit=1000)
        events = list(whole.events)
    takeovers: dict[str, tuple[LeaseTakeover, ...]] = {flow.flow_id: execution.takeovers}
    for other in gantt.taken_over(events)[:_TAKEN]:
        if other != flow.flow_id:
            takeovers[other] = (await desk.store.flows.execution(other)).takeovers
    return gantt.lay_out(timeline.tree, timeline.steps, events, takeovers, desk.now)


# --- stepping in -------------------------------------------------------------------------------------------------


@router.post("/flows/cancel")
async def cancel(request: Request) -> Response:
    """Cancel a flow; the first time the consequence is shown."""
    desk = Desk(request)
    fields = await form(request)
    flow = await desk.store.flows.get(fields.get("id", ""))
    if fields.get("confirmed") != "yes" or not fields.get("reason", "").strip():
        return await desk.render("confirm_cancel.html", {"flow": flow, "reason": fields.get("reason", "")})
    moved = await desk.store.flows.cancel(flow.flow_id, reason=f"{fields['reason'].strip()} ({desk.caller.who})")
    return desk.after("/flows/flow", f"The flow is {moved.status} now.", id=flow.flow_id)


@router.post("/flows/fork")
async def fork(request: Request) -> Response:
    """Fork a flow from a step; the first time the consequence is shown."""
    desk = Desk(request)
    desk.require("flows", "fork")
    fields = await form(request)
    flow = await desk.store.flows.get(fields.get("id", ""))
    effects = fields.get("effects", "")
    if fields.get("confirmed") != "yes" or effects not in EFFECTS:
        steps = await desk.store.flows.steps(flow.flow_id)
        values = {"flow": flow, "at": fields.get("at", ""), "steps": steps, "effects": EFFECTS}
        return await desk.render("confirm_fork.html", values)
    successor = await desk.store.flows.fork(flow.flow_id, at=fields.get("at") or None, effects=cast("Effects", effects))
    return desk.after("/flows/flow", "This is the fork. A worker that has its function runs it.", id=successor.flow_id)


@router.post("/flows/feedback")
async def give_feedback(request: Request) -> Response:
    """Say how a flow turned out."""
    desk = Desk(request)
    fields = await form(request)
    flow = await desk.store.flows.get(fields.get("id", ""))
    reason = f"{fields.get('reason', '').strip()} ({desk.caller.who})".strip()
    status = fields.get("status", "")
    await desk.store.feedback.record(flow.agent_id, flow.flow_id, status=status, reason=reason, source="Human")
    return desk.after("/flows/flow", "Your feedback is recorded.", id=flow.flow_id)
