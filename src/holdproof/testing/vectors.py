"""The conformance suite of vector stores: a store passes it with a five-line fixture.

Subclass `VectorSuite` in a test module and define `open`; it is called any number of times for one test, always for the
same vectors, none at the start of each test.
"""

import asyncio
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdproof import errors
from holdproof.storage.stores import VectorStore

Test = Callable[[VectorStore], Awaitable[None]]

_NEAR = {"a": [1.0, 0.0, 0.0], "b": [0.9, 0.1, 0.0], "c": [0.0, 1.0, 0.0], "d": [-1.0, 0.0, 0.0]}
# Each would be stored silently by a store that trusts its callers.
_BAD_VECTORS: dict[str, Any] = {
    "a number that is none": [1.0, math.nan, 0.0],
    "infinite": [math.inf, 0.0, 0.0],
    "too large for 32 bits": [1e39, 0.0, 0.0],
    "zero": [0.0, 0.0, 0.0],
    "zero in 32 bits": [1e-60, 0.0, 0.0],
    "text": ["1", "2", "3"],
    "nothing": None,
    "truth": [True, False, True],
    "complex": [1j, 0, 0],
    "nested unevenly": [[1.0], [1.0, 2.0], 3.0],
}
_BAD_IDS: dict[str, Any] = {
    "empty": "",
    "too long": "x" * 501,
    "a line feed": "a\nb",
    "NUL": "a\0b",
    "half a character": "\ud800",
    "a number": 7,
}
_GOOD_IDS = ["x" * 500, " ", "ü", "漢字", "𝄞", "it's", '"quoted"', "a/../b", "%", "null"]
# Deeper than the JSON parsers of some databases go.
DEEP: dict[str, Any] = {"x": json.loads("[" * 400 + "]" * 400)}


