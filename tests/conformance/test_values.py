"""Values: stored once, read as they were, lists that grow for little; on every backend."""

from typing import Any

import pytest

from holdproof import errors, sync
from holdproof.content import blocks
from holdproof.content.values import parse
from holdproof.crypto import cid as cids
from holdproof.db import sql
from tests.conformance.decisions import InMemory, OnPostgres, OnSqlite
from tests.conformance.memories import OnMemory
from tests.conformance.racing import together

_COUNT = sql("SELECT count(*) FROM objects")
_DAMAGE = sql("UPDATE objects SET data = :data WHERE h = :h")


def count(store: sync.Holdproof) -> int:
    return int(store.read(lambda tx: tx.all(_COUNT))[0][0])


class Values(OnMemory):
    @pytest.mark.parametrize(
        "value",
        [None, True, 0, -(2**63), 1.5, "text", b"bytes", {"a": [1, {"b": None}]}, [], [1, "two", [3.0]], {"list": 1}],
    )
    def test_a_value_comes_back_as_it_was(self, store: sync.Holdproof, value: Any) -> None:
        cid = store.values.put(value)
        assert store.values.get(cid) == value
        assert type(store.values.get(cid)) is type(value)

    @pytest.mark.parametrize("value", ["ä" * 300_000, b"\x00\xff" * 500_000])
    def test_long_text_and_bytes_are_cut_and_come_back_whole(self, store: sync.Holdproof, value: Any) -> None:
        assert store.values.get(store.values.put(value)) == value

    def test_the_same_value_is_stored_once(self, store: sync.Holdproof) -> None:
        one = store.values.put({"a": 1})
        before = count(store)
        assert store.values.put({"a": 1}) == one
        assert count(store) == before

    def test_an_append_writes_few_blocks_and_leaves_the_old_list_as_it_was(self, store: sync.Holdproof) -> None:
        messages: list[Any] = [{"role": "user", "content": f"message {number}"} for number in range(5_000)]
        old = store.values.put(messages)
        before = count(store)
        new = store.values.append(old, [{"role": "user", "content": "one more"}])
        assert count(store) - before <= 5
        assert (store.values.length(old), store.values.length(new)) == (5_000, 5_001)
        assert store.values.slice(new, 4_999) == [messages[-1], {"role": "user", "content": "one more"}]
        assert store.values.slice(new, 10, 12) == messages[10:12]
        assert store.values.get(old) == messages
        assert new == store.values.put([*messages, {"role": "user", "content": "one more"}])

    def test_what_is_no_list_does_not_grow(self, store: sync.Holdproof) -> None:
        for cid in (
            store.values.put("text"),
            store.values.put({"c": [], "h": 0, "n": 0}),
            store.values.put(b"x" * 2**19),
        ):
            with pytest.raises(errors.InvalidInputError):
                store.values.append(cid, [1])
            with pytest.raises(errors.InvalidInputError):
                store.values.length(cid)

    @pytest.mark.parametrize("wrong", [(1, 2), {1: 2}, float("nan"), 2**64, object(), "\ud800", {"a": "x" * 2**21}])
    def test_what_dag_cbor_has_no_word_for_is_refused_and_nothing_is_written(
        self, store: sync.Holdproof, wrong: Any
    ) -> None:
        before = count(store)
        with pytest.raises(errors.InvalidInputError):
            store.values.put(wrong)
        assert count(store) == before

    @pytest.mark.parametrize("wrong", ["", "x", "bafy", None, str(cids.of_raw(b"x"))])
    def test_what_is_no_cid_is_refused(self, store: sync.Holdproof, wrong: Any) -> None:
        with pytest.raises(errors.InvalidInputError):
            store.values.get(wrong)

    def test_a_value_that_is_not_there_is_not_found(self, store: sync.Holdproof) -> None:
        with pytest.raises(errors.NotFoundError):
            store.values.get(str(cids.of(b"\xa0")))

    def test_a_block_that_was_exchanged_is_refused(self, store: sync.Holdproof) -> None:
        cid = store.values.put({"a": 1})
        good = store.read(lambda tx: blocks.get(tx, parse(cid)))
        store.write(lambda tx: tx.execute(_DAMAGE, h=parse(cid).raw, data=good[:-1] + b"\x02"))
        with pytest.raises(errors.ProofError):
            store.values.get(cid)
        store.write(lambda tx: tx.execute(_DAMAGE, h=parse(cid).raw, data=good))

    def test_many_who_put_the_same_at_once_do_not_disturb_each_other(self, store: sync.Holdproof) -> None:
        value: list[Any] = [{"n": number} for number in range(300)]
        assert len(together(8, lambda _: store.values.put(value))) == 1

    def test_values_belong_to_the_whole_store(self, store: sync.Holdproof) -> None:
        narrow = sync.Holdproof(store.core, ns="tenant")
        with pytest.raises(errors.NamespaceError):
            narrow.values.put(1)


class TestOnSqlite(OnSqlite, Values):
    pass


class TestInMemory(InMemory, Values):
    pass


class TestOnPostgres(OnPostgres, Values):
    pass
