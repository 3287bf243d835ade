"""The description of the API, for people; programs read /openapi.json."""

from typing import Any, Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from holdfast.server.pages import page

router = APIRouter(include_in_schema=False)
_METHODS: Final = frozenset({"get", "post", "put", "patch", "delete"})


@router.get("/docs")
async def show(request: Request) -> Response:
    """Every address with what it takes, without a line of script."""
    described = request.app.openapi()
    return page(request, "docs.html", {"described": described, "groups": _grouped(described)})


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
