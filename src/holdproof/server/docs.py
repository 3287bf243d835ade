"""The description of the API, for programs and for people.

It is cheap to ask for and dear to make, and anybody may ask: each page is made once, and its bytes are kept. Only the
list of what a search finds is made for each search, from what was laid out before.
"""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Any, Final

from fastapi import APIRouter, Path, Query
from starlette.requests import Request
from starlette.responses import Response

from holdproof.errors import NotFoundError
from holdproof.server import api_reference
from holdproof.server.api_reference import ApiResource
from holdproof.server.pages import page
from holdproof.server.state import ServerState, state_of

router = APIRouter(include_in_schema=False)
_HTML: Final = "text/html"
_FEW: Final = 3
"""So many methods of a resource stand open; of more, each is folded below what it does."""


@router.get("/openapi.json")
async def describe(request: Request) -> Response:
    """The OpenAPI document."""
    return _cached(request, "application/json", lambda: json.dumps(request.app.openapi()).encode())


@router.get("/docs")
async def show(request: Request, q: Annotated[str, Query(max_length=100)] = "") -> Response:
    """Every address in a line, by its resource, and those that have some words."""
    if q.strip():
        return _page(request, "docs.html", {"resources": _matching(_resources(request), q), "q": q.strip()})
    return _cached(
        request, _HTML, lambda: _made(request, "docs.html", {"resources": _resources(request), "q": ""}), "/docs"
    )


@router.get("/docs/{name}")
async def one(request: Request, name: Annotated[str, Path(max_length=100)]) -> Response:
    """The addresses of one resource, each with what it takes, a call, and an example of its answer."""
    resource = next((each for each in _resources(request) if each.name == name), None)
    if resource is None:
        raise NotFoundError(f"there is no resource {name}", resource=name)
    return _cached(
        request,
        _HTML,
        lambda: _made(request, "docs_resource.html", {"resource": resource, "few": _FEW}),
        f"/docs/{name}",
    )


def _resources(request: Request) -> tuple[ApiResource, ...]:
    """Return what the API has, laid out once."""
    state: ServerState = state_of(request)
    if state.reference is None:
        state.reference = api_reference.resources(request.app.openapi())
    return state.reference


def _matching(resources: tuple[ApiResource, ...], words: str) -> list[ApiResource]:
    narrowed = (
        replace(each, addresses=tuple(one for one in each.addresses if one.matches(words))) for each in resources
    )
    return [each for each in narrowed if each.addresses]


def _made(request: Request, template: str, values: dict[str, Any]) -> bytes:
    return bytes(_page(request, template, values).body)


def _page(request: Request, template: str, values: dict[str, Any]) -> Response:
    about = {"groups": (*api_reference.GROUPS, api_reference.SERVER), "contents": _resources(request), **values}
    return page(request, template, about)


def _cached(request: Request, media: str, make: Callable[[], bytes], name: str = "") -> Response:
    """What was made the first time it was asked for."""
    documents = state_of(request).described
    key = name or media
    # Two first requests may both build it; the result is the same, so no lock is needed.
    if key not in documents:
        documents[key] = make()
    return Response(documents[key], media_type=media)
