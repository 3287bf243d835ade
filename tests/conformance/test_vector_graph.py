"""The graph over very many vectors: it proposes, the rows decide."""

from pathlib import Path
from typing import Any

import pytest

from holdproof.executors import SyncExecutor
from holdproof.storage.vectors.hnsw import GraphFinder
from holdproof.storage.vectors.store import Vectors
from tests.conformance.clouds import cloud, fill, ids, nearest, opened

COUNT = 1200


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "membrane.db"


def _graph(store: Vectors[SyncExecutor]) -> Any:
    finder = store.held.finder
    assert isinstance(finder, GraphFinder)
    return finder._graph


def _recall(store: Vectors[SyncExecutor], vectors: Any, *, queries: int = 20) -> float:
    asked = cloud(queries, seed=4)
    found = [len(set(ids(store, query)) & set(nearest(vectors, query))) for query in asked]
    return sum(found) / (10 * queries)


def test_it_finds_nearly_everything_and_what_came_or_went_after_it_was_built(target: Path) -> None:
    vectors = cloud(COUNT)
    with opened(target, kind="hnsw", threshold=100) as store:
        fill(store, vectors[:1000])
        assert store.index() == 1000
        assert _recall(store, vectors[:1000]) >= 0.95
        fill(store, vectors[1000:], 1000)
        assert ids(store, vectors[1100], 1) == ["v01100"]
        store.delete("v01100")
        store.delete("v00005")
        assert "v01100" not in ids(store, vectors[1100], 50)
        assert "v00005" not in ids(store, vectors[5], 50)
        assert _graph(store).size == 1000, "neither adding nor searching builds it"
        assert store.index() == COUNT - 2
        assert _graph(store).size == COUNT


def test_it_is_not_used_below_the_threshold_nor_with_a_filter_nor_when_it_is_far_behind(target: Path) -> None:
    vectors = cloud(COUNT)
    with opened(target, kind="hnsw", threshold=COUNT) as store:
        fill(store, vectors[:800])
        store.index()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(type(_graph(store).index), "search", None)  # whoever asked it would fail
            assert _recall(store, vectors[:800]) == 1
            fill(store, vectors[800:], 800)
            assert _recall(store, vectors) == 1, "a third came after it was built"
            store.index()
            assert ids(store, vectors[0], filter={"at": 0}) == ["v00000"]
            with pytest.raises(TypeError):
                ids(store, vectors[0])


def test_it_is_kept_in_the_cache_and_used_again(target: Path, tmp_path: Path) -> None:
    vectors, cache = cloud(COUNT), tmp_path / "cache"
    with opened(target, cache, "hnsw", threshold=100) as store:
        fill(store, vectors)
        store.index()
    with opened(target, cache, "hnsw", threshold=100) as store:
        assert _recall(store, vectors) >= 0.95
        assert _graph(store).size == COUNT


@pytest.mark.parametrize("how", ["cut", "one bit", "other rows", "no head"])
def test_a_file_that_is_torn_or_belongs_to_other_rows_is_not_used(target: Path, tmp_path: Path, how: str) -> None:
    vectors, cache = cloud(COUNT), tmp_path / "cache"
    with opened(target, cache, "hnsw", threshold=100) as store:
        fill(store, vectors)
        store.index()
    [graph], [head] = cache.glob("*.hnsw"), cache.glob("*.hnsw.json")
    data = bytearray(graph.read_bytes())
    if how == "cut":
        graph.write_bytes(data[: len(data) // 2])
    elif how == "one bit":
        data[len(data) // 2] ^= 1
        graph.write_bytes(data)
    elif how == "other rows":
        head.write_text(head.read_text().replace('"ids": "', '"ids": "0'))
    else:
        head.unlink()
    with opened(target, cache, "hnsw", threshold=100) as store:
        assert _recall(store, vectors) == 1
        assert _graph(store).size == 0


def test_a_store_of_another_kind_has_nothing_to_index(target: Path) -> None:
    with opened(target) as store:
        store.add("x", [1.0] * 8)
        assert store.index() == 0
