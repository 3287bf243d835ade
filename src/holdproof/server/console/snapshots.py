"""States of memory: how snapshots differ, signing one, going back to one; and images. The list is memory_lists.py."""

from collections import Counter
from typing import Annotated, Final, NamedTuple

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from holdproof.model import differences as diffs
from holdproof.model.memory import Difference, plain
from holdproof.server.console.desk import Desk
from holdproof.server.pages import form

router = APIRouter(include_in_schema=False)

Text = Annotated[str, Query(max_length=1000)]
_MOST_PAGES: Final = 5


@router.get("/memory/diff")
async def diff(request: Request, old: Text, new: Text = "work", cursor: Text = "") -> Response:
    """How one state differs from another, object by object."""
    desk = Desk(request)
    difference = await desk.store.snapshots.diff(old, new, cursor=cursor or None, limit=50)
    changes = [(each, _changes(each)) for each in difference.differences]
    summary = await _summary(desk, old, new)
    return await desk.render("diff.html", {"diff": difference, "changes": changes, "summary": summary})


class DiffSummary(NamedTuple):
    """How many objects differ, by how they do; `exact` unless there were too many to count."""

    counts: dict[str, int]
    exact: bool

    @property
    def total(self) -> int:
        """All of them."""
        return sum(self.counts.values())


async def _summary(desk: Desk, old: str, new: str) -> DiffSummary:
    """Count what differs, page by page, up to a bound that keeps the page quick."""
    counts: Counter[str] = Counter()
    cursor: str | None = None
    for _ in range(_MOST_PAGES):
        page = await desk.store.snapshots.diff(old, new, cursor=cursor, limit=1000)
        counts.update(each.change for each in page.differences)
        cursor = page.next_cursor
        if cursor is None:
            break
    return DiffSummary(dict(sorted(counts.items())), cursor is None)


def _changes(one: Difference) -> list[diffs.FieldChange]:
    was, now = ({name: plain(pair[side]) for name, pair in one.fields.items()} for side in (0, 1))
    changes = diffs.compare({} if one.change == "added" else was, {} if one.change == "removed" else now)
    # A field that is empty on both sides is no difference to a reader.
    return [each for each in changes if each.kind != "same" and (each.old, each.new) != (None, None)]


@router.post("/memory/snapshot")
async def create(request: Request) -> Response:
    """Sign the objects as they are now."""
    desk = Desk(request)
    fields = await form(request)
    snapshot = await desk.store.snapshots.create(fields.get("message", "").strip()[:500], author=desk.caller.who)
    return desk.after("/memory/snapshots", f"Snapshot {snapshot.rev} is signed.")


@router.post("/memory/rollback")
async def rollback(request: Request) -> Response:
    """Let everything be as it was in a snapshot; the first time the difference is shown."""
    desk = Desk(request)
    fields = await form(request)
    to = fields.get("to", "")
    reason = fields.get("reason", "").strip()
    target = await desk.store.snapshots.get(to)
    if fields.get("confirmed") != "yes" or not reason:
        difference = await desk.store.snapshots.diff("work", target.cid, limit=50)
        summary = await _summary(desk, "work", target.cid)
        values = {"target": target, "diff": difference, "reason": reason, "summary": summary}
        return await desk.render("confirm_rollback.html", values)
    snapshot = await desk.store.snapshots.rollback(target.cid, author=desk.caller.who, reason=reason)
    name = target.message or target.rev
    return desk.after("/memory/snapshots", f"Everything is as it was in {name}; that is snapshot {snapshot.rev}.")


@router.post("/memory/image")
async def dump(request: Request) -> Response:
    """Write an image, watched on a page of its own."""
    desk = Desk(request)
    dump_image = desk.store.image.dump
    by = desk.caller.who
    job = desk.start("image", lambda progress: dump_image(author=by, progress=progress))
    return desk.after(f"/jobs/{job.number}")
