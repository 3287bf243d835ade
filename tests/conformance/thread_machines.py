"""A plain Python model of threads, walked at random beside a real store: a dict of checkpoints for each."""

from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from holdproof import errors
from tests.conformance.machines import Machine

_THREADS = st.sampled_from(["a", "b", "c"])
_ELEMENTS = st.lists(st.integers(0, 5), max_size=30)
_PICK = st.integers(0, 10**6)


class ThreadMachine(Machine):
    def __init__(self) -> None:
        super().__init__()
        self.threads: dict[str, dict[str, tuple[str | None, list[int]]]] = {}
        self.writes: dict[tuple[str, str], dict[int, int]] = {}
        self.dead: dict[str, list[str]] = {}
        self.count = 0

    def newest(self, thread: str) -> str | None:
        return max(self.threads.get(thread, {}), default=None)

    @rule(thread=_THREADS, change=_ELEMENTS, how=st.sampled_from(["append", "replace", "cut"]), pick=_PICK)
    def put(self, thread: str, change: list[int], how: str, pick: int) -> None:
        known = self.threads.setdefault(thread, {})
        parent = sorted(known)[pick % len(known)] if known else None
        before = known[parent][1] if parent is not None else []
        after = {"append": [*before, *change], "replace": change, "cut": before[: pick % 9]}[how]
        self.count += 1
        id = f"{self.count:06}"
        self.store.threads.put_checkpoint(
            thread, {"list": list(after)}, checkpoint_id=id, parent_id=parent, ns=self.name
        )
        known[id] = (parent, after)

    @precondition(lambda self: any(self.threads.values()))
    @rule(pick=_PICK, value=st.integers(0, 3), replace=st.booleans())
    def write(self, pick: int, value: int, replace: bool) -> None:
        places = [(thread, id) for thread, known in self.threads.items() for id in known]
        thread, id = places[pick % len(places)]
        idx = -1 if replace else pick % 2
        given = [(idx, "c", value)]
        self.store.threads.put_writes(thread, id, "task", given, replace=replace, ns=self.name)
        written = self.writes.setdefault((thread, id), {})
        written[idx] = value if replace else written.get(idx, value)

    @rule(thread=_THREADS)
    def delete(self, thread: str) -> None:
        gone = self.threads.pop(thread, {})
        assert self.store.threads.delete(thread, ns=self.name).checkpoints == len(gone)
        self.dead.setdefault(thread, []).extend(gone)
        self.writes = {place: written for place, written in self.writes.items() if place[0] != thread}

    @precondition(lambda self: any(self.dead.values()))
    @rule(pick=_PICK)
    def come_late(self, pick: int) -> None:
        places = [(thread, id) for thread, gone in self.dead.items() for id in gone]
        thread, id = places[pick % len(places)]
        with pytest.raises(errors.ThreadDeletedError):
            self.store.threads.put_checkpoint(thread, {}, checkpoint_id="999999", parent_id=id, ns=self.name)
        with pytest.raises(errors.ThreadDeletedError):
            self.store.threads.put_writes(thread, id, "task", [(0, "c", 1)], ns=self.name)

    @rule(keep=st.integers(1, 3))
    def prune(self, keep: int) -> None:
        gone = {(thread, id) for thread, known in self.threads.items() for id in sorted(known)[:-keep]}
        assert self.store.threads.prune(keep=keep, ns=self.name).checkpoints == len(gone)
        for thread, id in gone:
            del self.threads[thread][id]
            self.writes.pop((thread, id), None)

    @rule(thread=_THREADS, to=_THREADS)
    def copy(self, thread: str, to: str) -> None:
        if thread == to or not self.threads.get(thread) or to in self.threads or to in self.dead:
            return
        assert self.store.threads.copy(thread, to, ns=self.name) == len(self.threads[thread])
        self.threads[to] = dict(self.threads[thread])
        written = {(to, id): dict(one) for (of, id), one in self.writes.items() if of == thread}
        self.writes.update(written)

    @invariant()
    def the_store_agrees(self) -> None:
        for thread in ("a", "b", "c"):
            known: dict[str, Any] = self.threads.get(thread, {})
            page = self.store.threads.list_checkpoints(thread, limit=1000, ns=self.name).items
            assert [each.checkpoint_id for each in page] == sorted(known, reverse=True)
            for each in page:
                parent, content = known[each.checkpoint_id]
                # A parent that was pruned is not named: readers would look for it.
                assert (each.parent_id, each.channels["list"]) == (parent if parent in known else None, content)
                written = self.writes.get((thread, each.checkpoint_id), {})
                assert {one.idx: one.value for one in each.writes} == written
        listed = {each.thread_id for each in self.store.threads.list(ns=self.name).items}
        assert listed == {thread for thread, known in self.threads.items() if known}
