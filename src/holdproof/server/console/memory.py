"""Memory: what agents know, object by object, with what each has been."""

from collections import Counter
from typing import Annotated, Any, Final, NamedTuple

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from holdproof.errors import ErasedError, NotFoundError, PrunedError
from holdproof.model import differences as diffs
from holdproof.model.memory import Object, ObjectVersion, plain
from holdproof.model.page import Page
from holdproof.server.console.desk import Desk, or_default
from holdproof.validation import LAST

router = APIRouter(include_in_schema=False)

Text = Annotated[str, Query(max_length=1000)]
Number = Annotated[int | None, Query(ge=0, le=LAST)]
_VERSIONS: Final = 50
_USES: Final = 50
_CHILDREN: Final = 50


@router.get("/memory")
async def show(request: Request, q: Text = "", prefix: Text = "", cursor: Text = "") -> Response:
    """What there is, folder by folder; where the graph begins, or what a search finds."""
    desk = Desk(request)
    store = desk.store
    values = {
        "q": q,
        "found": await _search(desk, q.strip()) if q.strip() else None,
        "roots": await or_default(store.graph.roots(limit=30), Page([])),
        "prefix": prefix,
        "way": _way(prefix),
        "tree": await or_default(store.objects.folders(prefix=prefix)),
        "page": await store.objects.list(prefix=prefix, cursor=cursor or None, limit=50),
        "snapshots": await or_default(store.snapshots.list(limit=5)),
        "images": await or_default(store.image.list(limit=20)),
    }
    return await desk.render("memory.html", values)


def _way(prefix: str) -> list[tuple[str, str]]:
    """Return the folders on the way to a prefix, the outermost first: what each is called, and its prefix."""
    names = prefix.split("/")
    way = [(f"{name}/", "/".join(names[: place + 1]) + "/") for place, name in enumerate(names[:-1])]
    return [*way, (names[-1], prefix)] if names[-1] else way


async def _search(desk: Desk, q: str) -> list[Any]:
    """What a search finds; an object is found by its own id too, and comes first."""
    named = await or_default(desk.store.objects.get(q))
    hits = list(await desk.store.objects.search(q, limit=50))
    return [*([named] if named else []), *(each for each in hits if each.id != q)]


class VersionDiff(NamedTuple):
    """How one write of an object differs from another: the writes, what differs, how many of which kind."""

    old: int | None
    new: int
    changes: list[diffs.FieldChange]
    counts: dict[str, int]
    lost_why: str
    """Why one of them cannot be shown: it was erased, or pruned."""


@router.get("/memory/object")
async def one(
    request: Request,
    *,
    id: Text,
    at: Text = "",
    old: Number = None,
    new: Number = None,
    cursor: Text = "",
    used: Text = "",
    below: Text = "",
) -> Response:
    """One object: who wrote it in which flow, how its versions differ, where it was used, and what is around it."""
    desk = Desk(request)
    store = desk.store
    current = await or_default(store.objects.get(id, at=at or None))
    history = await store.objects.history(id, cursor=cursor or None, limit=_VERSIONS)
    # Deleted objects still have a history to show; with neither, ask again and let NotFoundError through.
    if current is None and not history.items and not cursor:
        current = await store.objects.get(id, at=at or None)
    pair = _pair(history.items, old, new)
    values = {
        "id": id,
        "at": at,
        "object": current,
        "children": await or_default(
            store.objects.children(id, at=at or None, cursor=below or None, limit=_CHILDREN), Page([])
        ),
        "below": below,
        "history": history,
        "cursor": cursor,
        "written": history.items[0] if history.items and not cursor else None,
        "uses": await or_default(store.objects.uses(id, cursor=used or None, limit=_USES), Page([])),
        "used": used,
        "diff": await _between(desk, id, *pair) if pair else None,
    }
    return await desk.render("object.html", values)


def _pair(history: list[ObjectVersion], old: int | None, new: int | None) -> tuple[int | None, int] | None:
    """Return which writes are compared: those that are asked for, else the newest two; None where there is only one."""
    if new is not None:
        return old, new
    return (history[1].n, history[0].n) if len(history) > 1 else None


async def _between(desk: Desk, id: str, old: int | None, new: int) -> VersionDiff:
    """Return how one version of an object differs from another; from nothing where that is not there."""
    before, lost_before = (None, "") if old is None else await _version(desk, id, old)
    after, lost_after = await _version(desk, id, new)
    lost_why = lost_before or lost_after
    changes = [] if lost_why else [each for each in diffs.compare(_facts(before), _facts(after)) if _differs(each)]
    return VersionDiff(old, new, changes, dict(Counter(each.kind for each in changes)), lost_why)


def _differs(change: diffs.FieldChange) -> bool:
    # A field that is empty on both sides is no difference to a reader.
    return change.kind != "same" and any(each not in (None, (), [], {}) for each in (change.old, change.new))


async def _version(desk: Desk, id: str, number: int) -> tuple[Object | None, str]:
    """Return a version, or why it cannot be shown; neither where the object was deleted, or not there."""
    try:
        return await desk.store.objects.get(id, version=number), ""
    except (ErasedError, PrunedError) as error:
        return None, error.message
    except NotFoundError:
        return None, ""


def _facts(item: Object | None) -> dict[str, Any]:
    names = ("type", "parent", "children", "attributes", "content")
    return {} if item is None else {name: plain(getattr(item, name)) for name in names}
