"""Who calls: a token, an agent's session token, or a session of the console; and that a browser means what it sends.

- `Authorization: Bearer hf_…` is a token.
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
from urllib.parse import unquote, urlsplit

from starlette.datastructures import Headers
from starlette.requests import Request, cookie_parser
from starlette.types import Message, Receive, Scope, Send

from holdproof.errors import ForgedRequestError, UnauthenticatedError
from holdproof.server import pages
from holdproof.server.middleware import Middleware, pace
from holdproof.server.permissions import Caller
from holdproof.server.state import State, state_in

SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
LOGIN: Final = "/login"
"""Where somebody with a session may come in anew, from a page that does not know of it."""
FIELD: Final = "csrf"
HEADER: Final = "x-csrf-token"
_OURS: Final = frozenset({"same-origin", "none"})


def csrf(secret: str) -> str:
    """What a form of a session has to carry: known to whoever can read its pages, and to nobody else."""
    return sha256(b"holdproof csrf " + secret.encode()).hexdigest()


class AuthenticationMiddleware(Middleware):
    """Finds out who calls, and keeps it in the request's state as `caller`."""

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Look at the credentials, if there are any."""
        state, headers = state_in(scope), Headers(scope=scope)
        given = headers.get("authorization")
        look = partial(_by_cookie, state, headers) if given is None else partial(_by_header, state, given)
        caller = await look()
        if caller is not None:
            scope["state"] |= {"caller": caller, "again": look}
            pace(state, f"caller:{caller.token_id or caller.login_id or caller.who}")
            if caller.token_id is not None:
                state.doorbook.used(caller.token_id)
            if caller.csrf is not None and scope["method"] not in SAFE and scope["path"] != LOGIN:
                receive = await _meant(scope, receive, caller.csrf)
        await self.app(scope, receive, send)


async def _by_header(state: State, given: str) -> Caller:
    scheme, _, credentials = given.partition(" ")
    scheme, credentials = scheme.lower(), credentials.strip()
    if scheme == "basic":
        credentials = _decoded(credentials)
    elif scheme != "bearer":
        raise UnauthenticatedError("send the token as Authorization: Bearer")
    name, colon, secret = credentials.partition(":")
    if colon:
        return Caller.of_agent(await state.store.tokens.authenticate_agent(unquote(name), secret))
    return Caller.of_token(await state.store.tokens.authenticate(credentials))


def _decoded(credentials: str) -> str:
    try:
        return b64decode(credentials, validate=True).decode()
    except (binascii.Error, ValueError) as error:
        raise UnauthenticatedError("these are no credentials") from error


async def _by_cookie(state: State, headers: Headers) -> Caller | None:
    secret = cookie_parser(headers.get("cookie", "")).get(state.settings.cookie)
    if not secret:
        return None
    try:
        return Caller.of_login(await state.store.logins.authenticate(secret), csrf(secret))
    except UnauthenticatedError:
        return None


def same_origin(scope: Scope) -> None:
    """Refuse what a browser says comes from elsewhere; what is no browser says nothing."""
    headers = Headers(scope=scope)
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    if site is not None and site not in _OURS:
        raise ForgedRequestError("the browser says that this comes from another site", site=site[:20])
    if origin is not None and urlsplit(origin).netloc != headers.get("host"):
        raise ForgedRequestError("the browser says that this comes from another origin", origin=origin[:100])


async def _meant(scope: Scope, receive: Receive, expected: str) -> Receive:
    """Refuse a request that does not carry the session's secret; the body that was read for it is given again."""
    same_origin(scope)
    given = Headers(scope=scope).get(HEADER)
    body: bytes | None = None
    if given is None and Headers(scope=scope).get("content-type", "").startswith(pages.FORM):
        body = await Request(scope, receive).body()
        given = dict(pages.parse(body)).get(FIELD)
    if given is None or not hmac.compare_digest(given.encode(), expected.encode()):
        raise ForgedRequestError("the request does not carry the secret of its session")
    return receive if body is None else _again(body, receive)


def _again(body: bytes, receive: Receive) -> Receive:
    read = False

    async def receiving() -> Message:
        nonlocal read
        if read:
            return await receive()
        read = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receiving
