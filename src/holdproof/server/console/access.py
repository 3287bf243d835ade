"""Access: who may come in, who is in, who was refused; and ending a token or a session."""

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from holdproof.model.page import Page
from holdproof.server.console.desk import Desk, or_default
from holdproof.server.pages import form

router = APIRouter(include_in_schema=False)
_MOST = 100


@router.get("/access")
async def show(request: Request) -> Response:
    """Tokens and sessions that are valid, people who approve, and refused requests, the newest first."""
    desk = Desk(request)
    desk.require("access_log", "list")
    store = desk.store
    values = {
        "tokens": (await or_default(store.tokens.list(limit=_MOST), Page([]))),
        "logins": (await or_default(store.logins.list(limit=_MOST), Page([]))),
        "people": (await or_default(store.people.list(limit=_MOST), Page([]))),
        "refused": await store.access_log.list(event="denied", limit=50),
    }
    return await desk.render("access.html", values)


@router.post("/access/revoke")
async def revoke(request: Request) -> Response:
    """Revoke a token, and end every session that came from it."""
    desk = Desk(request)
    fields = await form(request)
    token = await desk.store.tokens.revoke(fields.get("id", ""), by=desk.caller.who)
    return desk.after("/access", f"The token {token.name} is revoked, with the sessions that came from it.")


@router.post("/access/end")
async def end(request: Request) -> Response:
    """End a link or a session."""
    desk = Desk(request)
    fields = await form(request)
    login = await desk.store.logins.end(fields.get("id", ""))
    return desk.after("/access", f"The {login.kind} of {login.name} has ended.")