class VectorSuite(ABC):
    """The claims of a vector store, one a test."""

    shared = True
    """Whether two openings see the same vectors (not so in memory)."""

    @abstractmethod
    async def open(self, dimensions: int) -> VectorStore:
        """Open the vectors of the test; may be called several times, always for the same vectors."""

    def run(self, test: Test, dimensions: int = 3) -> None:
        """Run a test on a store of its own."""

        async def whole() -> None:
            store = await self.open(dimensions)
            try:
                await test(store)
            finally:
                await store.close()

        asyncio.run(whole())

    # --- finding --------------------------------------------------------------------------------------------------

    def test_it_is_a_vector_store(self) -> None:
        async def test(store: VectorStore) -> None:
            assert isinstance(store, VectorStore)
            assert store.dimensions == 3

        self.run(test)

    def test_the_nearest_come_first_with_one_minus_the_cosine(self) -> None:
        async def test(store: VectorStore) -> None:
            await _fill(store, _NEAR)
            results = await store.search([2.0, 0.0, 0.0])
            assert [each.id for each in results] == ["a", "b", "c", "d"]
            # Distances are one minus the cosine: the length of a vector must not matter.
            expected = [0.0, 1 - 0.9 / math.hypot(0.9, 0.1), 1.0, 2.0]
            assert [each.distance for each in results] == pytest.approx(expected, abs=1e-6)

        self.run(test)

    def test_equals_come_in_the_order_of_their_ids(self) -> None:
        async def test(store: VectorStore) -> None:
            for number, id in enumerate(["z", "m", "a", "ä", "Z", "10", "9"], 1):
                await store.add(id, [float(number), 0.0, 0.0])
            assert _ids(await store.search([1.0, 0.0, 0.0], 5)) == ["10", "9", "Z", "a", "m"]

        self.run(test)

    def test_what_was_added_is_found_by_the_next_search_and_what_was_deleted_is_not(self) -> None:
        async def test(store: VectorStore) -> None:
            for number in range(30):
                await store.add(f"v{number:02}", [1.0, float(number), 0.0])
                assert _ids(await store.search([1.0, float(number), 0.0], 1)) == [f"v{number:02}"]
            for number in range(0, 30, 2):
                assert await store.delete(f"v{number:02}") is True
                assert f"v{number:02}" not in _ids(await store.search([1.0, float(number), 0.0], 30))
            assert len(await store.search([1.0, 1.0, 0.0], 100)) == await store.count() == 15

        self.run(test)

    def test_adding_an_id_again_replaces_vector_and_metadata(self) -> None:
        async def test(store: VectorStore) -> None:
            await store.add("x", [1.0, 0.0, 0.0], {"version": 1})
            await store.upsert("x", [0.0, 1.0, 0.0], {"version": 2})
            [result] = await store.search([0.0, 1.0, 0.0])
            assert (result.id, result.distance, result.metadata) == ("x", 0.0, {"version": 2})
            await store.upsert("x", [0.0, 1.0, 0.0])
            assert [each.metadata for each in await store.search([0.0, 1.0, 0.0])] == [{}]
            assert await store.count() == 1

        self.run(test)

    def test_deleting_says_whether_it_was_there_and_the_id_can_come_back(self) -> None:
        async def test(store: VectorStore) -> None:
            assert await store.delete("x") is False
            await store.add("x", [1.0, 0.0, 0.0])
            assert [await store.delete("x"), await store.delete("x")] == [True, False]
            assert (await store.count(), await store.search([1.0, 0.0, 0.0])) == (0, [])
            await store.add("x", [0.0, 0.0, 1.0])
            assert _ids(await store.search([1.0, 0.0, 0.0])) == ["x"]

        self.run(test)

    def test_k_and_limit_say_how_many_and_fewer_are_no_error(self) -> None:
        async def test(store: VectorStore) -> None:
            assert await store.search([1.0, 0.0, 0.0]) == []
            for number in range(15):
                await store.add(f"v{number:02}", [1.0, number / 100, 0.0])
            everything = _ids(await store.search([1.0, 0.0, 0.0], 100))
            assert everything == [f"v{number:02}" for number in range(15)]
            assert _ids(await store.search([1.0, 0.0, 0.0])) == everything[:10]
            assert _ids(await store.search([1.0, 0.0, 0.0], 3)) == everything[:3]
            assert _ids(await store.search([1.0, 0.0, 0.0], limit=4)) == everything[:4]
            wrong: list[Any] = [0, -1, 10_001, 2.5, "3", True]
            for number in wrong:
                with pytest.raises(errors.InvalidInputError):
                    await store.search([1.0, 0.0, 0.0], number)

        self.run(test)

    def test_length_does_not_count_only_direction_does(self) -> None:
        async def test(store: VectorStore) -> None:
            # Squares of these overflow or vanish in 32 bits.
            for id, size in (("tiny", 1e-30), ("one", 1.0), ("huge", 1e37)):
                await store.add(id, [size, size, 0.0])
            for size in (1e-300, 1e-30, 1.0, 1e30, 1e300):
                results = await store.search([size, size, 0.0])
                assert _ids(results) == ["huge", "one", "tiny"]
                assert [each.distance for each in results] == pytest.approx([0.0] * 3, abs=1e-6)

        self.run(test)

    # --- what is refused ------------------------------------------------------------------------------------------

    def test_a_wrong_dimension_is_refused_at_add_and_harms_no_search(self) -> None:
        async def test(store: VectorStore) -> None:
            await store.add("good", [1.0, 0.0, 0.0])
            wrong: list[Any] = [[], [1.0], [1.0, 2.0], [1.0] * 4, [[1.0, 0.0, 0.0]]]
            for vector in wrong:
                with pytest.raises(errors.InvalidInputError):
                    await store.add("bad", vector)
                with pytest.raises(errors.InvalidInputError):
                    await store.upsert("good", vector)
            assert _ids(await store.search([1.0, 0.0, 0.0])) == ["good"]
            assert await store.count() == 1

        self.run(test)

    def test_a_wrong_dimension_is_refused_at_search(self) -> None:
        async def test(store: VectorStore) -> None:
            await store.add("good", [1.0, 0.0, 0.0])
            for wrong in ([], [1.0, 2.0], [1.0] * 4):
                with pytest.raises(errors.InvalidInputError):
                    await store.search(wrong)

        self.run(test)

    @pytest.mark.parametrize("vector", _BAD_VECTORS.values(), ids=_BAD_VECTORS)
    def test_what_has_no_direction_or_is_no_number_is_refused_and_nothing_written(self, vector: Any) -> None:
        async def test(store: VectorStore) -> None:
            with pytest.raises(errors.InvalidInputError):
                await store.add("bad", vector)
            assert await store.count() == 0

        self.run(test)

    def test_a_query_with_a_number_that_is_none_is_refused_and_zero_finds_nothing(self) -> None:
        async def test(store: VectorStore) -> None:
            await store.add("a", [1.0, 0.0, 0.0])
            for wrong in ([math.nan, 0.0, 0.0], [0.0, math.inf, 0.0]):
                with pytest.raises(errors.InvalidInputError):
                    await store.search(wrong)
            assert await store.search([0.0, 0.0, 0.0]) == []
            assert await store.search([0, -0.0, 0]) == []

        self.run(test)

    @pytest.mark.parametrize("id", _BAD_IDS.values(), ids=_BAD_IDS)
    def test_an_id_that_cannot_be_printed_is_refused(self, id: Any) -> None:
        async def test(store: VectorStore) -> None:
            with pytest.raises(errors.InvalidInputError):
                await store.add(id, [1.0, 0.0, 0.0])
            assert await store.count() == 0

        self.run(test)

    def test_any_printable_id_is_kept_as_it_is(self) -> None:
        async def test(store: VectorStore) -> None:
            for id in _GOOD_IDS:
                await store.add(id, [1.0, 0.0, 0.0])
            assert _ids(await store.search([1.0, 0.0, 0.0], 50)) == sorted(_GOOD_IDS)
            assert all([await store.delete(id) for id in _GOOD_IDS])

        self.run(test)

    # --- metadata -------------------------------------------------------------------------------------------------

    def test_metadata_come_back_as_they_were_when_added(self) -> None:
        async def test(store: VectorStore) -> None:
            metadata = {"text": "é漢\0", "n": 1.5, "list": [1, {"a": None}], "yes": True, "": ""}
            await store.add("x", [1.0, 0.0, 0.0], metadata)
            # The store must have its own copy by now.
            metadata["n"] = "changed afterwards"
            [result] = await store.search([1.0, 0.0, 0.0])
            assert result.metadata == {**metadata, "n": 1.5}

        self.run(test)

    @pytest.mark.parametrize("metadata", [{"x": math.nan}, {1: "x"}, {"x": object()}, ["x"], {"x": "\ud800"}, DEEP])
    def test_metadata_that_are_no_json_are_refused(self, metadata: Any) -> None:
        async def test(store: VectorStore) -> None:
            with pytest.raises(errors.InvalidInputError):
                await store.add("x", [1.0, 0.0, 0.0], metadata)
            with pytest.raises(errors.InvalidInputError):
                await store.search([1.0, 0.0, 0.0], filter=metadata)
            assert await store.count() == 0

        self.run(test)

    def test_a_filter_counts_before_k_does(self) -> None:
        async def test(store: VectorStore) -> None:
            for number in range(40):
                kind = "rare" if number >= 37 else "usual"
                await store.add(f"v{number:02}", [1.0, number / 10, 0.0], {"kind": kind, "even": number % 2 == 0})
            query = [1.0, 0.0, 0.0]
            assert _ids(await store.search(query, 2, filter={"kind": "rare"})) == ["v37", "v38"]
            assert _ids(await store.search(query, filter={"kind": "rare", "even": True})) == ["v38"]
            assert await store.search(query, filter={"kind": "none"}) == []
            assert len(await store.search(query, filter={})) == 10

        self.run(test)

    def test_a_filter_follows_what_changes(self) -> None:
        async def test(store: VectorStore) -> None:
            query = [1.0, 0.0, 0.0]
            tag_filter = {"kind": "x"}
            await store.add("a", query, {"kind": "x"})
            assert _ids(await store.search(query, filter=tag_filter)) == ["a"]
            await store.add("b", query, {"kind": "x"})
            await store.add("a", query, {"kind": "y"})
            assert _ids(await store.search(query, filter=tag_filter)) == ["b"]
            await store.delete("b")
            assert await store.search(query, filter=tag_filter) == []

        self.run(test)

    def test_a_filter_means_equal_json_and_an_absent_key_is_null(self) -> None:
        async def test(store: VectorStore) -> None:
            values: dict[str, Any] = {"one": 1, "float": 1.0, "true": True, "text": "1", "null": None, "list": [1, 2]}
            for id, value in values.items():
                await store.add(id, [1.0, 0.0, 0.0], {"x": value})
            await store.add("absent", [1.0, 0.0, 0.0])

            async def having(value: Any) -> list[str]:
                return _ids(await store.search([1.0, 0.0, 0.0], filter={"x": value}))

            assert await having(1) == await having(1.0) == ["float", "one"]
            assert await having(True) == ["true"]
            assert await having("1") == ["text"]
            assert await having(None) == ["absent", "null"]
            assert await having([1.0, 2]) == ["list"]
            assert await having([1]) == await having({"a": 1}) == []

        self.run(test)

    # --- many callers ---------------------------------------------------------------------------------------------

    def test_sixty_racing_callers_lose_nothing(self) -> None:
        async def test(store: VectorStore) -> None:
            async def caller(number: int) -> None:
                await store.add(f"mine {number}", [1.0, float(number), 0.0])
                await store.upsert("everybody's", [0.0, 0.0, float(number + 1)])
                assert f"mine {number}" in _ids(await store.search([1.0, float(number), 0.0], 100))

            await asyncio.gather(*(caller(number) for number in range(60)))
            assert await store.count() == 61

        self.run(test)

    def test_a_refused_add_does_not_harm_those_beside_it(self) -> None:
        async def test(store: VectorStore) -> None:
            adds = [store.add(f"v{n}", [1.0, 0.0, 0.0] if n % 3 else [0.0, 0.0, 0.0]) for n in range(30)]
            outcomes = await asyncio.gather(*adds, return_exceptions=True)
            assert [type(each) for each in outcomes[:3]] == [errors.InvalidInputError, type(None), type(None)]
            assert await store.count() == 20

        self.run(test)

    def test_a_search_beside_writers_never_answers_with_what_is_not_so(self) -> None:
        async def test(store: VectorStore) -> None:
            await store.add("x", [1.0, 0.0, 0.0], {"at": 0})

            async def write() -> None:
                for number in range(1, 40):
                    await store.add("x", [1.0, float(number), 0.0], {"at": number})

            async def search() -> None:
                for _ in range(40):
                    [result] = await store.search([1.0, 0.0, 0.0])
                    expected = 1 - 1 / math.hypot(1, result.metadata["at"])
                    assert result.distance == pytest.approx(expected, abs=1e-6)

            # A torn row would have a distance and a metadata of two different versions.
            await asyncio.gather(write(), search(), search())

        self.run(test)

    # --- opening and closing --------------------------------------------------------------------------------------

    def test_closing_twice_is_no_error_and_nothing_works_afterwards(self) -> None:
        async def test(store: VectorStore) -> None:
            await store.add("x", [1.0, 0.0, 0.0])
            await store.close()
            await store.close()
            acts: list[Callable[[], Awaitable[Any]]] = [
                lambda: store.add("x", [1.0, 0.0, 0.0]),
                lambda: store.search([1.0, 0.0, 0.0]),
                lambda: store.delete("x"),
                store.count,
            ]
            for act in acts:
                with pytest.raises(errors.ClosedError):
                    await act()

        self.run(test)

    def test_what_was_kept_is_there_after_opening_again(self) -> None:
        if not self.shared:
            pytest.skip("memory is not shared")

        async def test(store: VectorStore) -> None:
            await _fill(store, _NEAR)
            await store.delete("b")
            await store.search([1.0, 0.0, 0.0])
            await store.close()
            again = await self.open(3)
            assert _ids(await again.search([1.0, 0.0, 0.0])) == ["a", "c", "d"]
            await again.close()

        self.run(test)

    def test_two_openings_see_each_other_at_once(self) -> None:
        if not self.shared:
            pytest.skip("memory is not shared")

        async def test(one: VectorStore) -> None:
            other = await self.open(3)
            for number in range(10):
                here, there = (one, other) if number % 2 else (other, one)
                await here.add(f"v{number}", [1.0, float(number), 0.0])
                assert _ids(await there.search([1.0, float(number), 0.0], 1)) == [f"v{number}"]
                await there.add(f"v{number}", [-1.0, float(number), 0.0])
                assert (await here.search([-1.0, float(number), 0.0], 1))[0].distance == 0
                await here.delete(f"v{number}")
                assert await there.search([1.0, 0.0, 0.0]) == []
            await other.close()

        self.run(test)

    # --- any history ----------------------------------------------------------------------------------------------

    def test_any_history_is_answered_as_a_plain_list_would(self) -> None:
        number = st.integers(-3, 3).map(float)
        vector = st.tuples(number, number, number)
        act = st.tuples(st.sampled_from("aaad"), st.sampled_from("pqrstuvw"), vector, st.sampled_from([0, 1, None]))

        @settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
        @given(st.lists(act, max_size=25), vector, st.integers(1, 6), st.sampled_from([0, 1, None, "any"]))
        def holds(acts: list[Any], query: Sequence[float], k: int, tag_filter: Any) -> None:
            self.run(lambda store: _compare(store, acts, query, k, tag_filter))

        holds()


