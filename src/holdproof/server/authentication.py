"""Who calls: a token, an agent's session token, or a session of the console; and that a browser means what it sends.

- `Authorization: Bearer hp_…` is a token.
- `Authorization: Bearer <agent>:<session token>`, or Basic with the same two, is an agent; its name is percent-encoded.
- The cookie is a session of the console. A request that it comes with and that may change something has to come from
  our own page: by what the browser says of its origin, and by a secret of the session in the form or a header.

A token that is wrong is refused wherever it is sent; a cookie that has ended is as good as none.
"""

import binascii
import hmac
from base64 import b64decode
from functools import partial
from hashlib import sha256
from typing import Final
from urllib.parse import unquote

from starlette.datastructures import Headers
from starlette.requests import Request, cookie_parser
from starlette.types import Message, Receive, Scope, Send

from holdproof.errors import ForgedRequestError, UnauthenticatedError
from holdproof.executors import CALLER
from holdproof.server import multipart, pages, proxy_login, scrapes
from holdproof.server.middleware import Middleware, pace
from holdproof.server.permissions import Caller
from holdproof.server.state import ServerState, state_in

SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
ANONYMOUS: Final = "anonymous"
"""Who calls without a token, as entries name them."""
LOGIN: Final = frozenset({"/login", "/login/passkey"})
"""Where somebody with a session may come in anew, from a page that does not know of it."""
FIELD: Final = "csrf"
HEADER: Final = "x-csrf-token"
_OURS: Final = frozenset({"same-origin", "none"})


def csrf(secret: str) -> str:
    """Return the token that a form of a session has to carry; only the session's own pages can read it."""
    return sha256(b"holdproof csrf " + secret.encode()).hexdigest()


class AuthenticationMiddleware(Middleware):
    """Finds out who calls, and keeps it in the request's state as `caller`."""

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Look at the credentials, if there are any."""
        state = state_in(scope)
        headers = Headers(scope=scope)
        authorization = headers.get("authorization")
        # A header wins over a cookie: a program that sends both means its token, and needs no CSRF secret.
        look = (
            partial(_by_cookie, state, headers, proxy_login.person(scope))
            if authorization is None
            else partial(_by_header, state, authorization)
        )
        if authorization is not None and scope["path"] == scrapes.PATH:
            caller = await state.scrapers.caller(authorization, look)
        else:
            caller = await look()
        if caller is not None:
            # Streams outlive the moment of their authentication; `again` lets them repeat it (state.recheck).
            scope["state"] |= {"caller": caller, "again": look}
            # With the namespace: agents of one name in two of them share no limit.
            pace(state, f"caller:{caller.token_id or caller.login_id or f'{caller.ns}:{caller.who}'}")
            if caller.token_id is not None:
                state.access_log.used(caller.token_id)
            if caller.csrf is not None and scope["method"] not in SAFE and scope["path"] not in LOGIN:
                receive = await _meant(scope, receive, caller.csrf)
        token = CALLER.set(ANONYMOUS if caller is None else caller.who)
        try:
            await self.app(scope, receive, send)
        finally:
            CALLER.reset(token)


async def _by_header(state: ServerState, authorization: str) -> Caller:
    scheme, _, credentials = authorization.partition(" ")
    scheme = scheme.lower()
    credentials = credentials.strip()
    if scheme == "basic":
        credentials = _decoded(credentials)
    elif scheme != "bearer":
        raise UnauthenticatedError("send the token as Authorization: Bearer")
    # Our tokens have no colon, so one means an agent's name and its session token.
    name, colon, secret = credentials.partition(":")
    if colon:
        return Caller.of_agent(await state.store.tokens.authenticate_agent(unquote(name), secret))
    return Caller.of_token(await state.store.tokens.authenticate(credentials))


def _decoded(credentials: str) -> str:
    try:
        return b64decode(credentials, validate=True).decode()
    except (binascii.Error, ValueError) as error:
        raise UnauthenticatedError("these are no credentials") from error


async def _by_cookie(state: ServerState, headers: Headers, person: str | None) -> Caller | None:
    secret = cookie_parser(headers.get("cookie", "")).get(state.settings.cookie)
    if not secret:
        return None
    try:
        login = await state.store.logins.authenticate(secret)
    except UnauthenticatedError:
        return None
    if not proxy_login.counts(state, login, person):
        return None
    return Caller.of_login(login, csrf(secret))


def same_origin(scope: Scope) -> None:
    """Refuse what a browser says comes from elsewhere; what is no browser says nothing."""
    headers = Headers(scope=scope)
    site = headers.get("sec-fetch-site")
    origin = headers.get("origin")
    # Older browsers send no Sec-Fetch-Site; the Origin header and the CSRF secret still hold for them.
    if site is not None and site not in _OURS:
        raise ForgedRequestError("the browser says that this comes from another site", site=site[:20])
    # Compared as texts: an address that cannot be parsed is another origin too.
    if origin is not None and origin.partition("://")[2] != headers.get("host"):
        raise ForgedRequestError("the browser says that this comes from another origin", origin=origin[:100])


def origin_of(scope: Scope) -> str:
    """Return the origin that people reach this server at, as their browsers name it."""
    scheme = "https" if state_in(scope).settings.secure else scope["scheme"]
    return f"{scheme}://{Headers(scope=scope)['host']}"


async def _meant(scope: Scope, receive: Receive, expected: str) -> Receive:
    """Refuse a request that does not carry the session's secret; the body that was read for it is given again."""
    same_origin(scope)
    secret = Headers(scope=scope).get(HEADER)
    body: bytes | None = None
    # Only forms carry the field; scripts of a page send the header, and their bodies are left to the handlers.
    content_type = Headers(scope=scope).get("content-type", "")
    if secret is None and content_type.lower().startswith((pages.FORM, multipart.TYPE)):
        body = await Request(scope, receive).body()
        secret = _field(body, content_type)
    if secret is None or not hmac.compare_digest(secret.encode(), expected.encode()):
        raise ForgedRequestError("the request does not carry the secret of its session")
    return receive if body is None else _again(body, receive)


def _field(body: bytes, content_type: str) -> str | None:
    """Return the secret that a form carries, with or without files."""
    if content_type.lower().startswith(pages.FORM):
        return dict(pages.parse(body)).get(FIELD)
    part = multipart.parse(body, content_type).get(FIELD)
    return None if part is None else part.text


def _again(body: bytes, receive: Receive) -> Receive:
    read = False

    async def receiving() -> Message:
        nonlocal read
        if read:
            return await receive()
        read = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receiving
