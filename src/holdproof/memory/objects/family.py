"""Who is below whom: the children that an object names, in their order, then those that name it as their parent."""

from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import islice
from typing import Final, NamedTuple

from holdproof import paging
from holdproof.crypto import mst
from holdproof.db import Tx, sql
from holdproof.errors import NotFoundError
from holdproof.memory.objects import objects, records
from holdproof.memory.objects.records import OBJECT
from holdproof.memory.objects.tree_transaction import MAIN, TreeReader
from holdproof.model.memory import Object
from holdproof.model.page import Page

_MOST_CHILDREN: Final = 10_000
_BATCH: Final = 200

_CHILDREN = sql("SELECT key FROM object_index WHERE ns = :ns AND parent = :key LIMIT :limit")
_CHILDREN_ON = sql(
    "SELECT key FROM object_index WHERE ns = :ns AND parent = :key AND key > :after ORDER BY key LIMIT :limit"
)


class Family:
    """Who is below whom: an index knows of the present; of a snapshot, all records are read once."""

    def __init__(self, view: TreeReader, tx: Tx | None, ns: str) -> None:
        self.view = view
        self.tx = tx
        self.ns = ns

    def of(self, parent: Object) -> list[str]:
        """Return the keys of an object's children: those it names, in their order, then those that name it."""
        key = records.key_of(parent.id)
        if self.tx is not None:
            others = sorted(child for (child,) in self.tx.all(_CHILDREN, ns=self.ns, key=key, limit=_MOST_CHILDREN))
        else:
            others = self._read.get(key, [])
        return [*dict.fromkeys((*named_keys(parent), *others))]

    def naming(self, parent: Object, after: str) -> Iterator[str]:
        """Yield the keys of those that name an object as their parent, after one of them, in their order."""
        key = records.key_of(parent.id)
        if self.tx is None:
            yield from (child for child in self._read.get(key, []) if child > after)
            return
        while True:
            batch = [child for (child,) in self.tx.all(_CHILDREN_ON, ns=self.ns, key=key, after=after, limit=_BATCH)]
            yield from batch
            if len(batch) < _BATCH:
                return
            after = batch[-1]

    @cached_property
    def _read(self) -> dict[str, list[str]]:
        children: dict[str, list[str]] = {}
        for key, cid in mst.walk_prefix(self.view.get, self.view.root, OBJECT):
            if (parent := self.view.record(cid).parent) is not None:
                children.setdefault(records.key_of(parent), []).append(key[len(OBJECT) :])
        return children


def named_keys(parent: Object) -> list[str]:
    """Return the keys of the children that an object names, each once."""
    return [*dict.fromkeys(records.key_of(child) for child in parent.children)]


class _Child(NamedTuple):
    """A child, and where the next page begins: how many named ones are passed, and which other one."""

    object: Object
    place: int
    key: str


def children(
    tx: Tx, id: str, *, at: str | None = None, cursor: str | None = None, limit: int = 100, ns: str = MAIN
) -> Page[Object]:
    """List the objects below an object: those it names, in their order, then others that name it as their parent."""
    place, after = paging.decode(cursor, 0, "")
    view = objects.view_at(tx, at, ns)
    key = records.key_of(id)
    if view.find(OBJECT + key) is None:
        raise NotFoundError(f"there is no object {id}", listed_by="objects list", id=id)
    parent = objects.read(view, key, ns)
    below = _below(Family(view, tx if at is None else None, ns), parent, place, after)
    listed = (
        _Child(objects.read(view, child, ns), passed, other)
        for child, passed, other in below
        if view.find(OBJECT + child) is not None
    )
    page = paging.page(islice(listed, paging.fetch(limit)), limit, lambda each: (each.place, each.key))
    return Page([each.object for each in page.items], page.next_cursor)


def _below(family: Family, parent: Object, place: int, after: str) -> Iterable[tuple[str, int, str]]:
    """Yield the keys of children from a place on, each with the place behind it."""
    own = named_keys(parent)
    for number, child in enumerate(own[place:], place + 1):
        yield child, number, ""
    own_keys = frozenset(own)
    for child in family.naming(parent, after):
        if child not in own_keys:
            yield child, len(own), child
