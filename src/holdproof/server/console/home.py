"""The way in, and which namespace is looked at."""

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from holdproof import validation
from holdproof.server.console.desk import SPACE, Desk
from holdproof.server.pages import form
from holdproof.server.state import caller_in

router = APIRouter(include_in_schema=False)


@router.get("/")
async def show(request: Request) -> Response:
    """Redirect to what happened today, or to the login page without a session."""
    return RedirectResponse("/today" if caller_in(request.scope) else "/login", 303)


@router.post("/namespace")
async def look(request: Request) -> Response:
    """Look at another namespace."""
    desk = Desk(request)
    fields = await form(request)
    ns = validation.name("namespace", fields.get("ns", ""))
    # A typo must not end on an empty page that looks like a quiet day.
    if ns not in await desk.namespaces():
        return desk.after("/inbox", f"There is no namespace {ns}: nothing has happened in one.", kind="refused")
    answer = desk.after("/inbox", f"You look at the namespace {ns}.")
    # A caller bound to a namespace cannot leave it; the cookie would have no effect.
    if desk.caller.ns is None:
        answer.set_cookie(SPACE, ns, secure=desk.state.settings.secure, httponly=True, samesite="strict")
    return answer
