"""Flows: finding them, what happened in them, proving it, and stepping in."""

from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from holdproof.model.flows import STATUSES, TERMINAL
from holdproof.model.page import Page
from holdproof.server.console.desk import Desk, or_default
from holdproof.server.pages import form

router = APIRouter(include_in_schema=False)

Text = Annotated[str, Query(max_length=500)]
Cursor = Annotated[str | None, Query(max_length=500)]


@router.get("/flows")
async def show(
    request: Request, *, q: Text = "", status: Text = "", agent: Text = "", type: Text = "", cursor: Cursor = None
) -> Response:
    """Flows by what is asked for, the newest first."""
    desk = Desk(request)
    page = await desk.store.flows.list(
        text=q.strip(), status=status or None, agent_id=agent or None, flow_type=type or None, cursor=cursor, limit=50
    )
    orphans = await or_default(desk.store.flows.orphans(limit=100), ())
    filters = {"q": q, "status": status, "agent": agent, "type": type}
    values = {"page": page, "orphans": orphans, "filters": filters, "statuses": sorted(STATUSES), "cursor": cursor}
    return await desk.render("flows.html", values)


@router.get("/flows/flow")
async def one(request: Request, id: Text, cursor: Cursor = None) -> Response:
    """One flow: its tree, its story, its steps, and what it holds."""
    desk = Desk(request)
    store = desk.store
    flow = await store.flows.get(id)
    values = {
        "flow": flow,
        "timeline": await store.flows.timeline(id, cursor=cursor, limit=200),
        "tree": await or_default(store.flows.tree(flow.root_flow_id)),
        "transitions": await store.flows.transitions(id),
        "locks": (await or_default(store.locks.list(flow_id=id), Page([]))).items,
        "audit": await or_default(store.audit.list(flow_id=id, limit=100)),
        "context": await or_default(store.contexts.get(id)),
        "versions": (await or_default(store.contexts.versions(id, limit=20), Page([]))).items,
        "escalations": (await or_default(store.escalations.list(flow_id=id, limit=20), Page([]))).items,
        "ledger": await or_default(store.ledger.get(id)),
        "dirty": await or_default(store.sagas.get(id)),
        "retry": await or_default(store.retries.get(id)),
        "open": flow.status not in TERMINAL,
        "cursor": cursor,
    }
    return await desk.render("flow.html", values)


@router.get("/flows/bundle")
async def prove(request: Request, id: Text) -> Response:
    """Download a flow with all that a third party needs to verify it."""
    data = await Desk(request).store.bundle.export(id, kind="flow")
    return download(data, f"flow-{id}.zip", "application/zip")


def download(data: bytes, name: str, kind: str) -> Response:
    """Bytes to be saved, never to be shown."""
    # RFC 5987 with everything escaped: a flow's id may hold quotes and line breaks.
    headers = {"Content-Disposition": f"attachment; filename*=UTF-8''{quote(name, safe='')}"}
    return Response(data, headers=headers, media_type=kind)


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


@router.post("/flows/recover")
async def recover(request: Request) -> Response:
    """Run orphaned flows again whose functions this server knows; the first time the consequence is shown."""
    desk = Desk(request)
    fields = await form(request)
    orphans = await desk.store.flows.orphans(limit=100)
    if fields.get("confirmed") != "yes":
        return await desk.render("confirm_recover.html", {"orphans": orphans})
    run_recovery = desk.store.flows.recover
    worker = f"console {desk.caller.who}"
    job = desk.start("recovery", lambda _: run_recovery(worker))
    return desk.after(f"/jobs/{job.number}")
