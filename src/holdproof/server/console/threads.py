"""One thread: its conversation, its checkpoints with forks, how two of them differ. The lists are memory_lists.py."""

from collections.abc import Mapping
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from holdproof.model import differences as diffs
from holdproof.model.threads import Checkpoint
from holdproof.server.console import messages
from holdproof.server.console.desk import Desk, or_default

router = APIRouter(include_in_schema=False)

Text = Annotated[str, Query(max_length=500)]
Cursor = Annotated[str | None, Query(max_length=500)]
_CHECKPOINTS: Final = 100


@router.get("/threads/thread")
async def one(request: Request, id: Text, at: Text = "", old: Text = "", cursor: Cursor = None) -> Response:
    """One thread: its conversation at a checkpoint, all checkpoints as a rail, and what changed between two."""
    desk = Desk(request)
    thread = await desk.store.threads.get(id)
    page = await desk.store.threads.list_checkpoints(id, cursor=cursor, limit=_CHECKPOINTS)
    chosen = await or_default(desk.store.threads.get_checkpoint(id, checkpoint_id=at or None))
    before = await or_default(desk.store.threads.get_checkpoint(id, checkpoint_id=old)) if old else None
    values = {
        "thread": thread,
        "rail": _rail(page.items),
        "page": page,
        "checkpoint": chosen,
        "messages": messages.conversation(_state(chosen)) if chosen else (),
        "changes": diffs.compare(_state(before), _state(chosen)) if before and chosen else None,
        "old": old,
    }
    return await desk.render("thread.html", values)


@router.get("/threads/transcript")
async def transcript(request: Request, name: Text) -> Response:
    """One transcript with its newest items."""
    desk = Desk(request)
    items = await desk.store.transcripts.list_items(name, limit=200)
    values = {
        "transcript": await desk.store.transcripts.get(name),
        "messages": messages.of_items(each.value for each in reversed(items.items)),
    }
    return await desk.render("transcript.html", values)


def _state(checkpoint: Checkpoint | None) -> Mapping[str, Any]:
    return {} if checkpoint is None else messages.readable(checkpoint)


def _rail(checkpoints: list[Any]) -> list[tuple[Any, int, bool]]:
    """Checkpoints, newest first, each with its lane, and whether it is where a line was forked."""
    lanes: dict[str, int] = {}
    children: dict[str, int] = {}
    for each in checkpoints:
        if each.parent_id:
            children[each.parent_id] = children.get(each.parent_id, 0) + 1
    following = 0
    for each in checkpoints:
        if each.checkpoint_id not in lanes:
            lanes[each.checkpoint_id] = following
            following += 1
        if each.parent_id:
            # The line that comes first keeps its lane on the way down; others join it at the fork.
            lanes[each.parent_id] = min(lanes.get(each.parent_id, following), lanes[each.checkpoint_id])
    return [(each, lanes[each.checkpoint_id], children.get(each.checkpoint_id, 0) > 1) for each in checkpoints]
