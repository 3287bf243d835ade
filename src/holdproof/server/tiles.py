"""The log for everybody who checks it: its signed head and its tiles, at the addresses of C2SP tlog-tiles."""

from typing import Any, Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from holdproof.client import Holdproof
from holdproof.errors import FormatError, NotFoundError
from holdproof.server.permissions import permit
from holdproof.server.state import caller_of, state_of

router = APIRouter(tags=["log"])
_NOTE: Final[dict[int | str, dict[str, Any]]] = {200: {"content": {"text/plain": {"schema": {"type": "string"}}}}}
_BYTES: Final[dict[int | str, dict[str, Any]]] = {200: {"content": {"application/octet-stream": {"schema": {}}}}}
_FOREVER: Final = "public, max-age=31536000, immutable"


@router.get("/checkpoint", summary="The newest signed head of the log.", response_class=Response, responses=_NOTE)
async def checkpoint(request: Request) -> Response:
    """A signed note (C2SP tlog-checkpoint)."""
    store = await _readable(request, "head")
    head = await store.log.head()
    return Response(head.encode(), media_type="text/plain; charset=utf-8")


@router.get(
    "/tile/{path:path}", summary="A tile of hashes, or a bundle of entries.", response_class=Response, responses=_BYTES
)
async def tile(request: Request, path: str) -> Response:
    """Bytes as C2SP tlog-tiles lays them out; a full tile never changes."""
    store = await _readable(request, "tile")
    try:
        data = await store.log.tile(f"tile/{path}")
    except FormatError as error:
        raise NotFoundError("there is no such tile", path=path[:100]) from error
    # A partial tile (`.p/` in its path, C2SP tlog-tiles) is replaced as the log grows: it must not be cached.
    headers = {} if ".p/" in path else {"Cache-Control": _FOREVER}
    return Response(data, headers=headers, media_type="application/octet-stream")


async def _readable(request: Request, method: str) -> Holdproof:
    """The store, if its log is for everybody or for this caller."""
    state = state_of(request)
    if state.settings.public_log:
        return state.store
    caller = caller_of(request)
    await permit(state.store, caller, "log", method, {})
    return state.store_for(caller)
