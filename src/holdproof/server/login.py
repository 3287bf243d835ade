"""Coming in and going out: a link or a passkey is exchanged for a session; the session lives in a cookie."""

from collections.abc import Mapping
from typing import Annotated

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response

from holdproof.access import tokens
from holdproof.model.access import AccessEvent, NewLogin
from holdproof.server import proxy_login
from holdproof.server.authentication import origin_of, same_origin
from holdproof.server.middleware import charge
from holdproof.server.pages import form, json_object, page
from holdproof.server.state import ServerState, caller_in, state_of

router = APIRouter(include_in_schema=False)


@router.get("/login")
async def show(
    request: Request,
    code: Annotated[str, Query(max_length=200)] = "",
    next: Annotated[str, Query(max_length=2000)] = "",
) -> Response:
    """Ask whether to come in: programs that look at links before people do must not use them up."""
    return page(
        request, "login.html", {"code": code, "next": inside(next), "proxy": proxy_login.admitted(request.scope)}
    )


@router.post("/login")
async def login(request: Request) -> Response:
    """Exchange the code of a link for a session."""
    same_origin(request.scope)
    state = state_of(request)
    fields = await form(request)
    session = await _session_of(state, request, fields)
    by = "by passkey" if session.login.credential_id else ""
    await _note(state, request, "login", f"{session.login.role}:{session.login.name}", by)
    answer = RedirectResponse(inside(fields.get("next", "")) or "/", 303)
    answer.set_cookie(
        state.settings.cookie,
        session.secret,
        max_age=int(state.settings.session_s),
        secure=state.settings.secure,
        httponly=True,
        samesite="strict",
    )
    return answer


async def _session_of(state: ServerState, request: Request, fields: Mapping[str, str]) -> NewLogin:
    """Open a session by what a form brings: a passkey's signature, a token, a link, or the word of a proxy."""
    ttl_s = state.settings.session_s
    if "passkey" in fields:
        assertion = json_object(fields, "passkey")
        return await state.store.logins.exchange_passkey(assertion, origin=origin_of(request.scope), ttl_s=ttl_s)
    code = fields.get("code", "").strip()
    if fields.get("proxy") == "yes":
        code = (await proxy_login.create_link(state, request.scope)).secret
    elif code.startswith(tokens.PREFIX):
        code = await _link_of(state, code)
    return await state.store.logins.exchange(code, ttl_s=ttl_s)


@router.post("/login/passkey")
async def passkey_options(request: Request) -> Response:
    """Tell what a passkey is to sign for a login: the same for everybody."""
    same_origin(request.scope)
    state = state_of(request)
    # Whoever asks is nobody yet, and each question is written down: it counts as one that was refused.
    charge(request.scope)
    challenge = await state.store.logins.passkey_options(origin=origin_of(request.scope))
    return JSONResponse(challenge.options)


async def _link_of(state: ServerState, secret: str) -> str:
    """Make a link of a token: a person with a token comes in with it, and has its rights."""
    token = await state.store.tokens.authenticate(secret)
    link = await state.store.logins.create_link(token_id=token.token_id, ns=token.ns)
    return link.secret


def inside(address: str) -> str:
    """Return an address of this server as it is, nothing for any other: a login leads nowhere else."""
    # Browsers read a backslash as a slash, and two of them as the beginning of another host.
    is_path = address.startswith("/") and not address.startswith("//") and "\\" not in address
    return address if is_path and address.isprintable() else ""


@router.post("/logout")
async def logout(request: Request) -> Response:
    """End the session; harmless without one."""
    state = state_of(request)
    caller = caller_in(request.scope)
    secret = request.cookies.get(state.settings.cookie)
    # Only a session can be ended here; a token stays valid until it is revoked.
    if caller is not None and caller.csrf is not None and secret:
        await state.store.logins.logout(secret)
        await _note(state, request, "logout", caller.who)
    answer = RedirectResponse("/login", 303)
    answer.delete_cookie(state.settings.cookie, secure=state.settings.secure, httponly=True, samesite="strict")
    return answer


async def _note(state: ServerState, request: Request, event: str, who: str, detail: str = "") -> None:
    address = request.client.host if request.client else ""
    path = request.url.path
    await state.store.access_log.record(
        [AccessEvent(0, event, 303, "", who, address, request.method, path, detail, 1, state.now())]
    )
