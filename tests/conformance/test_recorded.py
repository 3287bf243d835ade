"""Recorded values: small ones in their row, large ones stored once, a person's sealed; on every backend."""

import random
from typing import Any

import pytest

from holdproof import errors, sync
from holdproof.db import sql
from holdproof.runtime import recorded
from tests.conformance.decisions import InMemory, OnPostgres, OnSqlite, OnStore

_STORED = sql("SELECT coalesce(sum(length(data)), 0) FROM objects")
_ROWS = sql("SELECT coalesce(sum(length(CAST(arguments AS TEXT))), 0) FROM flow_steps")


def message(rng: random.Random) -> dict[str, str]:
    """About 600 tokens."""
    return {"role": "user", "content": " ".join(f"{rng.getrandbits(20):x}" for _ in range(400))}


class RecordedValues(OnStore):
    def stored(self, store: sync.Holdproof) -> int:
        def size(tx: Any) -> int:
            [(blocks,)] = tx.all(_STORED)
            [(rows,)] = tx.all(_ROWS)
            return int(blocks) + int(rows)

        return store.read(size)

    @pytest.mark.parametrize("length", [4093, 4094, 4095, 4096, 5000])
    def test_what_is_longer_than_4_kib_is_stored_beside_its_row(self, store: sync.Holdproof, length: int) -> None:
        text = recorded.dump("x" * length)
        column = store.write(lambda tx: recorded.store(tx, text))
        assert (column == text) == (length + 2 <= recorded.LARGEST)
        assert len(column) <= recorded.LARGEST
        assert store.read(lambda tx: recorded.load(tx, column)) == "x" * length

    def test_bytes_count_and_not_characters(self, store: sync.Holdproof) -> None:
        text = recorded.dump("\u00e9" * 3000)
        column = store.write(lambda tx: recorded.store(tx, text))
        assert "$cid" in column
        assert store.read(lambda tx: recorded.load(tx, column)) == "\u00e9" * 3000

    @pytest.mark.parametrize(
        "value",
        [
            [["x" * 5000, 1], {"a": "y" * 5000, "b": [1, 2]}],
            [1] * 5000,
            [[number, str(number)] for number in range(2000)],
            {f"key {number}": number for number in range(1000)},
            {f"key {number}": f"value {number}" for number in range(40_000)},
            {"deep": {"deeper": {"$tuple": ["z" * 9000]}}},
            "t" * 600_000,
        ],
        ids=["nested", "numbers", "lists", "object", "large object", "tagged", "long text"],
    )
    def test_large_values_come_back(self, store: sync.Holdproof, value: Any) -> None:
        column = store.write(lambda tx: recorded.store(tx, recorded.dump(value)))
        assert len(column) <= recorded.LARGEST
        assert store.read(lambda tx: recorded.load(tx, column)) == value

    def test_a_conversation_that_is_passed_a_hundred_times_is_stored_once(self, store: sync.Holdproof) -> None:
        rng = random.Random(1)
        conversation = [message(rng) for _ in range(100)]
        once = len(recorded.dump(conversation))

        with store.flows.run("trader") as flow:
            before = self.stored(store)
            for _ in range(100):
                flow.step("model", len, conversation)
        assert self.stored(store) - before < 1.2 * once

    def test_a_hundred_calls_over_a_growing_conversation_stay_under_5_mb(self, store: sync.Holdproof) -> None:
        rng = random.Random(1)
        conversation: list[dict[str, str]] = []
        with store.flows.run("trader") as flow:
            for turn in range(100):
                conversation += [message(rng) for _ in range(3 + turn % 2)]
                flow.step("model", len, conversation)
        assert len(conversation) == 350
        assert self.stored(store) < 5_000_000
        [first, *_, last] = store.flows.steps(flow.flow_id)
        assert (len(first.arguments["args"][0]), last.arguments["args"][0]) == (3, conversation)

    def test_a_persons_value_is_sealed_whole(self, store: sync.Holdproof) -> None:
        with store.flows.run("trader", subject="ann") as flow:
            flow.step("small", len, "a secret")
            flow.step("large", len, ["a secret"] * 2000)
        rows = store.read(lambda tx: tx.all(sql("SELECT CAST(arguments AS TEXT) FROM flow_steps")))
        assert all('{"$sealed":' in text and "a secret" not in text for (text,) in rows)
        assert all(len(text) <= recorded.LARGEST * 2 for (text,) in rows)
        small, large = store.flows.steps(flow.flow_id)
        assert (small.arguments["args"], large.arguments["args"]) == (["a secret"], [["a secret"] * 2000])

    def test_nobody_passes_what_only_the_store_writes(self, store: sync.Holdproof) -> None:
        """Or they would be shown what it stands for."""
        with store.flows.run("trader", subject="ann") as flow:
            flow.step("small", len, "a secret")
        [(sealed,)] = store.read(lambda tx: tx.all(sql("SELECT CAST(arguments AS TEXT) FROM flow_steps")))
        mine = store.flows.start("trader")
        store.flows.transition(mine.flow_id, "RUNNING")
        for passed in ({"context": recorded.parse(sealed)}, {"proposal": recorded.parse(sealed)}):
            with pytest.raises(errors.InvalidInputError, match="sealed"):
                store.escalations.request(mine.flow_id, reason="?", **passed)
        with pytest.raises(errors.InvalidInputError, match="sealed"):
            store.escalations.request(mine.flow_id, reason=sealed)


class TestSqlite(OnSqlite, RecordedValues):
    pass


class TestMemory(InMemory, RecordedValues):
    pass


class TestPostgres(OnPostgres, RecordedValues):
    pass
