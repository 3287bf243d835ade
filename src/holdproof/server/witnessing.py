"""`/witness`: this server cosigns the heads of other logs (C2SP tlog-witness), if it was started as a witness.

By the clock its own heads go to the witnesses of its log, to the time authority and to the log of the settings.
"""

import asyncio
import logging
from typing import Any, Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from holdproof.errors import CorruptError, HoldproofError, NotFoundError, TooLargeError, UnavailableError
from holdproof.evidence.witness_server import MOST_BYTES, Cosigner
from holdproof.server.state import ServerState, state_of

router = APIRouter(tags=["witness"])
_log = logging.getLogger("holdproof.server")
_PUBLIC: Final[dict[str, Any]] = {"security": []}
_TEXT: Final[dict[int | str, dict[str, Any]]] = {200: {"content": {"text/plain": {"schema": {"type": "string"}}}}}


@router.get(
    "/witness/key",
    summary="The verifier key of the witness that runs here.",
    response_class=Response,
    responses=_TEXT,
    openapi_extra=_PUBLIC,
)
async def key(request: Request) -> Response:
    """For everybody: who adds this witness compares it with what its operator says."""
    return PlainTextResponse(f"{_witness(request).key.encode()}\n")


@router.post(
    "/witness/add-checkpoint",
    summary="Cosign a log's head, if it continues the one that was cosigned before.",
    response_class=Response,
    responses=_TEXT,
    openapi_extra=_PUBLIC,
)
async def add_checkpoint(request: Request) -> Response:
    """For everybody: a head proves itself, and only logs that this server was started for are cosigned."""
    witness = _witness(request)
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > MOST_BYTES:
            raise TooLargeError(f"a request to a witness has at most {MOST_BYTES} bytes", most=MOST_BYTES)
    try:
        # It waits for the disk before it cosigns.
        answer = await asyncio.to_thread(witness.add_checkpoint, body)
    except CorruptError as error:
        raise UnavailableError("the witness cannot remember what it cosigned") from error
    return Response(answer.body, answer.status, media_type=answer.content_type)


def _witness(request: Request) -> Cosigner:
    witness = state_of(request).settings.witness
    if witness is None:
        raise NotFoundError("no witness runs here: `holdproof up --witness NAME --cosign KEY`")
    return witness


async def ask(state: ServerState) -> None:
    """Have the newest head cosigned by every witness of this log; what one says against it is logged, and an entry."""
    try:
        await state.store.witness.ask()
    except NotFoundError:  # there is none, or one does not know this log yet
        _log.debug("no witness cosigned the newest head", exc_info=True)
    except HoldproofError as error:
        _log.warning("%s", error.message)


async def stamp(state: ServerState) -> None:
    """Have the newest head stamped and anchored as the settings say, where that is due; a failure is logged."""
    try:
        await state.store.timestamps.beat()
    except HoldproofError as error:
        _log.warning("no time token: %s", error.message)
    try:
        await state.store.anchors.beat()
    except HoldproofError as error:
        _log.warning("no anchor: %s", error.message)
