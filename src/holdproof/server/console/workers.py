"""Workers, and the lengths of queues."""

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from holdproof.model.page import Page
from holdproof.server.console.desk import Desk, or_default

router = APIRouter(include_in_schema=False)


@router.get("/workers")
async def show(request: Request) -> Response:
    """Which workers there are, and what waits for them."""
    desk = Desk(request)
    limits = (await or_default(desk.store.queues.list(limit=1000), Page([]))).items
    values = {
        "workers": await desk.store.workers.list(limit=1000),
        "lengths": await or_default(desk.store.queues.lengths(), ()),
        "limits": {queue.name: queue for queue in limits},
    }
    return await desk.render("workers.html", values)
