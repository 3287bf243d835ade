"""Policies: what agents may do, who said so, and what was decided by them."""

from typing import Annotated, Any, Final

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from holdproof.model.page import Page
from holdproof.server.console import listing
from holdproof.server.console.desk import Desk, or_default

router = APIRouter(include_in_schema=False)

Text = Annotated[str, Query(max_length=500)]
Cursor = Annotated[str | None, Query(max_length=500)]
DECISIONS: Final = ("allow", "deny", "ask")
_COLUMNS: Final = (
    "id",
    "decided_at",
    "agent_id",
    "flow_id",
    "action",
    "resource",
    "decision",
    "policy_hash",
    "escalation",
)


@router.get("/policies")
async def show(
    request: Request, *, decision: Text = "", agent: Text = "", action: Text = "", cursor: Cursor = None
) -> Response:
    """The policies with their versions, and what they decided, the newest first."""
    desk = Desk(request)
    query = {"decision": decision, "agent": agent, "action": action}
    values = {
        "policies": (await desk.store.policies.list(limit=200)).items,
        "decisions": await or_default(_decisions(desk, query, cursor, 50), Page([])),
        "query": query,
        "choices": DECISIONS,
        "cursor": cursor,
    }
    return await desk.render("policies.html", values)


@router.get("/policies.{format}")
async def rows(
    request: Request, format: str, *, decision: Text = "", agent: Text = "", action: Text = "", cursor: Cursor = None
) -> Response:
    """Decisions of the same query for programs."""
    query = {"decision": decision, "agent": agent, "action": action}
    page = await _decisions(Desk(request), query, cursor, listing.MOST_ROWS)
    return listing.export("policy-decisions", format, page.items, _COLUMNS)


@router.get("/policies/policy")
async def one(request: Request, name: Text, version: int | None = None) -> Response:
    """One version of a policy with its text."""
    desk = Desk(request)
    policy = await desk.store.policies.get(name, version=version)
    versions = [each for each in (await desk.store.policies.list(limit=200)).items if each.name == name]
    return await desk.render("policy.html", {"policy": policy, "versions": versions})


async def _decisions(desk: Desk, query: dict[str, str], cursor: str | None, limit: int) -> Page[Any]:
    return await desk.store.policies.decisions(
        agent_id=query["agent"] or None,
        action=query["action"] or None,
        decision=query["decision"] or None,
        cursor=cursor,
        limit=limit,
    )
