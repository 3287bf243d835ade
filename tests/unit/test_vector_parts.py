"""The parts of the vector store by themselves: intervals that hold, a matrix that follows, extras that are missing."""

import json
import subprocess
import sys
from contextlib import closing
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdproof import errors
from holdproof.db import MEMORY, open_database
from holdproof.executors import SyncExecutor
from holdproof.storage.vectors import codecs, open_vectors, scan, signs
from holdproof.storage.vectors.matrix import Matrix, unit_rows
from holdproof.storage.vectors.vector_rows import VectorChange

KINDS = [codecs.PlainCodec, codecs.Int8]
number = st.floats(-1, 1, width=32)


def _units(vectors: list[list[float]]) -> Any:
    return unit_rows(np.array(vectors, "<f4").tobytes(), len(vectors[0]))


# --- intervals -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_the_interval_of_a_row_always_holds_its_cosine(kind: type[codecs.Codec], data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 20))
    vector = st.lists(number, min_size=size, max_size=size).filter(lambda each: any(abs(x) > 1e-6 for x in each))
    units, asked = _units(data.draw(st.lists(vector, min_size=1, max_size=8))), _units([data.draw(vector)])[0]
    codec, true = kind(), units.astype(np.float64) @ asked.astype(np.float64)
    kept = codec.encode(units)
    for near, off in (codec.scan(kept, asked), codec.scan_rows(kept, asked, np.arange(len(units)))):
        assert (np.abs(near - true) <= off).all()


@pytest.mark.parametrize("kind", KINDS)
def test_none_of_the_nearest_is_ever_left_out(kind: type[codecs.Codec]) -> None:
    chance = np.random.default_rng(1)
    for size, count, k in ((2, 500, 10), (16, 3000, 1), (64, 3000, 40), (384, 2000, 10)):
        vectors = chance.standard_normal((count, size)).astype(np.float32)
        matrix = _matrix(kind(), vectors)
        asked = _units([chance.standard_normal(size).tolist()])[0]
        true = _units(vectors.tolist()) @ asked
        found = scan.exact(matrix.view(), matrix.codec, asked, k, None)
        assert set(np.argsort(-true)[:k]) <= set(found.tolist())


def test_signs_are_counted_the_same_with_and_without_the_faster_part() -> None:
    chance = np.random.default_rng(2)
    matrix = _matrix(codecs.PlainCodec(), chance.standard_normal((700, 100)).astype(np.float32), signs=True)
    asked = _units([chance.standard_normal(100).tolist()])[0]
    fast, plain = signs.SignIndex(), signs.SignIndex()
    plain._fast = False
    first = fast.differing(matrix.view(), asked)
    assert (first == plain.differing(matrix.view(), asked)).all()
    matrix.apply([VectorChange(0, f"late {n}", 9, np.ones(100, "<f4").tobytes()) for n in range(20)])
    assert (fast.differing(matrix.view(), asked) == plain.differing(matrix.view(), asked)).all()
    assert first.max() <= signs.most(100)


# --- the matrix ------------------------------------------------------------------------------------------------------


def _matrix(codec: codecs.Codec, vectors: Any, *, signs: bool = False) -> Matrix:
    matrix = Matrix(codec, vectors.shape[1], signs=signs)
    matrix.apply([VectorChange(0, f"v{at}", at + 1, row.tobytes()) for at, row in enumerate(vectors.astype("<f4"))])
    return matrix


def test_a_view_stays_as_it_was_while_rows_come_and_go() -> None:
    matrix = _matrix(codecs.PlainCodec(), np.eye(4))
    view = matrix.view()
    before = view.arrays["values"].copy()
    for turn in range(2000):
        matrix.apply([VectorChange(0, f"v{turn % 4}", 100 + turn, np.full(4, turn + 1, "<f4").tobytes())])
    assert (view.arrays["values"] == before).all()
    assert (view.alive, list(view.ids[:4])) == (4, ["v0", "v1", "v2", "v3"])
    assert matrix.alive == 4
    assert len(matrix.view().ids) < 10, "the living have moved together"


def test_a_matrix_whose_vectors_all_went_and_came_back_has_only_those() -> None:
    matrix = _matrix(codecs.PlainCodec(), np.eye(3))
    matrix.apply([VectorChange(0, f"v{n}", 0, None) for n in range(3)])
    assert (matrix.alive, matrix.total) == (0, 0)
    matrix.apply([VectorChange(0, "v1", 7, np.ones(3, "<f4").tobytes())])
    assert (matrix.alive, matrix.total) == (1, 7)


def test_the_same_change_twice_changes_nothing() -> None:
    matrix = _matrix(codecs.PlainCodec(), np.eye(3))
    matrix.apply([VectorChange(0, "v1", 2, np.ones(3, "<f4").tobytes())])
    assert matrix.view().count == 3
    assert matrix.total == 1 + 2 + 3


# --- opening ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["pgvector", "faiss", ""])
def test_a_kind_that_does_not_go_here_is_refused(kind: str) -> None:
    with closing(open_database(MEMORY, space="membrane")) as database:
        face = SyncExecutor(database)
        with pytest.raises(errors.ConfigError):
            face.run(open_vectors(face, kind))


_WITHOUT = """
import json, sys
sys.modules[{part!r}] = None
from holdproof import errors
from holdproof.db import MEMORY, open_database
from holdproof.executors import SyncExecutor
from holdproof.storage.vectors import open_vectors
face = SyncExecutor(open_database(MEMORY, space="membrane"))
try:
    store = face.run(open_vectors(face, {kind!r}, dimensions=2))
    store.add("x", [1.0, 0.0])
    print(json.dumps(store.search([1.0, 0.0])[0].id))
except errors.MissingExtraError as error:
    print(json.dumps(str(error)))
"""


@pytest.mark.parametrize(
    ("part", "kind", "said"),
    [("numpy", "numpy", "holdproof[vectors]"), ("usearch.index", "hnsw", "holdproof[hnsw]")],
)
def test_a_missing_part_is_named(part: str, kind: str, said: str) -> None:
    script = _WITHOUT.format(part=part, kind=kind)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert said in json.loads(done.stdout), done.stderr
