"""Notes: found by what they say and by nothing else, gone when their time is over or their person is; every backend."""

import math
from typing import Any

import pytest

from holdproof import Tx, errors, sql, sync
from holdproof.memory.notes import filters, notes
from holdproof.testing import FrozenClock
from tests.conformance.decisions import InMemory, OnPostgres, OnSqlite, OnStore
from tests.conformance.racing import together

ODD: list[dict[str, Any]] = [{"t": "ä \0 \U0001f600 '\""}, {"lone": "\ud800"}, {"n": [1, 2.5, None, True, 2**70]}, {}]
_ROWS = sql("SELECT count(*) FROM notes")
_LEFT = sql("SELECT count(*) FROM note_vectors")
_EDIT = sql("UPDATE notes SET value = :value WHERE key = :key")
_TURN = sql("UPDATE note_vectors SET vector = :vector")


def keys(found: Any) -> list[str]:
    return [note.key for note in found]


class Notes(OnStore):
    def test_a_note_is_read_as_it_was_given(self, store: sync.Holdproof) -> None:
        for number, value in enumerate(ODD):
            store.notes.put(["a", "ä b"], str(number), value)
            found = store.notes.get(["a", "ä b"], str(number))
            assert (found.path, found.value, found.created_at) == (("a", "ä b"), value, found.updated_at)
        for path, key in ((["a"], "0"), (["a", "ä b"], "9")):
            with pytest.raises(errors.NotFoundError):
                store.notes.get(path, key)

    def test_a_note_that_is_put_again_keeps_the_day_it_was_made(
        self, store: sync.Holdproof, clock: FrozenClock
    ) -> None:
        store.notes.put(["a"], "k", {"v": 1})
        first = store.notes.get(["a"], "k")
        clock.advance(60)
        store.notes.put(["a"], "k", {"v": 2})
        second = store.notes.get(["a"], "k")
        assert (second.value, second.created_at) == ({"v": 2}, first.created_at)
        assert second.updated_at > first.updated_at

    @pytest.mark.parametrize(
        "wrong",
        [
            *({"path": ()}, {"path": ("a.b",)}, {"path": ("",)}, {"path": ("a\0",)}, {"path": "ab"}, {"path": (1,)}),
            *({"key": ""}, {"key": "a\0"}, {"key": "\ud800"}, {"key": "x" * 1001}),
            *({"value": {"a": {1}}}, {"value": {"a": math.nan}}, {"value": ["a"]}, {"value": {1: 2}}),
            *({"ttl_s": 0}, {"ttl_s": -1}, {"ttl_s": math.inf}, {"ttl_s": 1e12}, {"ttl_s": True}, {"ttl_s": "1"}),
            *({"vectors": {"v": ["x"]}}, {"vectors": {"v": [math.inf]}}, {"vectors": {"": [1.0]}}),
        ],
        ids=str,
    )
    def test_what_is_no_note_is_refused_and_nothing_of_it_is_written(
        self, store: sync.Holdproof, wrong: dict[str, Any]
    ) -> None:
        given: dict[str, Any] = {"path": ("a",), "key": "k", "value": {"v": 1}, **wrong}
        with pytest.raises(errors.InvalidInputError):
            store.notes.put(given.pop("path"), given.pop("key"), given.pop("value"), **given)
        assert store.read(lambda tx: tx.all(_ROWS)) == [(0,)]

    # --- searching ---------------------------------------------------------------------------------------------------

    def test_what_lies_below_a_path_is_found_and_no_path_that_only_begins_alike(self, store: sync.Holdproof) -> None:
        for path in (["foo"], ["foo", "x"], ["foo", "x", "y"], ["foobar"], ["foo-"], ["FOO"], ["fo"], ["foo/"]):
            store.notes.put(path, "/".join(path), {})
        assert set(keys(store.notes.search(["foo"]).items)) == {"foo", "foo/x", "foo/x/y"}
        assert set(keys(store.notes.search(["foo", "x"]).items)) == {"foo/x", "foo/x/y"}
        assert len(store.notes.search().items) == 8
        assert store.notes.search(["*"]).items == store.notes.search(["fo%"]).items == []

    def test_the_last_written_comes_first_and_pages_fit_together(
        self, store: sync.Holdproof, clock: FrozenClock
    ) -> None:
        for number in range(7):
            clock.advance(1)
            store.notes.put(["a"], str(number), {"even": number % 2 == 0})
        assert keys(store.notes.search(limit=3).items) == ["6", "5", "4"]
        first = store.notes.search(limit=3)
        assert keys(store.notes.search(limit=3, cursor=first.next_cursor).items) == ["3", "2", "1"]
        even = store.notes.search(filter={"even": True}, limit=1)
        rest = store.notes.search(filter={"even": True}, limit=3, cursor=even.next_cursor)
        assert (keys(rest.items), rest.next_cursor) == (["4", "2", "0"], None)
        for wrong in ("", "x", "-1", "9" * 30):
            with pytest.raises(errors.InvalidInputError, match="cursor"):
                store.notes.search(cursor=wrong)
        with pytest.raises(errors.InvalidInputError):
            store.notes.search(limit=0)

    def test_vectors_rank_notes_by_their_nearest_one(self, store: sync.Holdproof) -> None:
        store.notes.put(["a"], "both", {"v": 1}, vectors={"x": [0.0, 1.0], "y": [1.0, 0.1]})
        store.notes.put(["a"], "far", {"v": 2}, vectors={"x": [-1.0, 0.0]})
        store.notes.put(["a"], "near", {"v": 3}, vectors={"x": [2.0, 0.0]})
        store.notes.put(["a"], "none", {"v": 4})
        store.notes.put(["a"], "zero", {"v": 5}, vectors={"x": [0.0, 0.0]})
        store.notes.put(["a"], "longer", {"v": 6}, vectors={"x": [1.0, 0.0, 0.0]})
        store.notes.put(["b"], "elsewhere", {"v": 7}, vectors={"x": [1.0, 0.0]})
        found = store.notes.search(["a"], vector=[1.0, 0.0]).items
        assert keys(found) == ["near", "both", "far"]
        assert [round(note.score or 0, 3) for note in found] == [1.0, 0.995, -1.0]
        assert keys(store.notes.search(["a"], vector=[1.0, 0.0], filter={"v": {"$ne": 3}}, limit=1).items) == ["both"]
        assert store.notes.search(["a"], vector=[0.0, 0.0]).items == []

    def test_a_note_without_vectors_is_not_found_by_those_it_had(self, store: sync.Holdproof) -> None:
        store.notes.put(["a"], "k", {}, vectors={"x": [1.0]})
        store.notes.put(["a"], "k", {})
        assert store.notes.search(vector=[1.0]).items == []
        assert store.read(lambda tx: tx.all(_LEFT)) == [(0,)]

    def test_paths_are_matched_label_by_label(self, store: sync.Holdproof) -> None:
        for path in (["u", "ada", "food"], ["u", "bob", "food"], ["u", "ada"], ["v"], ["u", "adah", "x", "y"]):
            store.notes.put(path, "k", {})
        assert store.notes.paths(prefixes=[["u", "ada"]]).items == [("u", "ada"), ("u", "ada", "food")]
        assert store.notes.paths(prefixes=[["u", "*", "food"]]).items == [("u", "ada", "food"), ("u", "bob", "food")]
        assert store.notes.paths(suffixes=[["ada"]]).items == [("u", "ada")]
        assert store.notes.paths(suffixes=[["*", "food"]], prefixes=[["u"], ["*", "bob"]]).items == [
            ("u", "bob", "food"),
        ]
        assert store.notes.paths(max_depth=1).items == [("u",), ("v",)]
        first = store.notes.paths(limit=1)
        assert store.notes.paths(limit=1, cursor=first.next_cursor).items == [("u", "ada", "food")]

    # --- time --------------------------------------------------------------------------------------------------------

    def test_a_note_whose_time_is_over_is_not_there_whether_it_was_swept_or_not(
        self, store: sync.Holdproof, clock: FrozenClock
    ) -> None:
        store.notes.put(["a"], "short", {"v": 1}, ttl_s=10, vectors={"v": [1.0]})
        store.notes.put(["b"], "long", {"v": 1}, ttl_s=20, vectors={"v": [1.0]})
        clock.advance(9.999999)
        assert len(store.notes.search().items) == 2
        clock.advance(0.000001)
        with pytest.raises(errors.NotFoundError):
            store.notes.get(["a"], "short")
        assert keys(store.notes.search().items) == keys(store.notes.search(vector=[1.0]).items) == ["long"]
        assert store.notes.paths().items == [("b",)]
        assert not store.notes.touch(["a"], "short")
        assert store.sweep.run().notes == 1
        assert store.notes.sweep() == 0
        assert store.read(lambda tx: tx.all(_LEFT)) == [(1,)]

    def test_a_touch_begins_the_time_anew(self, store: sync.Holdproof, clock: FrozenClock) -> None:
        store.notes.put(["a"], "k", {}, ttl_s=10)
        store.notes.put(["a"], "for good", {})
        clock.advance(6)
        assert store.notes.touch(["a"], "k")
        assert not store.notes.touch(["a"], "for good")
        clock.advance(6)
        assert store.notes.get(["a"], "k").key == "k"
        clock.advance(4)
        with pytest.raises(errors.NotFoundError):
            store.notes.get(["a"], "k")

    def test_a_note_put_where_one_has_ended_is_a_new_one(self, store: sync.Holdproof, clock: FrozenClock) -> None:
        store.notes.put(["a"], "k", {"v": 1}, ttl_s=1)
        clock.advance(5)
        store.notes.put(["a"], "k", {"v": 2})
        found = store.notes.get(["a"], "k")
        assert (found.created_at, found.expires_at) == (found.updated_at, None)
        assert store.notes.sweep() == 0

    def test_a_sweep_takes_any_number(self, store: sync.Holdproof, clock: FrozenClock) -> None:
        def many(tx: Tx) -> None:
            for number in range(1100):
                notes.put(tx, ["a"], str(number), {}, ttl_s=1)

        store.write(many)
        clock.advance(2)
        assert store.notes.sweep() == 1100

    # --- who writes --------------------------------------------------------------------------------------------------

    def test_racing_writers_leave_one_whole_note(self, live: sync.Holdproof) -> None:
        def write(number: int) -> None:
            vectors = {f"v{number}": [number + 1.0, 1.0]}
            live.notes.put(["a"], "k", {"number": number, "again": number}, vectors=vectors)

        together(12, write)
        [found] = live.notes.search(vector=[1.0, 0.0]).items
        assert found.value["number"] == found.value["again"]
        assert live.read(lambda tx: tx.all(_LEFT)) == [(1,)]
        assert live.verify.run().verdict.sound

    def test_a_failing_neighbour_does_not_harm_a_note(self, live: sync.Holdproof) -> None:
        def both(tx: Tx) -> None:
            notes.put(tx, ["a"], "spoilt", {})
            notes.put(tx, ["a"], "spoilt", {"x": math.nan})

        def work(number: int) -> None:
            if number % 3:
                return live.notes.put(["a"], str(number), {})
            with pytest.raises(errors.InvalidInputError):
                live.write(both)
            return None

        together(9, work)
        assert sorted(keys(live.notes.search().items)) == ["1", "2", "4", "5", "7", "8"]

    # --- persons and damage ------------------------------------------------------------------------------------------

    def test_a_note_goes_with_its_person_and_stays_hers_until_then(self, store: sync.Holdproof) -> None:
        store.notes.put(["u"], "hers", {"v": 1}, subject="ada", vectors={"v": [1.0]})
        store.notes.put(["u"], "hers", {"v": 2})
        store.notes.put(["u"], "his", {"v": 3}, subject="bob")
        store.notes.put(["u"], "nobody's", {"v": 4})
        erased = store.erase.subject("ada", who="grace")
        assert erased.count == 1
        assert set(keys(store.notes.search().items)) == {"his", "nobody's"}
        assert store.read(lambda tx: tx.all(_LEFT)) == [(0,)]
        assert store.verify.run().verdict.sound

    def test_verify_finds_a_note_that_was_edited(self, store: sync.Holdproof) -> None:
        store.notes.put(["a"], "k", {"v": 1})
        assert store.verify.run().checked["notes"] == 1
        store.write(lambda tx: tx.execute(_EDIT, key="k", value='{"v":2}'))
        assert [finding.table for finding in store.verify.run().findings] == ["notes"]

    def test_verify_finds_a_vector_that_was_turned(self, store: sync.Holdproof) -> None:
        store.notes.put(["a"], "k", {"v": 1}, vectors={"v": [1.0]})
        store.write(lambda tx: tx.execute(_TURN, vector=b"\0\0\0\xc0"))
        assert [finding.table for finding in store.verify.run().findings] == ["notes"]


