"""A page for long work: how far it has come, and what came of it."""

from typing import Annotated, Final

from fastapi import APIRouter, Path
from starlette.requests import Request
from starlette.responses import Response

from holdproof.server.console.desk import Desk

router = APIRouter(include_in_schema=False)
_SHOWN_TO: Final = {
    "verification": ("verify", "run"),
    "bulk change": ("flows", "list"),
    "recovery": ("flows", "orphans"),
    "image": ("image", "list"),
}


@router.get("/jobs/{number}")
async def show(request: Request, number: Annotated[int, Path(ge=1, le=2**31)]) -> Response:
    """One job; the page renews itself as long as it runs."""
    desk = Desk(request)
    job = desk.state.jobs.get(number, desk.caller.ns)
    desk.require(*_SHOWN_TO[job.kind])
    return await desk.render("job.html", {"job": job})
