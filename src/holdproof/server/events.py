"""Server-sent events: flows and escalations as they change.

Every event has an id that says how far the stream has come; a browser sends the last one back as Last-Event-ID, and the
stream goes on from there. After a break an event may come a second time; its `id` inside the data tells. A caller whose
token or session ends is sent no more: that is looked at every heartbeat, however much there is to tell.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Set
from contextlib import suppress
from typing import Annotated, Final

from fastapi import APIRouter, Header, Query
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from holdproof import validation
from holdproof.errors import ForbiddenError, HoldproofError, NamespaceError, RateLimitedError
from holdproof.model.change_feed import Change, Cursor
from holdproof.model.times import END
from holdproof.runtime import change_feed
from holdproof.server.permissions import Caller
from holdproof.server.state import ServerState, caller_of, recheck, state_of

router = APIRouter(tags=["events"])
_KINDS: Final = {"flow": "flows", "escalation": "escalations", "resolution": "escalations"}
_BREATH_S: Final = 0.05


@router.get(
    "/v1/events",
    summary="Flows and escalations as they change.",
    response_class=StreamingResponse,
    responses={200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}},
)
async def follow(
    request: Request,
    ns: Annotated[str | None, Query(max_length=500, description="Only this namespace.")] = None,
    since: Annotated[str, Query(max_length=40, description="From this moment on, within the last minute.")] = END,
    last_event_id: Annotated[str | None, Header(max_length=200, description="Where to go on.")] = None,
) -> Response:
    """A stream of `flow`, `escalation` and `resolution` events: all that the caller may see, from now or an id on."""
    state = state_of(request)
    caller = caller_of(request)
    if caller.ns is not None and ns not in (None, caller.ns):
        raise NamespaceError(f"this token is for the namespace {caller.ns} only", ns=caller.ns)
    if not _kinds(caller):
        raise ForbiddenError("this token has neither flows nor escalations")
    page_made_at = since if since == END else validation.moment("since", since)
    began = (
        (change_feed.parse(last_event_id), frozenset())
        if last_event_id
        else await state.store.read(lambda tx: change_feed.begin(tx, moment=page_made_at))
    )
    stream = _stream(request, state, caller, ns or caller.ns, began)
    return EventResponse(stream, state, caller)


class EventResponse(StreamingResponse):
    """The answer of a stream, counted from the moment it is allowed to its end.

    Each stream holds a connection and reads the store at every commit: their number is bounded, and of one caller more
    tightly, so that nobody keeps the others from theirs.
    """

    def __init__(self, stream: AsyncIterator[bytes], state: ServerState, caller: Caller) -> None:
        self._streams = state.streams
        self._caller = f"{caller.who}:{caller.token_id or caller.login_id or caller.ns}"
        settings = state.settings
        full = self._streams.total() >= settings.most_streams
        if full or self._streams[self._caller] >= settings.most_streams_per_caller:
            raise RateLimitedError("too many streams are open", retry_after_s=settings.heartbeat_s)
        # Counted here and not when the stream begins: others could pass the check in between.
        self._streams[self._caller] += 1
        super().__init__(stream, media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the stream; it counts no more when it has ended, or could not begin."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._streams[self._caller] -= 1
            if not self._streams[self._caller]:
                del self._streams[self._caller]


def _kinds(caller: Caller) -> frozenset[str]:
    """The kinds of events that a caller may see."""
    if caller.role == "agent" or caller.resources is None:
        return frozenset(_KINDS)
    return frozenset(kind for kind, resource in _KINDS.items() if resource in caller.resources)


async def _stream(
    request: Request,
    state: ServerState,
    caller: Caller,
    ns: str | None,
    began: tuple[Cursor, Set[tuple[str, int | str]]],
) -> AsyncIterator[bytes]:
    place, reported = began
    kinds = _kinds(caller)
    quiet = time.monotonic()
    checked = quiet
    state.metrics.streams += 1
    try:
        with state.commits.subscription() as wake:
            yield b"retry: 2000\n\n"
            while not state.stopping.is_set():
                # Cleared before the read: a commit that comes during it wakes the wait below at once.
                wake.clear()
                changes, further = await state.store.read(
                    lambda tx: change_feed.since(tx, place, agent_id=caller.agent_id, ns=ns)  # noqa: B023 (awaited here)
                )
                # The last read may overlap with this one; what was already sent is left out.
                fresh = [each for each in changes if each.kind in kinds and (each.kind, each.id) not in reported]
                reported = {(each.kind, each.id) for each in changes}
                moved = further != place
                place = further
                now = time.monotonic()
                # Asked by the clock and not when idle: a busy stream would otherwise outlive a revoked token.
                if now - checked >= state.settings.heartbeat_s:
                    await recheck(request.scope)
                    checked = now
                if fresh:
                    yield b"".join(map(_frame, fresh)) + f"id: {place}\n\n".encode()
                    quiet = now
                elif now - quiet >= state.settings.heartbeat_s:
                    yield b": still here\n\n"
                    quiet = now
                await _rest(state, wake, briefly=moved)
    except HoldproofError:
        return  # the caller's right has ended, or the store cannot be read: they come back and are told why
    finally:
        state.metrics.streams -= 1


async def _rest(state: ServerState, wake: asyncio.Event, *, briefly: bool) -> None:
    """Until something was committed here, or it is time to look what others did; a moment where there may be more."""
    # Commits come in bursts; one read after a short pause serves many of them.
    await asyncio.sleep(_BREATH_S)
    if not state.stopping.is_set() and not briefly:
        with suppress(TimeoutError):
            await asyncio.wait_for(wake.wait(), state.settings.poll_s)


def _frame(one: Change) -> bytes:
    data = json.dumps({"id": one.id, "at": one.at, **one.about})
    return f"event: {one.kind}\ndata: {data}\n\n".encode()
