"""Transcripts: nothing is lost, numbered twice or torn apart, whoever writes; on every backend."""

import pytest

from holdproof import Tx, errors, paging, sql, sync
from holdproof.memory.transcripts import transcripts
from tests.conformance.decisions import InMemory, OnPostgres, OnSqlite, OnStore
from tests.conformance.racing import together

_SPOIL = sql("UPDATE transcript_items SET body = :body WHERE seq = 1")
ODD = [{"text": "ä \0 \U0001f600 'quoted\""}, {"lone": "\ud800"}, [1, 2.5, None, True], "text", 2**70, {}]


def values(store: sync.Holdproof, name: str, **options: int | str) -> list[object]:
    page = store.transcripts.list_items(name, **options)  # type: ignore[arg-type]
    return [item.value for item in reversed(page.items)]


class Transcripts(OnStore):
    def test_items_are_read_as_they_were_given_and_in_their_order(self, store: sync.Holdproof) -> None:
        store.transcripts.append("chat", ODD[:2])
        store.transcripts.append("chat", ODD[2:])
        assert values(store, "chat") == ODD
        assert values(store, "chat", limit=2) == ODD[-2:]
        assert values(store, "another") == []
        assert values(store, "chat", cursor=paging.encode(3)) == ODD[:2]
        for wrong in ("", "x", "-1", "9" * 30):
            with pytest.raises(errors.InvalidInputError, match="cursor"):
                values(store, "chat", cursor=wrong)

    def test_items_are_listed_newest_first_a_page_at_a_time(self, store: sync.Holdproof) -> None:
        store.transcripts.append("chat", list(range(5)))
        first = store.transcripts.list_items("chat", limit=3)
        rest = store.transcripts.list_items("chat", limit=2, cursor=first.next_cursor)
        assert [item.value for item in (*first.items, *rest.items)] == [4, 3, 2, 1, 0]
        assert rest.next_cursor is None

    def test_all_items_are_read_in_their_order_within_one_transaction(self, store: sync.Holdproof) -> None:
        store.transcripts.append("chat", list(range(1_200)))
        items = store.read(lambda tx: transcripts.read_items(tx, "chat"))
        assert [item.value for item in items] == list(range(1_200))

    def test_what_is_no_json_is_refused_and_nothing_of_it_is_written(self, store: sync.Holdproof) -> None:
        loop: list[object] = []
        loop.append(loop)
        for wrong in ({1, 2}, float("nan"), b"bytes", loop):
            with pytest.raises(errors.InvalidInputError):
                store.transcripts.append("chat", [{"fine": 1}, wrong])
        for name in ("", "a\nb", "x" * 1001):
            with pytest.raises(errors.InvalidInputError):
                store.transcripts.append(name, [1])
        with pytest.raises(errors.NotFoundError):
            store.transcripts.get("chat")

    def test_an_item_whose_key_is_there_is_not_added_again(self, store: sync.Holdproof) -> None:
        def add(*items: tuple[str | None, object]) -> list[object]:
            return store.write(lambda tx: transcripts.append_new(tx, "chat", items))

        assert add(("a", 1), (None, 2), ("a", 3), ("b", 4)) == [1, 2, 4]
        assert add(("b", 5), (None, 2), ("c", 6)) == [2, 6]
        assert values(store, "chat") == [1, 2, 4, 2, 6]
        assert store.transcripts.get_item("chat", "b").value == 4

    def test_erasing_a_person_removes_the_transcripts_of_that_person_and_no_other(self, store: sync.Holdproof) -> None:
        store.transcripts.append("ada", ["before"])
        store.transcripts.append("ada", ["with a name"], subject="Ada")
        store.transcripts.put_item("ada", "key", "of somebody else now?", subject="Grace")
        store.transcripts.put_state("grace", {"of": "Grace"}, subject="Grace")
        store.transcripts.append("nobody", ["stays"])
        store.erase.subject("Ada")
        assert [each.name for each in store.transcripts.list()] == ["grace", "nobody"]
        assert values(store, "ada") == []
        store.transcripts.append("ada", ["anew"], subject="Ada")
        assert values(store, "ada") == ["anew"]
        assert store.verify.run().verdict.sound

    def test_the_last_item_goes_first_and_its_number_never_comes_again(self, store: sync.Holdproof) -> None:
        assert store.transcripts.pop_item("chat") is None
        store.transcripts.append("chat", ["a", "b"])
        popped = store.transcripts.pop_item("chat")
        assert popped is not None
        assert (popped.seq, popped.value) == (2, "b")
        store.transcripts.append("chat", ["c"])
        assert [(item.seq, item.value) for item in store.transcripts.list_items("chat").items] == [(3, "c"), (1, "a")]
        assert store.transcripts.delete_items("chat") == 2
        store.transcripts.append("chat", ["d"])
        assert [item.seq for item in store.transcripts.list_items("chat").items] == [4]

    def test_a_keyed_item_stands_for_the_last_that_was_put(self, store: sync.Holdproof) -> None:
        store.transcripts.put_item("runs", "one", {"v": 1}, tag="flow")
        store.transcripts.put_item("runs", "two", {"v": 2}, tag="other")
        store.transcripts.put_item("runs", "one", {"v": 3}, tag="flow")
        assert values(store, "runs") == [{"v": 2}, {"v": 3}]
        assert values(store, "runs", tag="flow", limit=1) == [{"v": 3}]
        found = store.transcripts.get_item("runs", "one")
        assert (found.value, found.key, found.tag) == ({"v": 3}, "one", "flow")
        assert store.transcripts.delete_item("runs", "one")
        assert not store.transcripts.delete_item("runs", "one")
        with pytest.raises(errors.NotFoundError, match="no item one"):
            store.transcripts.get_item("runs", "one")

    def test_a_writer_that_saw_another_revision_is_refused(self, store: sync.Holdproof) -> None:
        rev = store.transcripts.append("chat", ["a"], state={"n": 1}, expected=0)
        with pytest.raises(errors.ConflictError):
            store.transcripts.append("chat", ["late"], expected=0)
        assert store.transcripts.append("chat", ["b"], expected=rev) == rev + 1
        for stale in (rev, rev + 5):
            with pytest.raises(errors.ConflictError):
                store.transcripts.put_state("chat", {"n": 2}, expected=stale)
        kept = store.transcripts.get("chat")
        assert (kept.state, kept.rev, values(store, "chat")) == ({"n": 1}, rev + 1, ["a", "b"])
        with pytest.raises(errors.ConflictError):
            store.transcripts.put_state("not there", {}, expected=3)
        with pytest.raises(errors.InvalidInputError):
            store.transcripts.put_state("chat", {}, expected=-1)

    def test_the_document_stays_until_it_is_replaced(self, store: sync.Holdproof) -> None:
        store.transcripts.put_state("chat", {"who": "Ada"})
        store.transcripts.append("chat", ["a"])
        store.transcripts.delete_items("chat")
        assert store.transcripts.get("chat").state == {"who": "Ada"}
        store.transcripts.put_state("chat", None)
        assert store.transcripts.get("chat").state == {}

    def test_keys_of_the_document_are_changed_and_the_others_stay(self, store: sync.Holdproof) -> None:
        assert store.transcripts.update_state("chat", {"a": 1, "b": 1}) == {"a": 1, "b": 1}
        rev = store.transcripts.append("chat", ["x"], changes={"b": 2})
        assert store.transcripts.update_state("chat", {"c": None}, expected=rev) == {"a": 1, "b": 2, "c": None}
        with pytest.raises(errors.ConflictError):
            store.transcripts.update_state("chat", {"a": 9}, expected=rev)
        store.transcripts.put_state("chat", [1])
        with pytest.raises(errors.InvalidInputError):
            store.transcripts.update_state("chat", {"a": 9})
        assert store.transcripts.get("chat").state == [1]

    def test_what_was_deleted_begins_anew(self, store: sync.Holdproof) -> None:
        store.transcripts.append("chat", ["a"], state=[1])
        assert store.transcripts.delete("chat")
        assert not store.transcripts.delete("chat")
        assert values(store, "chat") == []
        assert store.transcripts.append("chat", ["b"]) == 1
        assert store.transcripts.get("chat").state == {}

    def test_names_are_listed_by_prefix_a_page_at_a_time(self, store: sync.Holdproof) -> None:
        for name in ("a/1", "a/2", "a/Z", "a/é", "aa", "b/1"):
            store.transcripts.put_state(name, {})
        first = store.transcripts.list(prefix="a/", limit=3)
        rest = store.transcripts.list(prefix="a/", cursor=first.next_cursor, limit=3)
        assert [one.name for one in (*first.items, *rest.items)] == ["a/1", "a/2", "a/Z", "a/é"]
        assert rest.next_cursor is None
        with pytest.raises(errors.InvalidInputError):
            store.transcripts.list(limit=0)

    @pytest.mark.parametrize("text", ["{", "1,2", "", "]["])
    def test_a_row_that_is_no_json_is_an_error_and_not_passed_over(self, store: sync.Holdproof, text: str) -> None:
        store.transcripts.append("chat", ["a", "b"])
        store.write(lambda tx: tx.execute(_SPOIL, body=text))
        with pytest.raises(errors.FormatError):
            store.transcripts.list_items("chat")

    def test_a_failing_neighbour_takes_no_item_along(self, store: sync.Holdproof) -> None:
        def fails(tx: Tx) -> None:
            transcripts.append(tx, "chat", ["lost"])
            raise errors.ConflictError("no")

        with pytest.raises(errors.ConflictError):
            store.write(fails)
        store.transcripts.append("chat", ["kept"])
        assert values(store, "chat") == ["kept"]


