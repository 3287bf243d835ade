"""Agents: their contracts, their records, and who may act."""

from typing import Annotated, Final

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from holdproof import validation
from holdproof.model.agents import STATUSES, AgentCounts
from holdproof.model.page import Page
from holdproof.model.times import later
from holdproof.model.usage import Usage
from holdproof.server.console import charts, listing
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
_WINDOWS: Final = {"1h": 3_600.0, "24h": 86_400.0, "7d": 604_800.0, "30d": 2_592_000.0}
_COLUMNS: Final = (
    *("agent_id", "status", "agent_version", "priority", "suspension_reason", "registered_at", "updated_at"),
)


@router.get("/agents")
async def show(
    request: Request, status: Text = "", range: Text = "", cursor: Annotated[str | None, Query(max_length=500)] = None
) -> Response:
    """Agents by name, with what they did lately."""
    desk = Desk(request)
    word = range or "24h"
    validation.one_of("range", word, frozenset(_WINDOWS))
    page = await desk.store.agents.list(status=status or None, cursor=cursor, limit=100)
    activity = await or_default(desk.store.agents.activity(window_s=_WINDOWS[word]))
    usage = await _usage(desk, later(desk.now, -_WINDOWS[word]))
    values = {
        "page": page,
        "usage": usage,
        "used": {each.name: each for each in usage.groups} if usage else {},
        "status": status,
        "statuses": sorted(STATUSES),
        "activity": activity,
        "counts": {each.agent_id: each for each in activity.agents} if activity else {},
        "query": {"status": status, "range": range},
        "word": word,
        "windows": _WINDOWS,
    }
    return await desk.render("agents.html", values)


async def _usage(desk: Desk, since: str) -> Usage | None:
    """What telemetry says that agents used since then, all in one reading; None where the caller may not see it."""
    usage: Usage | None = await or_default(desk.store.telemetry.usage(by="agent", since=since))
    return usage


@router.get("/agents.{format}")
async def rows(request: Request, format: str, status: Text = "") -> Response:
    """Agents for programs."""
    page = await Desk(request).store.agents.list(status=status or None, limit=listing.MOST_ROWS)
    return listing.export("agents", format, page.items, _COLUMNS)


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
        "counts": await _counts(desk, id),
    }
    return await desk.render("agent.html", values)


async def _counts(desk: Desk, id: str) -> AgentCounts | None:
    """What one agent did within a day; None where that is nothing, or not for the caller."""
    activity = await or_default(desk.store.agents.activity())
    return next((each for each in activity.agents if each.agent_id == id), None) if activity else None


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
