"""Embedding models: vectors of two never stand side by side."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdproof import errors
from holdproof.db import Query, open_database, sql
from holdproof.executors import AsyncExecutor, SyncExecutor
from holdproof.storage.vectors import open_vectors
from holdproof.storage.vectors.store import Vectors
from tests.conformance.clouds import opened

TEXTS = {f"t{n}": "abc"[n % 3] * (n + 1) for n in range(100)}
_SAID = sql(
    "SELECT source_id, model_name, dimensions, needs_reembed, content FROM embedding_metadata ORDER BY source_id"
)
_MOVES = sql("SELECT count(*) FROM vector_moves")


def first(text: str) -> list[float]:
    return [float(text.count(letter)) for letter in "abc"] + [1.0]


def second(text: str) -> list[float]:
    return [1.0, float(len(text))]


@pytest.fixture(params=["sqlite", "postgres"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "membrane.db" if request.param == "sqlite" else request.getfixturevalue("postgres_url"))


def _old(target: str) -> Any:
    return opened(target, dimensions=4, model="first", embedder=first)


def _filled(target: str) -> None:
    with _old(target) as store:
        for id, text in TEXTS.items():
            store.embed(id, text, {"length": len(text)})


def _rows(store: Vectors[SyncExecutor], query: Query) -> list[Any]:
    return store._executor.read(lambda tx: tx.all(query))


def test_a_text_is_kept_with_its_vector_and_found_by_another(target: str) -> None:
    with _old(target) as store:
        store.embed("x", "aab", {"n": 1})
        store.embed("y", "ccc")
        assert [found.id for found in store.find("aabb", 1)] == ["x"]
        assert store.search([2, 1, 0, 1], 1)[0].metadata == {"n": 1}
        assert _rows(store, _SAID) == [("x", "first", 4, 0, "aab"), ("y", "first", 4, 0, "ccc")]
        store.delete("x")
        store.add("y", [1, 1, 1, 1])
        assert _rows(store, _SAID) == [], "what is said of a vector goes with it"


def test_texts_need_an_embedder_and_something_to_embed(target: str) -> None:
    with opened(target) as store, pytest.raises(errors.ConfigError):
        store.embed("x", "text")
    with _old_size(target) as store, pytest.raises(errors.InvalidInputError):
        store.embed("x", "")


def _old_size(target: str) -> Any:
    return opened(target, embedder=lambda text: [1.0] * 8)


@pytest.mark.parametrize("other", [{"dimensions": 5}, {"dimensions": 4, "model": "second"}])
def test_another_length_or_model_is_refused_and_nothing_changes(target: str, other: dict[str, Any]) -> None:
    _filled(target)
    with pytest.raises(errors.EmbeddingMismatchError), opened(target, **other):
        pass
    with _old(target) as store:
        assert (store.dimensions, store.model, store.count()) == (4, "first", 100)


def test_the_recorded_length_and_model_hold_where_none_is_named(target: str) -> None:
    _filled(target)
    with opened(target, dimensions=None) as store:
        assert (store.dimensions, store.model) == (4, "first")


def test_the_first_model_that_is_named_is_recorded(target: str) -> None:
    with opened(target) as store:
        assert (store.dimensions, store.model) == (8, None)
    with opened(target, model="late") as store:
        assert store.model == "late"
    with pytest.raises(errors.EmbeddingMismatchError), opened(target, model="later"):
        pass


@pytest.mark.parametrize("size", [0, -1, 16_385, 2.0, True])
def test_a_length_that_makes_no_sense_is_refused(tmp_path: Path, size: Any) -> None:
    with pytest.raises(errors.InvalidInputError), opened(tmp_path / "m.db", dimensions=size):
        pass


def test_everything_is_re_embedded_on_request(target: str) -> None:
    _filled(target)
    with opened(target, dimensions=2, model="second", embedder=second, reembed=True) as store:
        assert (store.dimensions, store.model, store.count()) == (2, "second", 100)
        found = store.search(second("x" * 30), 1)
        assert (found[0].id, found[0].metadata) == ("t29", {"length": 30})
        assert {row[1:4] for row in _rows(store, _SAID)} == {("second", 2, 0)}
        assert _rows(store, _MOVES) == [(0,)]
        assert store.find("x" * 50, 1)[0].id == "t49"


def test_re_embedding_an_open_store_changes_it_at_once_and_refuses_those_who_do_not_know(target: str) -> None:
    _filled(target)
    with _old(target) as stale, _old(target) as store:
        assert stale.find("aab", 1)
        assert store.reembed("second", 2, second) == 100
        assert (store.dimensions, store.model) == (2, "second")
        assert store.find("x" * 30, 1)[0].id == "t29"
        acts: list[Callable[[], Any]] = [lambda: stale.find("aab"), lambda: stale.embed("new", "abc")]
        for act in acts:
            with pytest.raises(errors.EmbeddingMismatchError):
                act()
        assert store.count() == 100


def test_vectors_without_a_text_stop_a_move_before_it_begins(target: str) -> None:
    _filled(target)
    with _old(target) as store:
        store.add("bare", [1, 0, 0, 0])
        with pytest.raises(errors.EmbeddingMismatchError, match="1 vectors have no text"):
            store.reembed("second", 2, second)
        assert (store.model, store.count()) == ("first", 101)
        assert {row[3] for row in _rows(store, _SAID)} == {0}


def test_a_move_that_was_stopped_goes_on_where_it_was(target: str) -> None:
    _filled(target)
    seen: list[str] = []

    def failing(text: str) -> list[float]:
        if len(seen) == 80:
            raise ConnectionError("the model is gone")
        seen.append(text)
        return second(text)

    with _old(target) as store:
        with pytest.raises(ConnectionError):
            store.reembed("second", 2, failing)
        assert store.find("aab", 1)[0].distance < 0.2, "the old vectors still answer"
        assert _rows(store, _MOVES) == [(64,)]
        assert {row[3] for row in _rows(store, _SAID)} == {1}
        store.embed("t0", "another text in the meantime")
        seen.clear()
        store.reembed("second", 2, failing)
        assert 36 <= len(seen) <= 37, "the rest, and what changed meanwhile"
        assert store.find("another text in the meantime", 1)[0].distance == pytest.approx(0, abs=1e-6)


def test_what_is_added_during_a_move_is_moved_too(target: str) -> None:
    _filled(target)
    with _old(target) as store, _old(target) as other:
        calls = 0

        def embedder(text: str) -> list[float]:
            nonlocal calls
            calls += 1
            if calls == 70:
                other.embed("late", "c" * 500)
                other.delete("t7")
            return second(text)

        assert store.reembed("second", 2, embedder) == 100
        found = store.search(second("c" * 500), 100)
        assert found[0].id == "late"
        assert "t7" not in {each.id for each in found}


def test_an_embedder_may_be_async_on_the_async_face(tmp_path: Path) -> None:
    async def embedder(text: str) -> list[float]:
        await asyncio.sleep(0)
        return first(text)

    async def main() -> None:
        database = open_database(tmp_path / "membrane.db", space="membrane")
        face = AsyncExecutor(database)
        store = await face.run(open_vectors(face, dimensions=4, embedder=embedder))
        await store.embed("x", "abc")
        assert [found.id for found in await store.find("abc")] == ["x"]
        await store.close()
        await asyncio.to_thread(database.close)

    asyncio.run(main())


def test_an_embedder_that_gives_the_wrong_length_is_refused_and_nothing_kept(target: str) -> None:
    with opened(target, dimensions=4, embedder=second) as store:
        with pytest.raises(errors.DimensionError):
            store.embed("x", "text")
        assert (store.count(), _rows(store, _SAID)) == (0, [])
