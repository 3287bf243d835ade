"""Memory: what agents know, object by object, with what each has been."""

from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from holdproof.model import differences as diffs
from holdproof.model.memory import Object, plain
from holdproof.server.console.desk import Desk, or_default
from holdproof.validation import LAST

router = APIRouter(include_in_schema=False)

Text = Annotated[str, Query(max_length=1000)]
Number = Annotated[int | None, Query(ge=0, le=LAST)]


@router.get("/memory")
async def show(request: Request, q: Text = "", cursor: Text = "") -> Response:
    """Where the graph begins, or what a search finds."""
    desk = Desk(request)
    store = desk.store
    values = {
        "q": q,
        "found": await _search(desk, q.strip()) if q.strip() else None,
        "roots": await or_default(store.graph.roots(limit=100), ()),
        "page": await store.objects.list(cursor=cursor or None, limit=50),
        "snapshots": await or_default(store.snapshots.list(limit=5)),
        "images": await or_default(store.image.list(limit=20)),
    }
    return await desk.render("memory.html", values)


async def _search(desk: Desk, q: str) -> list[Any]:
    """What a search finds; an object is found by its own id too, and comes first."""
    named = await or_default(desk.store.objects.get(q))
    hits = list(await desk.store.objects.search(q, limit=50))
    return [*([named] if named else []), *(each for each in hits if each.id != q)]


@router.get("/memory/object")
async def one(request: Request, id: Text, at: Text = "", old: Number = None, new: Number = None) -> Response:
    """One object: what it is, what lies around it, what it has been, and how two of its versions differ."""
    desk = Desk(request)
    store = desk.store
    current = await or_default(store.objects.get(id, at=at or None))
    history = await store.objects.history(id, limit=50)
    # Deleted objects still have a history to show; with neither, ask again and let NotFoundError through.
    if current is None and not history.items:
        current = await store.objects.get(id, at=at or None)
    values = {
        "id": id,
        "at": at,
        "object": current,
        "children": await or_default(store.objects.children(id, at=at or None), ()),
        "history": history.items,
        "old": old,
        "new": new,
        "changes": await _between(desk, id, old, new) if new is not None else None,
    }
    return await desk.render("object.html", values)


async def _between(desk: Desk, id: str, old: int | None, new: int) -> list[diffs.FieldChange]:
    """How one version of an object differs from another; from nothing where that is not there."""
    before = None if old is None else await or_default(desk.store.objects.get(id, version=old))
    after = await or_default(desk.store.objects.get(id, version=new))
    return diffs.compare(_facts(before), _facts(after))


def _facts(item: Object | None) -> dict[str, Any]:
    names = ("type", "parent", "children", "attributes", "content")
    return {} if item is None else {name: plain(getattr(item, name)) for name in names}
