"""Search by vector: exact, by what is there now, whatever brought it; on every backend."""

import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdproof import errors, sync
from holdproof.db import sql
from holdproof.memory.search import vectors
from tests.conformance.decisions import InMemory, OnPostgres, OnSqlite
from tests.conformance.memories import OnMemory, flaws

CHECKS = [HealthCheck.function_scoped_fixture, HealthCheck.differing_executors]  # one law, on several backends
_FORGE = sql("UPDATE object_vectors SET vector = :vector WHERE key = 'a'")
_EMPTY = sql("DELETE FROM object_vectors")


def embedder(text: str) -> list[float]:
    """Counts of a few letters: texts with the same letters are near."""
    return [text.count(letter) + 0.01 for letter in "abcd"]


def ids(store: sync.Holdproof, vector: Any = None, **options: Any) -> list[str]:
    return [each.object.id for each in store.objects.nearest(vector, **options)]


def cosine(one: list[float], two: list[float]) -> float:
    return sum(a * b for a, b in zip(one, two, strict=True)) / (math.hypot(*one) * math.hypot(*two))


class Nearest(OnMemory):
    def test_the_nearest_come_first_with_their_distance(self, store: sync.Holdproof) -> None:
        for id, vector in {"east": [1.0, 0.0], "north": [0.0, 1.0], "west": [-1.0, 0.0], "also": [2.0, 0.0]}.items():
            store.objects.put(id, type="t", meta={"vector": vector})
        store.objects.put("none", type="t", meta={"vector": "no vector"})
        found = store.objects.nearest([1.0, 0.0])
        assert [(each.object.id, each.distance) for each in found] == [
            ("also", 0.0),
            ("east", 0.0),
            ("north", 1.0),
            ("west", 2.0),
        ]
        assert found[0].object == store.objects.get("also")
        assert ids(store, [0.1, 1.0], limit=1) == ["north"]
        assert ids(store, near="east", limit=2) == ["also", "north"]
        assert ids(store, [0.0, 0.0]) == [], "zero has no direction"

    def test_only_what_is_there_now_is_found(self, store: sync.Holdproof, tmp_path: Path) -> None:
        store.objects.put("a", type="t", meta={"vector": [1.0, 0.0]})
        first = store.snapshots.create().cid
        store.objects.annotate("a", {"vector": [0.0, 1.0]})
        assert store.objects.nearest([1.0, 0.0])[0].distance == 1.0
        store.objects.annotate("a", {"seen": 1})
        assert ids(store, [1.0, 0.0]) == []
        store.snapshots.rollback(first)
        assert store.objects.nearest([1.0, 0.0])[0].distance == 0.0
        store.image.dump(tmp_path / "images")
        store.objects.delete("a")
        assert ids(store, [1.0, 0.0]) == []
        with sync.open(url=":memory:") as other:
            other.image.load(tmp_path / "images", did=store.snapshots.get().did)
            assert ids(other, [1.0, 0.0]) == ["a"], "an image brings its vectors"
        with pytest.raises(errors.NotFoundError):
            store.objects.nearest(near="a")

    def test_a_change_that_fails_leaves_no_vector(self, store: sync.Holdproof) -> None:
        with pytest.raises(errors.InvalidInputError):
            store.objects.apply(
                {"a": {"type": "t", "meta": {"vector": [1.0, 2.0]}}, "b": {"type": "t", "content": object()}}
            )
        assert ids(store, [1.0, 2.0]) == []

    def test_a_vector_of_another_length_is_of_another_model(self, store: sync.Holdproof) -> None:
        assert ids(store, [1.0, 2.0, 3.0]) == [], "where there is none, none is wrong"
        store.objects.put("a", type="t", meta={"vector": [1.0, 2.0]})
        with pytest.raises(errors.EmbeddingMismatchError):
            store.objects.nearest([1.0, 2.0, 3.0])
        store.objects.put("b", type="t", meta={"vector": [1.0, 2.0, 3.0]})
        assert ids(store, [1.0, 2.0, 3.0]) == ["b"]

    @pytest.mark.parametrize(
        ("vector", "options"),
        [
            (None, {}),
            ([1.0], {"near": "a"}),
            (None, {"near": "a", "like": "x"}),
            ([], {}),
            ([[1.0]], {}),
            (["x"], {}),
            ([float("nan")], {}),
            ([1.0], {"limit": 0}),
            (None, {"like": " "}),
        ],
    )
    def test_what_is_no_search_is_refused(self, store: sync.Holdproof, vector: Any, options: dict[str, Any]) -> None:
        with pytest.raises(errors.InvalidInputError):
            store.objects.nearest(vector, embedder=embedder, **options)

    def test_what_is_sealed_is_never_found(self, store: sync.Holdproof) -> None:
        store.objects.put("a", type="t", content="aaa", meta={"vector": [1.0, 0.0]})
        store.objects.put("a", type="t", content="aaa", subject="Ada")
        store.objects.put("b", type="t", content="aaa", meta={"vector": [1.0, 0.0]}, subject="Ada")
        assert ids(store, [1.0, 0.0]) == []
        assert store.objects.embed(embedder=embedder) == 0

    def test_texts_are_embedded_once_and_again_when_they_change(self, store: sync.Holdproof) -> None:
        store.objects.put("a", type="t", content="aaaa")
        store.objects.put("b", type="t", content={"x": "bbbb"}, attributes={"y": "b"})
        store.objects.put("mine", type="t", content="cccc", meta={"vector": embedder("dddd")})
        store.objects.put("empty", type="t")
        assert store.objects.embed(embedder=embedder) == 2
        assert store.objects.embed(embedder=embedder) == 0
        assert ids(store, like="aa", embedder=embedder, limit=1) == ["a"]
        assert ids(store, like="bb", embedder=embedder, limit=1) == ["b"]
        assert ids(store, like="d", embedder=embedder, limit=1) == ["mine"], "it was given, and stays"
        before = store.objects.get("a")
        store.objects.put("a", type="t", content="cccc")
        assert store.objects.embed(embedder=embedder) == 1
        assert ids(store, like="c", embedder=embedder, limit=1) == ["a"]
        assert store.objects.get("a", version=1).cid == before.cid

    def test_another_model_is_refused_unless_all_is_made_anew(self, store: sync.Holdproof) -> None:
        store.objects.put("a", type="t", content="aaaa")
        store.objects.embed(embedder=embedder)
        store.objects.put("b", type="t", content="bbbb")
        with pytest.raises(errors.EmbeddingMismatchError):
            store.objects.embed(embedder=lambda text: [1.0, len(text)])
        assert "vector" not in store.objects.get("b").meta
        assert store.objects.embed(embedder=lambda text: [1.0, len(text)], anew=True) == 2
        assert {*ids(store, [1.0, 4.0])} == {"a", "b"}
        with pytest.raises(errors.InvalidInputError):
            store.objects.embed(embedder=lambda _: [0.0, 0.0], anew=True)

    def test_without_an_embedder_a_text_is_a_typed_error(self, store: sync.Holdproof) -> None:
        store.objects.put("a", type="t", content="a")
        for work in (lambda: store.objects.nearest(like="x"), lambda: store.objects.embed()):
            with pytest.raises(errors.ConfigError):
                work()

    def test_a_namespace_is_kept_to(self, store: sync.Holdproof) -> None:
        store.objects.put("a", type="t", meta={"vector": [1.0]}, ns="theirs")
        assert ids(store, [1.0]) == []
        assert ids(store, [1.0], ns="theirs") == ["a"]

    def test_a_forged_row_is_found_out_and_a_missing_one_written_anew(self, store: sync.Holdproof) -> None:
        store.objects.put("a", type="t", meta={"vector": [1.0, 0.0]})
        store.write(lambda tx: tx.execute(_FORGE, vector=vectors.packed({"vector": [0.0, 1.0]})[1]))  # type: ignore[index]
        assert [flaw.table for flaw in flaws(store)] == ["object_vectors"]
        store.write(lambda tx: tx.execute(_EMPTY))
        assert [flaw.missing for flaw in flaws(store)] == [True]
        store.objects.reindex()
        assert ids(store, [1.0, 0.0]) == ["a"]

    @settings(max_examples=10, deadline=None, derandomize=True, suppress_health_check=CHECKS)
    @given(
        st.lists(
            st.tuples(
                st.sampled_from("abcde"),
                st.none() | st.lists(st.integers(-9, 9).map(float), min_size=3, max_size=3),
            ),
            max_size=14,
        ),
        st.lists(st.integers(1, 9).map(float), min_size=3, max_size=3),
    )
    def test_what_is_found_is_what_a_plain_comparison_finds(
        self, store: sync.Holdproof, changes: list[tuple[str, list[float] | None]], query: list[float]
    ) -> None:
        store.objects.apply(dict.fromkeys("abcde"))
        for id, vector in changes:
            store.objects.apply({id: None if vector is None else {"type": "t", "meta": {"vector": vector}}})
        model = {id: vector for id, vector in dict(changes).items() if vector and any(vector)}
        wanted = sorted((round(1 - cosine(query, vector), 9), id) for id, vector in model.items())
        found = [(round(each.distance, 9), each.object.id) for each in store.objects.nearest(query)]
        assert sorted(found) == wanted


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        ([1.0, 2], 2),
        ([0.0, 0.0], None),
        ([1e300], None),
        ([True], None),
        ([], None),
        ("1", None),
        ([float("inf")], None),
        ([1e-300], None),
        ([2**200], None),
    ],
)
def test_what_is_a_vector(value: Any, kept: int | None) -> None:
    found = vectors.packed({"vector": value})
    assert (None if found is None else found.dimensions) == kept


class TestOnSqlite(OnSqlite, Nearest):
    pass


class TestInMemory(InMemory, Nearest):
    pass


class TestOnPostgres(OnPostgres, Nearest):
    pass
