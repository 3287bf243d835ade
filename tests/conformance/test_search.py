"""Search: by words, always by what is there now, and never by accident in another language; on every backend."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdproof import errors, sync
from holdproof.memory.objects import records
from holdproof.memory.objects.records import ObjectRecord
from holdproof.memory.search import search_index
from tests.conformance.decisions import InMemory, OnPostgres, OnSqlite
from tests.conformance.memories import OnMemory

CHECKS = [HealthCheck.function_scoped_fixture, HealthCheck.differing_executors]  # one law, on several backends
HOSTILE = [
    'milk"',
    "milk*",
    "body:milk",
    "-milk",
    "^milk",
    "milk OR",
    "NOT milk",
    "NEAR(milk, 2)",
    "(milk",
    "milk & | !",
    "milk:*",
    "milk'); DROP TABLE object_text; --",
    "milk\0",
    "milk\\",
    "{body}: milk",
]


def ids(store: sync.Holdproof, text: str, **options: Any) -> list[str]:
    return [each.id for each in store.objects.search(text, **options)]


class Search(OnMemory):
    def test_an_object_is_found_by_the_words_of_content_and_attributes(self, store: sync.Holdproof) -> None:
        store.objects.put(
            "a", type="note", content="Buy MILK, eggs & flour", attributes={"tags": ["Shop", {"x": "Später"}]}
        )
        store.objects.put("b", type="note", content={"lines": ["milk the cow"]})
        assert ids(store, "milk") == ["b", "a"] or ids(store, "milk") == ["a", "b"]
        assert ids(store, "eggs milk") == ids(store, "shop SPÄTER") == ids(store, "flour, eggs!") == ["a"]
        assert ids(store, "milk bread") == ids(store, "mil") == ids(store, "note") == []
        assert store.objects.search("cow") == (store.objects.get("b"),)

    def test_the_order_of_fields_does_not_matter(self, store: sync.Holdproof) -> None:
        store.objects.put("a", type="t", content={"zz": "one", "a": "two"}, attributes={"title": "three", "b": "four"})
        assert ids(store, "four two") == ["a"], "and the words fit, as every test ends by checking"

    def test_what_has_a_word_more_often_comes_first(self, store: sync.Holdproof) -> None:
        store.objects.put("a", type="t", content="milk and a lot of other words that say nothing of it at all")
        store.objects.put("b", type="t", content="milk milk milk")
        store.objects.put("c", type="t", content="something else")
        assert ids(store, "milk") == ["b", "a"]
        assert ids(store, "milk", limit=1) == ["b"]

    def test_only_what_is_there_now_is_found(self, store: sync.Holdproof) -> None:
        store.objects.put("a", type="t", content="old")
        first = store.snapshots.create().cid
        store.objects.put("a", type="t", content="new")
        assert (ids(store, "old"), ids(store, "new")) == ([], ["a"])
        store.snapshots.rollback(first)
        assert (ids(store, "old"), ids(store, "new")) == (["a"], [])
        store.objects.delete("a")
        assert ids(store, "old") == []
        store.snapshots.rollback(first)
        assert ids(store, "old") == ["a"]

    def test_what_a_failed_change_would_have_said_is_not_found(self, store: sync.Holdproof) -> None:
        with pytest.raises(errors.InvalidInputError):
            store.objects.apply({"a": {"type": "t", "content": "word"}, "b": {"type": "t", "content": object()}})
        assert ids(store, "word") == []

    def test_a_merge_and_an_archive_bring_their_words(self, store: sync.Holdproof, tmp_path: Any) -> None:
        store.objects.put("a", type="t", content="base")
        base = store.snapshots.create().cid
        store.objects.put("b", type="t", content="theirs")
        other = store.snapshots.create().cid
        store.archive.export_car(tmp_path / "a.car")
        store.snapshots.rollback(base)
        assert ids(store, "theirs") == []
        store.snapshots.merge(other, base=base)
        assert ids(store, "theirs") == ["b"]
        store.archive.import_car(tmp_path / "a.car", ns="else", did=store.snapshots.get().did)
        assert ids(store, "theirs", ns="else") == ["b"]

    def test_a_namespace_is_kept_to(self, store: sync.Holdproof) -> None:
        store.objects.put("a", type="t", content="word", ns="theirs")
        assert ids(store, "word") == []
        assert ids(store, "word", ns="theirs") == ["a"]

    @pytest.mark.parametrize("text", HOSTILE)
    def test_no_sign_is_syntax(self, store: sync.Holdproof, text: str) -> None:
        store.objects.put("a", type="t", content=f"{text} or not near 2 body drop table object text")
        store.objects.put("b", type="t", content="cream")
        assert ids(store, text) == ["a"]

    @pytest.mark.parametrize("text", ["", " ", "*", '"', "_ & !", "\0", "x " * 2000, " ".join(map(str, range(65)))])
    def test_what_is_no_search_is_refused(self, store: sync.Holdproof, text: str) -> None:
        with pytest.raises(errors.InvalidInputError):
            store.objects.search(text)

    def test_a_limit_is_kept_to(self, store: sync.Holdproof) -> None:
        for limit in (0, 1001):
            with pytest.raises(errors.InvalidInputError):
                store.objects.search("x", limit=limit)

    def test_of_a_very_long_text_the_beginning_is_searched(self, store: sync.Holdproof) -> None:
        many = " ".join(f"word{number}" for number in range(60_000))
        store.objects.put("a", type="t", content=f"first {'x' * 5000} {many} last")
        assert ids(store, "first word7") == ["a"]
        assert ids(store, "last") == []

    def test_to_index_again_changes_nothing(self, store: sync.Holdproof) -> None:
        store.objects.apply({f"o{number}": {"type": "t", "content": f"number {number}"} for number in range(450)})
        assert store.objects.reindex() == 450
        assert ids(store, "number 449") == ["o449"]

    @settings(max_examples=15, deadline=None, derandomize=True, suppress_health_check=CHECKS)
    @given(st.lists(st.tuples(st.sampled_from("abc"), st.none() | st.text("xyäß1_ -'\"*", max_size=8)), max_size=12))
    def test_the_words_follow_every_change(self, store: sync.Holdproof, changes: list[tuple[str, str | None]]) -> None:
        store.objects.apply(dict.fromkeys("abc"))
        for id, content in changes:
            store.objects.apply({id: None if content is None else {"type": "t", "content": content}})
        model = {id: content for id, content in dict(changes).items() if content is not None}
        for word in {word for _, content in changes for word in search_index.words(content or "")}:
            wanted = {id for id, content in model.items() if word in {*search_index.words(content)}}
            assert {*ids(store, word)} == wanted


def test_words_are_letters_and_digits_in_one_case() -> None:
    assert [*search_index.words("Straße_7: ÄPFEL!")] == ["strasse", "7", "äpfel"]


@given(st.text(st.characters(max_codepoint=127), max_size=80))
def test_words_in_ascii_are_cut_as_all_others_are(text: str) -> None:
    assert search_index.words(text) == search_index.words(f"{text} ä")[:-1]


def test_a_word_is_no_longer_than_a_database_takes() -> None:
    assert [len(word) for word in search_index.words("ß" * 400 + " " + "x" * 900)] == [500, 500]


def test_all_texts_of_a_record_are_in_its_words() -> None:
    record = ObjectRecord("id", "type", ["One", {"k": "two"}, 3, None], {"a": {"b": ["Three"]}}, "p", ("c",), 1)
    assert search_index.body(record, lambda _: None) == "one two three"
    made = records.encode(record._replace(content="long " * 60_000))
    read = records.decode(made[next(reversed(made))])
    assert search_index.body(read, made.get).startswith("long long")


class TestOnSqlite(OnSqlite, Search):
    pass


class TestInMemory(InMemory, Search):
    pass


class TestOnPostgres(OnPostgres, Search):
    pass