async def _compare(store: VectorStore, acts: list[Any], query: Sequence[float], k: int, tag_filter: Any) -> None:
    model: dict[str, tuple[Sequence[float], Any]] = {}
    # Hypothesis runs many examples on one store.
    for id in "pqrstuvw":
        await store.delete(id)
    for kind, id, vector, tag in acts:
        if kind == "d":
            assert await store.delete(id) is (model.pop(id, None) is not None)
        elif any(vector):
            await store.add(id, vector, {"tag": tag})
            model[id] = (vector, tag)
    results = await store.search(query, k, filter=None if tag_filter == "any" else {"tag": tag_filter})
    assert await store.count() == len(model)
    if not any(query):
        assert results == []
        return
    fit = {id: _distance(query, vector) for id, (vector, tag) in model.items() if tag_filter in ("any", tag)}
    assert [(each.distance, each.id) for each in results] == sorted((each.distance, each.id) for each in results)
    assert len(results) == min(k, len(fit))
    assert all(each.distance == pytest.approx(fit.pop(each.id), abs=1e-9) for each in results)
    # Whatever was not returned is no nearer than the last result.
    assert all(distance >= results[-1].distance - 1e-9 for distance in fit.values())


def _distance(one: Sequence[float], other: Sequence[float]) -> float:
    dot = math.fsum(a * b for a, b in zip(one, other, strict=True))
    return 1 - dot / (math.hypot(*one) * math.hypot(*other))


async def _fill(store: VectorStore, vectors: dict[str, list[float]]) -> None:
    for id, vector in vectors.items():
        await store.add(id, vector, {"name": id})


def _ids(results: Sequence[Any]) -> list[str]:
    return [each.id for each in results]
