"""Logging in by the word of a proxy: one that people have to pass, and that tells in a header who they are.

Rules:
- The header counts only on connections that come from the proxy itself, and only where it stands there once.
- Only who is named (or everybody, by `*`) comes in, as what the server was told; a name alone opens nothing.
- The header opens a session, as a link does, after a click on our own page; requests of other sites use none of it.
- Where the proxy names somebody else than the session, the session counts no more: two people may share a browser. Nor
  does it where who is named may not come in any more, or as something else.
"""

from typing import Final

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from holdproof.errors import UnauthenticatedError
from holdproof.model.access import Login, NewLogin
from holdproof.server.state import ServerState, state_in

_FROM_PROXY: Final = "from_proxy"
_LINK_S: Final = 60.0


class TrustedProxy:
    """The outermost layer behind a proxy: believes its headers about callers, and marks what came through it."""

    def __init__(self, app: ASGIApp, addresses: str) -> None:
        self._app = ProxyHeadersMiddleware(app, trusted_hosts=addresses)  # type: ignore[arg-type]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Look at the connection before the headers say where the request came from."""
        client = scope.get("client")
        if client is not None and client[0] in self._app.trusted_hosts:
            scope.setdefault("state", {})[_FROM_PROXY] = True
        await self._app(scope, receive, send)  # type: ignore[arg-type]


def person(scope: Scope) -> str | None:
    """Return whom the proxy names; None where no proxy does, or where the header stands there twice."""
    login = state_in(scope).settings.proxy_login
    if login is None or not scope.get("state", {}).get(_FROM_PROXY):
        return None
    names = Headers(scope=scope).getlist(login.header)
    return names[0].strip() or None if len(names) == 1 else None


def admitted(scope: Scope) -> str | None:
    """Return whom the proxy names if they may come in: a page offers no login that is refused."""
    login = state_in(scope).settings.proxy_login
    name = person(scope)
    return name if login is not None and name is not None and login.role_of(name) else None


def counts(state: ServerState, session: Login, name: str | None) -> bool:
    """Return whether a session counts while the proxy names this person, or nobody."""
    login = state.settings.proxy_login
    # A token is its holder's own.
    if login is None or name is None or session.token_id is not None:
        return True
    return (session.name, session.role) == (name, login.role_of(name))


async def create_link(state: ServerState, scope: Scope) -> NewLogin:
    """Create a link for the person whom the proxy names; UnauthenticatedError for who may not come in."""
    name = person(scope)
    login = state.settings.proxy_login
    role = login.role_of(name) if login is not None and name is not None else None
    if name is None or role is None:
        raise UnauthenticatedError("the proxy names nobody who may come in here")
    return await state.store.logins.create_link(name=name, role=role, ttl_s=_LINK_S)