@pytest.mark.parametrize(
    "key",
    [
        "access') = 'public' OR '1'='1' OR json_extract(value, '$.",
        *("a b", "a;--", "a'", 'a"', "a\n", "", ".", "a.", ".a", "a..b", "$", "a[0]", "ä", "a\0", "a" * 1001, None, 7),
    ],
    ids=lambda key: repr(key)[:20],
)
def test_a_hostile_filter_key_is_refused(key: Any) -> None:
    with pytest.raises(errors.InvalidInputError, match="Invalid filter key"):
        filters.compiled({key: 1})


@pytest.mark.parametrize("wrong", [{"$where": 1}, {"b": 1}, {"$gt": None}, {"$lt": [1]}, {"$gte": True}, {1: 2}])
def test_an_unknown_operator_or_operand_is_refused(wrong: dict[Any, Any]) -> None:
    with pytest.raises(errors.InvalidInputError):
        filters.compiled({"a": wrong})


@pytest.mark.parametrize(
    ("wanted", "value", "found"),
    [
        ({"a": 1}, {"a": 1.0}, True),
        ({"a": 1}, {"a": True}, False),
        ({"a": True}, {"a": 1}, False),
        ({"a": None}, {}, True),
        ({"a": None}, {"a": None}, True),
        ({"a": {"$ne": None}}, {}, False),
        ({"a": {"$ne": 1}}, {}, False),
        ({"a": {"$ne": 1}}, {"a": 2}, True),
        ({"a": [1, {"b": 2}]}, {"a": [1.0, {"b": 2}]}, True),
        ({"a": [1]}, {"a": [True]}, False),
        ({"a.b.c-d": "x"}, {"a": {"b": {"c-d": "x"}}}, True),
        ({"a.b": 1}, {"a": [1]}, False),
        ({"a": {"$gt": 1, "$lte": 3}}, {"a": 3}, True),
        ({"a": {"$gt": 1}}, {"a": "2"}, False),
        ({"a": {"$gt": "a"}}, {"a": "b"}, True),
        ({"a": {"$lt": math.inf}}, {"a": 10**400}, True),
        ({"a": {"$eq": math.nan}}, {"a": 1}, False),
        ({"a": {"$gt": 0}}, {"a": True}, False),
        ({"a": {}}, {}, True),
        ({}, {}, True),
    ],
)
def test_a_filter_lets_through_what_json_calls_equal(wanted: Any, value: Any, found: bool) -> None:
    test = filters.compiled(wanted)
    assert (test is None or test(value)) is found


class TestSqlite(OnSqlite, Notes):
    pass


class TestMemory(InMemory, Notes):
    pass


class TestPostgres(OnPostgres, Notes):
    pass
