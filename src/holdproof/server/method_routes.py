"""The methods of the store as routes: who may call which, on what; and their OpenAPI description."""

from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi.openapi.utils import get_openapi
from starlette.middleware import Middleware

from holdproof.api.catalogue import MethodSpec
from holdproof.server import api, remote_contexts
from holdproof.server.exchange import Exchanges
from holdproof.server.permissions import permit, require, signed
from holdproof.server.state import caller_of, state_of


def part(app: FastAPI) -> None:
    """Add the routes of all methods to a server."""
    exchanges = Exchanges()
    app.include_router(remote_contexts.router(guard, who, exchanges))
    # The innermost layer: every other one has passed before a method is looked up, and the router comes after it.
    app.user_middleware.append(Middleware(api.MethodEndpoints, guard, exchanges, admit))
    app.openapi = lambda: _described(app)  # type: ignore[method-assign]


def admit(request: Request, entry: MethodSpec) -> None:
    """Let a caller use a method at all, or raise; what it is called with, the guard looks at."""
    if entry.exposure.public:
        return
    require(caller_of(request), entry.resource, entry.method)


async def guard(request: Request, entry: MethodSpec, arguments: Mapping[str, Any]) -> api.Granted:
    """Let a caller do something to the store as they may see it, or raise."""
    state = state_of(request)
    if entry.exposure.public:
        # Not as the caller may see it: what proves the right names its namespace itself.
        return api.Granted(state.store, "public")
    caller = caller_of(request)
    store = state.store_for(caller, entry.resource)
    await permit(store, caller, entry.resource, entry.method, arguments)
    return api.Granted(store, await who(request), signed(caller, entry, arguments), caller.agent_id)


async def who(request: Request) -> str:
    """The caller, apart from every other."""
    caller = caller_of(request)
    return f"{caller.who}:{caller.token_id or caller.login_id or caller.ns}"


def _described(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI document: the routes, and the schemas that they speak of."""
    if app.openapi_schema is None:
        document = get_openapi(title=app.title, version=app.version, summary=app.summary, routes=app.routes)
        document["paths"] = api.paths() | document.get("paths", {})
        document.setdefault("components", {}).setdefault("schemas", {}).update(api.components())
        document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        document["security"] = [{"token": []}]
        app.openapi_schema = document
    return app.openapi_schema
