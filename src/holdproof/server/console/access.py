"""Access: who may come in, who is in, who was refused; registering a passkey; ending a token, a session, a passkey."""

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from holdproof.model.page import Page
from holdproof.server.authentication import origin_of
from holdproof.server.console.desk import Desk, or_default
from holdproof.server.pages import form, json_object

router = APIRouter(include_in_schema=False)
_MOST = 100


@router.get("/access")
async def show(request: Request) -> Response:
    """Tokens and sessions that are valid, passkeys, people who approve, and refused requests, the newest first."""
    desk = Desk(request)
    desk.require("access_log", "list")
    store = desk.store
    values = {
        "tokens": (await or_default(store.tokens.list(limit=_MOST), Page([]))),
        "logins": (await or_default(store.logins.list(limit=_MOST), Page([]))),
        "passkeys": (await or_default(store.passkeys.list(limit=_MOST), Page([]))),
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


@router.post("/access/passkeys/options")
async def passkey_options(request: Request) -> Response:
    """Tell what the browser needs to create a passkey of the caller's."""
    desk = Desk(request)
    challenge = await desk.store.passkeys.register_options(desk.caller.name, origin=origin_of(request.scope))
    return JSONResponse(challenge.options)


@router.post("/access/passkeys")
async def register_passkey(request: Request) -> Response:
    """Register the passkey that the browser created; it logs in as this session is logged in."""
    desk = Desk(request)
    fields = await form(request)
    credential = json_object(fields, "passkey")
    await desk.store.passkeys.register(credential, by=desk.caller.who, login=desk.caller.login)
    return desk.after("/access", "Your passkey is registered: the login page takes it from now on.")


@router.post("/access/passkeys/revoke")
async def revoke_passkey(request: Request) -> Response:
    """Revoke a passkey, and end every session that came from it."""
    desk = Desk(request)
    fields = await form(request)
    passkey = await desk.store.passkeys.revoke(fields.get("id", ""), by=desk.caller.who)
    return desk.after("/access", f"The passkey of {passkey.person} is revoked, with the sessions that came from it.")
