"""Scans: what they find is what plain arithmetic finds, whatever came and went."""

import asyncio
from pathlib import Path

import numpy as np
import pytest

from holdproof.db.sqlite.snapshot import fold
from holdproof.executors import AsyncExecutor
from holdproof.storage.vectors import open_vectors
from tests.conformance.clouds import SIZE, cloud, cosines, fill, ids, nearest, opened


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "membrane.db"


@pytest.mark.parametrize("kind", ["numpy", "quantised"])
@pytest.mark.parametrize("size", [1, 7, 64, 100, 384])
def test_any_length_is_found_exactly(target: Path, kind: str, size: int) -> None:
    vectors, queries = cloud(3000, size=size), cloud(20, seed=2, size=size)
    with opened(target, kind=kind, dimensions=size) as store:
        fill(store, vectors)
        for query in queries:
            found = store.search(query, 10)
            wanted = 1 + np.sort(-cosines(vectors, query))[:10]
            assert [each.distance for each in found] == pytest.approx(wanted, abs=1e-6)


def test_a_larger_store_is_scanned_beside_the_event_loop_with_the_same_answers(target: Path) -> None:
    vectors, query = cloud(6000, size=384), cloud(1, seed=2, size=384)[0]
    with opened(target, dimensions=384) as store:
        fill(store, vectors)
        expected = ids(store, query)
        assert expected == nearest(vectors, query)

        async def ask() -> list[str]:
            face = AsyncExecutor(store._executor.database)
            other = await face.run(open_vectors(face, dimensions=384))
            found = await asyncio.gather(*(other.search(query) for _ in range(8)))
            await other.close()
            assert len({tuple(each.id for each in one) for one in found}) == 1
            return [each.id for each in found[0]]

        assert asyncio.run(ask()) == expected


def test_the_sync_client_answers_inside_a_running_loop(target: Path) -> None:
    with opened(target) as store:

        async def count() -> int:
            return int(store.count())

        assert asyncio.run(count()) == store.count()


def test_an_upsert_costs_the_same_however_many_vectors_there_are(target: Path) -> None:
    """Existing stores rewrite a whole file for each: 300 upserts take 23 seconds."""
    written = []
    with opened(target) as store:
        for first in (0, 4000):
            fill(store, cloud(4000, seed=first), first)
            fold(target)
            for at in range(20):
                store.upsert(f"v{at * 100:05}", [1.0] * SIZE)
            written.append(store._executor.database.backend.facts()["bytes"]["wal"])
    assert 0 < written[1] < 2 * written[0]


def test_nothing_is_lost_where_most_vectors_are_deleted_or_replaced(target: Path) -> None:
    vectors = cloud(2000)
    with opened(target) as store:
        fill(store, vectors)
        ids(store, vectors[0])
        for at in range(0, 2000, 2):
            store.delete(f"v{at:05}")
        fill(store, vectors[:500] * -1)
        vectors[:500] *= -1
        alive = np.concatenate([np.arange(500), np.arange(501, 2000, 2)])
        for query in cloud(10, seed=3):
            expected = [f"v{alive[row]:05}" for row in np.argsort(-cosines(vectors[alive], query))[:10]]
            assert ids(store, query) == expected
        assert store.count() == len(alive)
