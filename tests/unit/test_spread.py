"""The geometry of intent vectors, on figures one can do by hand."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdproof.model.spread import cosine, measure

_VECTORS = st.lists(st.lists(st.floats(-1, 1), min_size=3, max_size=3), max_size=12)


def test_the_cosine_of_simple_angles() -> None:
    assert cosine([1, 0], [0, 2]) == 0
    assert cosine([1, 0], [3, 0]) == 1
    assert cosine([1, 0], [-2, 0]) == -1
    assert cosine([1, 1], [1, 0]) == pytest.approx(math.sqrt(0.5))
    assert cosine([0, 0], [1, 0]) == 0


def test_clusters_are_what_is_connected() -> None:
    chain = {name: [math.cos(at * 0.3), math.sin(at * 0.3)] for at, name in enumerate("abcd")}
    assert measure(chain, threshold=math.cos(0.31)).clusters == [["a", "b", "c", "d"]]
    assert measure(chain, threshold=math.cos(0.29)).clusters == [["a"], ["b"], ["c"], ["d"]]


def test_where_everybody_is_alone_nobody_is_an_outlier_for_that() -> None:
    assert measure({"a": [1.0, 0.0], "b": [0.0, 1.0], "c": [-1.0, 0.0]}).outliers == []


def test_vectors_of_another_length_are_counted_not_compared() -> None:
    found = measure({"a": [1.0, 0.0], "b": [1.0, 0.1], "c": [1.0], "d": []})
    assert (found.count, found.dim, found.skipped) == (2, 2, {"empty": 1, "other_length": 1})
    assert (found.nearest, found.farthest) == (("a", "b"), ("a", "b"))


def test_nothing_has_no_spread() -> None:
    found = measure({})
    assert (found.count, found.clusters, found.plot, found.nearest) == (0, [], [], None)


@given(_VECTORS)
def test_every_pair_is_counted_and_every_vector_is_in_one_cluster(vectors: list[list[float]]) -> None:
    named = {f"v{at:02}": vector for at, vector in enumerate(vectors)}
    found = measure(named)
    assert sum(found.histogram) == len(vectors) * (len(vectors) - 1) // 2
    assert sorted(name for group in found.clusters for name in group) == sorted(named)
    assert -1 <= found.low <= found.mean + 1e-9 <= found.high + 2e-9
    assert sum(not char.isspace() for line in found.plot for char in line) <= len(vectors)
