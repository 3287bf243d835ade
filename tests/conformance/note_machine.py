"""A plain Python model of notes, walked at random beside a real store: a dict with times."""

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from tests.conformance.machines import Machine

_PATHS = st.sampled_from([("a",), ("a", "b"), ("a", "b", "ä*"), ("ab",), ("A",)])
_KEYS = st.sampled_from(["x", "y z", "ä\n"])
_TTLS = st.sampled_from([None, None, 5.0, 20.0])


class NoteMachine(Machine):
    def __init__(self) -> None:
        super().__init__()
        self.notes: dict[tuple[tuple[str, ...], str], tuple[Any, float | None, float | None]] = {}

    def living(self) -> dict[tuple[tuple[str, ...], str], Any]:
        return {at: kept[0] for at, kept in self.notes.items() if kept[2] is None or kept[2] > self.now}

    @rule(path=_PATHS, key=_KEYS, number=st.integers(0, 9), ttl_s=_TTLS)
    def put(self, path: tuple[str, ...], key: str, number: int, ttl_s: float | None) -> None:
        vectors = {"v": [number + 1.0, 1.0]} if number % 2 else None
        self.store.notes.put(path, key, {"n": number, "in": {"n": number}}, vectors=vectors, ttl_s=ttl_s, ns=self.name)
        self.notes[path, key] = (number, ttl_s, None if ttl_s is None else self.now + ttl_s)

    @rule(path=_PATHS, key=_KEYS)
    def delete(self, path: tuple[str, ...], key: str) -> None:
        self.store.notes.delete(path, key, ns=self.name)
        self.notes.pop((path, key), None)

    @rule(path=_PATHS, key=_KEYS)
    def touch(self, path: tuple[str, ...], key: str) -> None:
        timed = (path, key) in self.living() and self.notes[path, key][1] is not None
        assert self.store.notes.touch(path, key, ns=self.name) == timed
        if timed:
            number, ttl_s, _ = self.notes[path, key]
            assert ttl_s is not None
            self.notes[path, key] = (number, ttl_s, self.now + ttl_s)

    @rule()
    def sweep(self) -> None:
        living = self.living()
        assert self.store.notes.sweep(ns=self.name) == len(self.notes) - len(living)
        self.notes = {at: kept for at, kept in self.notes.items() if at in living}

    @rule(path=_PATHS, least=st.integers(0, 9))
    def search(self, path: tuple[str, ...], least: int) -> None:
        found = self.store.notes.search(path, filter={"in.n": {"$gte": least}}, limit=100, ns=self.name).items
        wanted = {at for at, number in self.living().items() if at[0][: len(path)] == path and number >= least}
        assert {(note.path, note.key) for note in found} == wanted

    @rule(limit=st.integers(1, 4))
    def nearest(self, limit: int) -> None:
        found = self.store.notes.search(vector=[1.0, 0.0], limit=limit, ns=self.name).items
        odd = sorted((number for number in self.living().values() if number % 2), reverse=True)
        assert [note.value["n"] for note in found] == odd[:limit]

    @invariant()
    def the_store_is_as_the_model(self) -> None:
        found = self.store.notes.search(limit=100, ns=self.name).items
        assert {(note.path, note.key): note.value["n"] for note in found} == self.living()
        assert set(self.store.notes.paths(ns=self.name).items) == {path for path, _ in self.living()}
