"""Streams of flows as server-sent events: one event for each item, its id the offset.

A browser that was interrupted sends the last id back as Last-Event-ID, and the stream goes on after it. The event `end`
says that there will be no more, `failed` (with problem details) why the rest cannot be read. A stream that breaks off
without either is to be followed again.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from holdproof.errors import HoldproofError, InvalidInputError, UnauthenticatedError
from holdproof.model.messages import StreamItem
from holdproof.server.events import EventResponse
from holdproof.server.permissions import permit
from holdproof.server.problems import problem_details
from holdproof.server.state import ServerState, caller_of, recheck, state_of

router = APIRouter(tags=["events"])


@router.get(
    "/v1/streams",
    summary="The items of a flow's stream as they are written.",
    response_class=StreamingResponse,
    responses={200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}},
)
async def follow(
    request: Request,
    flow_id: Annotated[str, Query(max_length=500, description="The flow's id.")],
    stream: Annotated[str, Query(max_length=500, description="The name of the stream.")],
    *,
    offset: Annotated[int, Query(ge=0, description="The offset of the first item.")] = 0,
    ns: Annotated[str | None, Query(max_length=500, description="The namespace.")] = None,
    last_event_id: Annotated[str | None, Header(max_length=20, description="The last offset received.")] = None,
) -> Response:
    """A stream of `item` events from an offset on, and `end` where the stream was closed or its flow has ended."""
    state = state_of(request)
    caller = caller_of(request)
    store = state.store_for(caller, "flows")
    about = {"flow_id": flow_id, "stream": stream}
    await permit(store, caller, "flows", "stream", about)
    start = offset if last_event_id is None else _after(last_event_id)
    # Asked before the answer begins: then it is an answer of its own that there is no such flow.
    in_namespace: dict[str, Any] = {} if ns is None else {"ns": ns}
    await store.flows.get(flow_id, **in_namespace)
    items = store.flows.stream(flow_id, stream, offset=start, **in_namespace)
    return EventResponse(_events(request, state, items), state, caller)


def _after(last_event_id: str) -> int:
    if not last_event_id.isascii() or not last_event_id.isdigit():
        raise InvalidInputError("Last-Event-ID is the offset of an item", parameter="Last-Event-ID")
    return int(last_event_id) + 1


async def _events(request: Request, state: ServerState, items: AsyncIterator[StreamItem]) -> AsyncIterator[bytes]:
    state.metrics.streams += 1
    heartbeat_s = state.settings.heartbeat_s
    checked = time.monotonic()
    following: asyncio.Task[StreamItem | None] | None = None
    stopping = asyncio.ensure_future(state.stopping.wait())
    try:
        yield b"retry: 2000\n\n"
        while not state.stopping.is_set():
            following = following or asyncio.ensure_future(_next(items))
            await asyncio.wait({following, stopping}, timeout=heartbeat_s, return_when=asyncio.FIRST_COMPLETED)
            # By the clock and not when idle: a busy stream would otherwise outlive a revoked token.
            if time.monotonic() - checked >= heartbeat_s:
                await recheck(request.scope)
                checked = time.monotonic()
            if not following.done():
                yield b": still here\n\n"
                continue
            item = following.result()
            following = None
            if item is None:
                yield b"event: end\ndata: {}\n\n"
                return
            yield f"id: {item.offset}\nevent: item\ndata: {json.dumps(item.recorded)}\n\n".encode()
    except UnauthenticatedError:
        return  # the caller's right has ended: they come back and are told why
    except HoldproofError as error:
        yield f"event: failed\ndata: {json.dumps(problem_details(request.scope, error))}\n\n".encode()
    finally:
        state.metrics.streams -= 1
        for task in (following, stopping):
            if task is not None:
                task.cancel()


async def _next(items: AsyncIterator[StreamItem]) -> StreamItem | None:
    return await anext(items, None)
