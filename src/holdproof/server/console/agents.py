"""Agents: their contracts, their records, and who may act."""

from typing import Annotated, Final

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from holdproof.model.agents import STATUSES
from holdproof.model.page import Page
from holdproof.server.console import charts
from holdproof.server.console.desk import Desk, or_default
from holdproof.server.console.template_filters import moment
from holdproof.server.pages import form

router = APIRouter(include_in_schema=False)

Text = Annotated[str, Query(max_length=500)]
CHANGES: Final = {
    "ACTIVE": "It may open flows and ask again.",
    "SUSPENDED": "It opens no flows and asks nothing. Flows that are under way go on.",
    "ESCALATION_ONLY": "It opens no flows; flows that are under way may still ask.",
    "RETIRED": "It opens no flows, asks nothing, and its session token opens no door any more.",
}
"""What an operator may make of an agent, and what follows."""


@router.get("/agents")
async def show(
    request: Request, status: Text = "", cursor: Annotated[str | None, Query(max_length=500)] = None
) -> Response:
    """Agents by name."""
    desk = Desk(request)
    page = await desk.store.agents.list(status=status or None, cursor=cursor, limit=100)
    return await desk.render("agents.html", {"page": page, "status": status, "statuses": sorted(STATUSES)})


@router.get("/agents/agent")
async def one(request: Request, id: Text) -> Response:
    """One agent with its record."""
    desk = Desk(request)
    store = desk.store
    # What the caller may not see is left out, so that the rest of the page can still be shown.
    feedback = (await or_default(store.feedback.list(agent_id=id, limit=200), Page([]))).items
    scores = [(moment(each.created_at), each.score) for each in reversed(feedback) if each.score is not None]
    values = {
        "agent": await store.agents.get(id),
        "state": await or_default(store.state.get(id)),
        "versions": (await or_default(store.state.versions(id, limit=20), Page([]))).items,
        "feedback": feedback,
        "chart": charts.line(f"Scores of {id}, oldest to newest", scores, width=640) if scores else None,
        "budget": await or_default(store.escalations.budget(id)),
        "escalations": await or_default(store.escalations.list(agent_id=id, limit=10)),
        "flows": await or_default(store.flows.list(agent_id=id, limit=10)),
        "changes": CHANGES,
    }
    return await desk.render("agent.html", values)


@router.post("/agents/status")
async def change(request: Request) -> Response:
    """Change what an agent may do; the first time the consequence is shown."""
    desk = Desk(request)
    fields = await form(request)
    agent = await desk.store.agents.get(fields.get("id", ""))
    status = fields.get("status", "")
    reason = fields.get("reason", "").strip()
    # Nothing changes before the consequence was confirmed with a reason; the same address serves both steps.
    if fields.get("confirmed") != "yes" or not reason or status not in CHANGES:
        return await desk.render(
            "confirm_status.html", {"agent": agent, "status": status, "reason": reason, "changes": CHANGES}
        )
    updated = await desk.store.agents.set_status(agent.agent_id, status, reason=f"{reason} ({desk.caller.who})")
    return desk.after("/agents/agent", f"{updated.agent_id} is {updated.status} now.", id=agent.agent_id)