class Races(OnStore):
    def test_racing_writers_lose_nothing_and_each_append_stays_together(self, live: sync.Holdproof) -> None:
        def work(number: int) -> bool:
            for turn in range(5):
                live.transcripts.append("chat", [[number, turn, part] for part in range(3)])
            return True

        together(8, work)
        found = live.transcripts.list_items("chat", limit=200).items[::-1]
        assert [item.seq for item in found] == list(range(1, 8 * 5 * 3 + 1))
        triples = [[item.value for item in found[at : at + 3]] for at in range(0, len(found), 3)]
        assert all(one[:2] == three[:2] and three[2] == 2 for one, _, three in triples)
        for number in range(8):
            assert [one[1] for one, *_ in triples if one[0] == number] == list(range(5)), "each writer's own order"

    def test_of_racing_takers_each_gets_another_item(self, live: sync.Holdproof) -> None:
        live.transcripts.append("chat", list(range(6)))

        def work(number: int) -> object:
            popped = live.transcripts.pop_item("chat")
            return None if popped is None else popped.value

        wanted: dict[object, int] = {**dict.fromkeys(range(6), 1), None: 2}
        assert together(8, work) == wanted

    def test_of_racing_writers_with_one_revision_one_is_taken(self, live: sync.Holdproof) -> None:
        rev = live.transcripts.append("chat", ["a"])

        def work(number: int) -> str:
            try:
                live.transcripts.append("chat", [number], expected=rev)
            except errors.ConflictError:
                return "refused"
            return "taken"

        assert together(8, work) == {"taken": 1, "refused": 7}
        assert len(values(live, "chat")) == 2

    def test_racing_changes_of_keys_are_all_kept(self, live: sync.Holdproof) -> None:
        together(8, lambda number: len(live.transcripts.update_state("shared", {f"k{number}": number})))
        assert live.transcripts.get("shared").state == {f"k{number}": number for number in range(8)}

    def test_of_racing_first_writers_all_are_kept(self, live: sync.Holdproof) -> None:
        together(8, lambda number: live.transcripts.append("new", [number]))
        assert sorted(values(live, "new")) == list(range(8))  # type: ignore[type-var]


class TestSqlite(OnSqlite, Transcripts, Races):
    pass


class TestMemory(InMemory, Transcripts, Races):
    pass


class TestPostgres(OnPostgres, Transcripts, Races):
    pass
