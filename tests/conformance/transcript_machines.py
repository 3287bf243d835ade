"""A plain Python model of transcripts, walked at random beside a real store: lists and dicts."""

from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from holdproof import errors
from tests.conformance.machines import Machine

_NAMES = st.sampled_from(["a", "b"])
_KEYS = st.sampled_from(["x", "y", "ä"])
_ITEMS = st.lists(st.integers(0, 9) | st.sampled_from(["text", None, "ä\0"]), max_size=3)


class TranscriptMachine(Machine):
    def __init__(self) -> None:
        super().__init__()
        self.items: dict[str, list[tuple[int, str | None, Any]]] = {}
        self.last: dict[str, int] = {}
        self.rev: dict[str, int] = {}

    def touched(self, name: str) -> None:
        self.rev[name] = self.rev.get(name, 0) + 1
        self.items.setdefault(name, [])
        self.last.setdefault(name, 0)

    def add(self, name: str, value: Any, key: str | None = None) -> None:
        self.last[name] += 1
        self.items[name].append((self.last[name], key, value))

    @rule(name=_NAMES, items=_ITEMS, off=st.sampled_from([None, 0, 1]))
    def append(self, name: str, items: list[Any], off: int | None) -> None:
        expected = None if off is None else self.rev.get(name, 0) + off
        if off:
            with pytest.raises(errors.ConflictError):
                self.store.transcripts.append(name, items, expected=expected, ns=self.name)
            return
        self.store.transcripts.append(name, items, expected=expected, ns=self.name)
        self.touched(name)
        for item in items:
            self.add(name, item)

    @rule(name=_NAMES, key=_KEYS, value=st.integers(0, 9))
    def put(self, name: str, key: str, value: int) -> None:
        self.store.transcripts.put_item(name, key, value, ns=self.name)
        self.touched(name)
        self.items[name] = [each for each in self.items[name] if each[1] != key]
        self.add(name, value, key)

    @rule(name=_NAMES)
    def pop(self, name: str) -> None:
        popped = self.store.transcripts.pop_item(name, ns=self.name)
        if name in self.items:
            self.touched(name)
        wanted = self.items[name].pop() if self.items.get(name) else None
        assert (None if popped is None else (popped.seq, popped.key, popped.value)) == wanted

    @rule(name=_NAMES)
    def clear(self, name: str) -> None:
        assert self.store.transcripts.delete_items(name, ns=self.name) == len(self.items.get(name, []))
        if name in self.items:
            self.touched(name)
            self.items[name] = []

    @rule(name=_NAMES)
    def delete(self, name: str) -> None:
        assert self.store.transcripts.delete(name, ns=self.name) == (name in self.items)
        for kept in (self.items, self.last, self.rev):
            kept.pop(name, None)

    @invariant()
    def the_store_is_as_the_model(self) -> None:
        for name in ("a", "b"):
            found = self.store.transcripts.list_items(name, limit=1000, ns=self.name).items[::-1]
            assert [(item.seq, item.key, item.value) for item in found] == self.items.get(name, [])
        listed = self.store.transcripts.list(ns=self.name).items
        assert {one.name: one.rev for one in listed} == self.rev
