"""The sidecar: used if it fits the rows, else not; never believed over them."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from holdproof.db import sql
from holdproof.storage.vectors import vector_rows
from tests.conformance.clouds import cloud, fill, ids, nearest, opened


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "membrane.db"


COUNT = 6000


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def kept(target: Path, cache: Path) -> NDArray[np.float32]:
    """A store large enough for a sidecar, which is there."""
    vectors = cloud(COUNT)
    with opened(target, cache) as store:
        fill(store, vectors)
        ids(store, vectors[0])
    assert len(list(cache.iterdir())) == 1
    return vectors


def _agrees(target: Path, cache: Path, vectors: NDArray[np.float32]) -> bool:
    """Every answer is right; whether the sidecar was used for it."""
    with opened(target, cache) as store:
        for query in cloud(5, seed=9):
            assert ids(store, query) == nearest(vectors, query)
        assert store.count() == len(vectors)
        return store.held.finder.replica.unsaved < len(vectors)  # type: ignore[attr-defined,no-any-return]


def test_a_sidecar_that_fits_is_used(target: Path, cache: Path, kept: NDArray[np.float32]) -> None:
    assert _agrees(target, cache, kept) is True


def test_an_old_sidecar_is_brought_up_to_date(target: Path, cache: Path, kept: NDArray[np.float32]) -> None:
    with opened(target) as store:  # without the cache: the file stays as it is
        fill(store, kept[:50] * -1)
        store.delete(f"v{COUNT - 1:05}")
    kept[:50] *= -1
    assert _agrees(target, cache, kept[:-1]) is True


def _tear(file: Path, how: str) -> None:
    data = bytearray(file.read_bytes())
    match how:
        case "empty":
            data = bytearray()
        case "cut":
            data = data[: len(data) // 2]
        case "a header of zeros":
            data[:4096] = bytes(4096)
        case "a page of zeros":
            data[8192:12288] = bytes(4096)
        case "pages exchanged":
            data[40960:45056], data[45056:49152] = data[45056:49152], data[40960:45056]
        case "one bit":
            data[9000] ^= 4
        case "one bit of an id":
            data[-3] ^= 1
        case "not ours":
            data = bytearray(b"something else entirely\n" * 1000)
    file.write_bytes(data)


TEARS = ["empty", "cut", "a header of zeros", "a page of zeros", "pages exchanged", "one bit", "one bit of an id"]
TEARS += ["not ours"]


@pytest.mark.parametrize("how", TEARS)
def test_a_torn_sidecar_is_not_used_and_written_anew(
    target: Path, cache: Path, kept: NDArray[np.float32], how: str
) -> None:
    [file] = cache.iterdir()
    _tear(file, how)
    assert _agrees(target, cache, kept) is False
    assert _agrees(target, cache, kept) is True


def test_a_sidecar_of_another_store_is_not_used(tmp_path: Path, target: Path, cache: Path, kept: Any) -> None:
    other, vectors = tmp_path / "other.db", cloud(COUNT, seed=5)
    with opened(other, cache) as store:
        fill(store, vectors)
        ids(store, vectors[0])
    mine, theirs = sorted(cache.iterdir(), key=lambda file: file.stat().st_mtime)
    theirs.write_bytes(mine.read_bytes())
    assert _agrees(other, cache, vectors) is False


def test_a_sidecar_ahead_of_a_restored_database_is_not_used(tmp_path: Path, target: Path, cache: Path) -> None:
    vectors = cloud(COUNT)
    with opened(target) as store:
        fill(store, vectors[:-100])
    copied = tmp_path / "copy.db"
    shutil.copy(target, copied)
    with opened(target, cache) as store:
        fill(store, cloud(100, seed=7), COUNT - 100)
        ids(store, vectors[0])
    with opened(copied) as store:  # as many changes as the file has seen, but others
        fill(store, vectors[-100:], COUNT - 100)
    assert _agrees(copied, cache, vectors) is False


def test_a_cache_that_cannot_be_written_harms_nothing(tmp_path: Path, target: Path) -> None:
    blocked = tmp_path / "blocked"
    blocked.write_text("a file where the folder should be")
    vectors = cloud(COUNT)
    with opened(target, blocked) as store:
        fill(store, vectors)
    assert _agrees(target, blocked, vectors) is False


def test_tombstones_are_swept_and_whoever_is_behind_begins_anew(
    target: Path, cache: Path, kept: NDArray[np.float32], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vector_rows, "_MANY_TOMBSTONES", 10)
    with opened(target) as behind:
        assert ids(behind, kept[0]) == nearest(kept, kept[0])
        with opened(target) as store:
            for at in range(COUNT - 100, COUNT):
                store.delete(f"v{at:05}")
        with opened(target) as store:
            left = store._executor.read(lambda tx: tx.all(sql("SELECT count(*) FROM vectors WHERE stamp = 0")))
            assert left == [(1,)]
            store.add("new", kept[0])
            store.delete("new")
        assert ids(behind, kept[-1]) == nearest(kept[:-100], kept[-1])
    assert _agrees(target, cache, kept[:-100]) in (True, False)
