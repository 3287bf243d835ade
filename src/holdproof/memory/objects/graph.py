"""The graph of objects: what lies below one, as a tree or in order.

Rules:
- Below an object are the children it names, in their order, then those that name it as their parent.
- No object is shown twice: a ring ends where it would begin again.
- What is asked for is bounded, in depth and in number; what was left out is said (`cut`).
"""

from collections.abc import Iterator
from typing import Final

from holdproof import paging
from holdproof.db import Tx, sql
from holdproof.errors import InvalidInputError, NotFoundError
from holdproof.memory.objects import family, objects, records
from holdproof.memory.objects.records import OBJECT
from holdproof.memory.objects.tree_transaction import MAIN, TreeReader
from holdproof.model.memory import Branch, Object
from holdproof.model.page import Page

DEPTH: Final = 64
MOST: Final = 10_000

_ROOTS = sql(
    "SELECT i.key FROM object_index i WHERE i.ns = :ns AND (i.parent IS NULL OR NOT EXISTS"
    " (SELECT 1 FROM object_index p WHERE p.ns = i.ns AND p.key = i.parent))"
    " AND i.key > :after ORDER BY i.key LIMIT :limit"
)


def roots(tx: Tx, *, cursor: str | None = None, limit: int = 100, ns: str = MAIN) -> Page[Object]:
    """List the objects without a parent, or whose parent is not there, by their keys."""
    view = objects.view_at(tx, None, ns)
    (after,) = paging.decode(cursor, "")
    keys = [key for (key,) in tx.all(_ROOTS, ns=ns, after=after, limit=paging.fetch(limit))]
    page = paging.page(keys, limit, lambda key: (key,))
    return Page([objects.read(view, key, ns) for key in page.items if view.find(OBJECT + key)], page.next_cursor)


def subtree(tx: Tx, id: str, *, depth: int = DEPTH, limit: int = MOST, at: str | None = None, ns: str = MAIN) -> Branch:
    """Return an object with all that lies below it, now or in a snapshot."""
    _check(depth, limit)
    growing = _Growing(objects.view_at(tx, at, ns), tx if at is None else None, limit, ns)
    return growing.branch(_begin(growing.view, id), depth)


def walk(
    tx: Tx, id: str, *, depth: int = DEPTH, limit: int = MOST, at: str | None = None, ns: str = MAIN
) -> tuple[Object, ...]:
    """Return an object and all that lies below it, each before what is below it."""
    return tuple(_flat(subtree(tx, id, depth=depth, limit=limit, at=at, ns=ns)))


def _flat(branch: Branch) -> Iterator[Object]:
    waiting = [branch]
    while waiting:
        one = waiting.pop()
        yield one.object
        waiting.extend(reversed(one.children))


def _begin(view: TreeReader, id: str) -> str:
    key = records.key_of(id)
    if view.find(OBJECT + key) is None:
        raise NotFoundError(f"there is no object {id}", listed_by="objects list", id=id)
    return key


def _check(depth: int, limit: int) -> None:
    if not 0 <= depth <= DEPTH or not 1 <= limit <= MOST:
        raise InvalidInputError(f"a subtree has at most {DEPTH} levels and {MOST:,} objects", depth=depth, limit=limit)


class _Growing:
    """A subtree being gathered."""

    def __init__(self, view: TreeReader, tx: Tx | None, limit: int, ns: str) -> None:
        self.view = view
        self.left = limit
        self.ns = ns
        self.family = family.Family(view, tx, ns)
        self.met: set[str] = set()

    def branch(self, key: str, depth: int) -> Branch:
        self.met.add(key)
        self.left -= 1
        one = objects.read(self.view, key, self.ns)
        children = []
        missing = []
        cut = False
        for child in self.family.of(one):
            if self.view.find(OBJECT + child) is None:
                missing.append(records.id_of(child))
            elif child not in self.met:
                if depth == 0 or self.left <= 0:
                    cut = True
                    break
                children.append(self.branch(child, depth - 1))
        return Branch(one, tuple(children), tuple(missing), cut)
