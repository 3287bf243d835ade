"""A plain Python model of memory, walked at random beside a real store: dicts that are copied at every snapshot."""

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from tests.conformance.machines import Machine

_IDS = st.sampled_from(["a", "b", "c", "ä b", "~", "."])
_CONTENT = st.none() | st.integers(0, 3) | st.floats(0, 1) | st.sampled_from(["x", "y" * 300_000])
_PICK = st.integers(0, 10**6)


class ObjectMachine(Machine):
    def __init__(self) -> None:
        super().__init__()
        self.objects: dict[str, Any] = {}
        self.meta: dict[str, Any] = {}
        self.writes: dict[str, list[Any]] = {}
        self.taken: list[tuple[str, dict[str, Any], dict[str, Any]]] = []

    def wrote(self, id: str, content: Any) -> None:
        self.writes.setdefault(id, []).append(content)

    @rule(id=_IDS, content=_CONTENT)
    def put(self, id: str, content: Any) -> None:
        self.store.objects.put(id, type="t", content=content, ns=self.name)
        if id not in self.objects or repr(self.objects[id]) != repr(content):
            self.wrote(id, content)
        self.objects[id] = content

    @rule(id=_IDS)
    def delete(self, id: str) -> None:
        if id in self.objects:
            self.store.objects.delete(id, ns=self.name)
            self.wrote(id, KeyError)
            del self.objects[id]
            self.meta.pop(id, None)
        else:
            assert self.store.objects.delete(id, ns=self.name) is False

    @rule(id=_IDS, seen=st.integers(0, 3))
    def annotate(self, id: str, seen: int) -> None:
        if id in self.objects:
            self.store.objects.annotate(id, {"seen": seen}, ns=self.name)
            self.meta[id] = {"seen": seen}

    @rule()
    def snapshot(self) -> None:
        made = self.store.snapshots.create(ns=self.name)
        self.taken.append((made.cid, dict(self.objects), dict(self.meta)))

    @precondition(lambda self: self.taken)
    @rule(pick=_PICK)
    def rollback(self, pick: int) -> None:
        cid, then, meta = self.taken[pick % len(self.taken)]
        roots = {each.id: each.cid for each in self.store.objects.list(ns=self.name).items}
        self.store.snapshots.rollback(cid, ns=self.name)
        for each in self.store.objects.list(ns=self.name).items:
            if roots.pop(each.id, None) != each.cid:
                self.wrote(each.id, then[each.id])
        for gone in roots:
            self.wrote(gone, KeyError)
        self.objects, self.meta = dict(then), dict(meta)

    @invariant()
    def the_store_agrees(self) -> None:
        found = self.store.objects.list(ns=self.name).items
        assert {each.id: each.content for each in found} == self.objects
        assert {each.id: each.meta for each in found if each.meta} == self.meta
        for id, writes in self.writes.items():
            history = self.store.objects.history(id, limit=1000, ns=self.name).items
            assert [each.cid is None for each in reversed(history)] == [content is KeyError for content in writes]
        if self.taken:
            cid, then, _ = self.taken[-1]
            assert {each.id: each.content for each in self.store.objects.list(at=cid, ns=self.name).items} == then
