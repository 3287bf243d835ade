"""The description of the API, for programs and for people.

It is cheap to ask for and dear to make, and anybody may ask: it is made once, and its bytes are kept.
"""

import json
from collections.abc import Callable
from typing import Any, Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from holdproof.server.pages import page
from holdproof.server.state import state_of

router = APIRouter(include_in_schema=False)
_METHODS: Final = frozenset({"get", "post", "put", "patch", "delete"})


@router.get("/openapi.json")
async def describe(request: Request) -> Response:
    """The OpenAPI document."""
    return _cached(request, "application/json", lambda: json.dumps(request.app.openapi()).encode())


@router.get("/docs")
async def show(request: Request) -> Response:
    """Every address with what it takes, without a line of script."""

    def build() -> bytes:
        described = request.app.openapi()
        return bytes(page(request, "docs.html", {"described": described, "groups": _grouped(described)}).body)

    return _cached(request, "text/html", build)


def _cached(request: Request, media: str, make: Callable[[], bytes]) -> Response:
    """What was made the first time it was asked for."""
    documents = state_of(request).described
    # Two first requests may both build it; the result is the same, so no lock is needed.
    if media not in documents:
        documents[media] = make()
    return Response(documents[media], media_type=media)


def _grouped(described: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """The operations of a description, by tag."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for path, methods in sorted(described.get("paths", {}).items()):
        for method, about in methods.items():
            if method in _METHODS:
                one = {"path": path, "method": method.upper(), **about}
                for tag in about.get("tags") or ["server"]:
                    groups.setdefault(tag, []).append(one)
    return groups
