"""LangGraph's store on ours: batches are one act, nothing hostile gets through, time and persons end what is theirs."""

import asyncio
import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from holdproof import errors, sql, sync
from holdproof.adapters.shared_store import SharedStore
from holdproof.client import Holdproof
from holdproof.testing import FrozenClock
from tests.conformance.decisions import InMemory, OnPostgres, OnSqlite, OnStore
from tests.conformance.racing import together

base: Any = pytest.importorskip("langgraph.store.base", reason="not installed: pip install langgraph-checkpoint")
adapter: Any = pytest.importorskip("holdproof.adapters.langgraph")

_ROWS = sql("SELECT count(*) FROM notes")
HOSTILE = "access') = 'public' OR '1'='1' OR json_extract(value, '$."


def embed(texts: Sequence[str]) -> list[list[float]]:
    return [[float(text.count("a")), float(text.count("b")), 0.1] for text in texts]


async def aembed(texts: Sequence[str]) -> list[list[float]]:
    return embed(texts)


INDEX = {"dims": 3, "embed": embed, "fields": ["text"]}


class Colour(enum.Enum):
    RED = "red"


@dataclass
class Point:
    x: int
    when: datetime


class LangGraphStore(OnStore):
    def acted(self, store: sync.Holdproof, act: Callable[[Any], Any], **options: Any) -> Any:
        """Run something on the async face."""

        async def run() -> Any:
            return await act(adapter.HoldproofStore(Holdproof(store.core, store.ns), **options))

        return asyncio.run(run())

    # --- batches -----------------------------------------------------------------------------------------------------

    def test_it_is_a_store_in_both_colours(self, store: sync.Holdproof) -> None:
        kept = adapter.HoldproofStore(store)
        assert isinstance(kept, base.BaseStore)
        kept.put(("u", "ada"), "likes", {"food": "pizza"})

        async def look(again: Any) -> None:
            found = await again.aget(("u", "ada"), "likes")
            assert found == kept_before
            await again.aput(("u", "bob"), "likes", {"food": "soup"})
            assert await again.alist_namespaces(prefix=("u",)) == [("u", "ada"), ("u", "bob")]
            assert [item.key for item in await again.asearch(("u",), filter={"food": "soup"})] == ["likes"]
            await again.adelete(("u", "bob"), "likes")

        kept_before = kept.get(("u", "ada"), "likes")
        assert kept_before.created_at.tzinfo is not None
        self.acted(store, look)
        assert kept.get(("u", "bob"), "likes") is None

    def test_a_batch_reads_what_was_before_it_and_its_last_put_stays(self, store: sync.Holdproof) -> None:
        kept = adapter.HoldproofStore(store)
        put, get = base.PutOp, base.GetOp
        ops = [put(("a",), "k", {"v": 1}), get(("a",), "k"), put(("a",), "k", {"v": 2}), put(("a",), "gone", None)]
        assert kept.batch(ops) == [None, None, None, None]
        assert kept.get(("a",), "k").value == {"v": 2}
        assert kept.batch([]) == []

    @pytest.mark.parametrize(
        "wrong",
        [
            lambda: base.PutOp(("a.b",), "k", {"v": 1}),
            lambda: base.PutOp(("",), "k", {"v": 1}),
            lambda: base.PutOp((), "k", {"v": 1}),
            lambda: base.PutOp(("a",), "k", {"v": {1, 2}}),
            lambda: base.PutOp(("a",), "k", {"v": float("nan")}),
            lambda: base.PutOp(("a",), "k\0", {"v": 1}),
            lambda: base.PutOp(("a",), "k", {"v": 1}, ttl=-1.0),
            lambda: base.GetOp(("a", 1), "k"),
            lambda: base.SearchOp(("a",), filter={HOSTILE: "x"}),
            lambda: base.SearchOp(("a",), filter={"v": {"$where": 1}}),
            lambda: base.SearchOp(("a",), limit=-1),
            lambda: base.ListNamespacesOp((base.MatchCondition("infix", ("a",)),)),
        ],
        ids=["dot", "empty", "none", "set", "nan", "nul", "ttl", "number", "key", "operator", "limit", "match"],
    )
    def test_one_wrong_operation_is_a_value_error_and_nothing_of_its_batch_happens(
        self, store: sync.Holdproof, wrong: Callable[[], Any]
    ) -> None:
        ops = [base.PutOp(("fine",), "k", {"v": 1}), wrong()]
        with pytest.raises(ValueError, match=r"."):
            adapter.HoldproofStore(store).batch(ops)
        with pytest.raises(ValueError, match=r"."):
            self.acted(store, lambda kept: kept.abatch(ops))
        assert store.read(lambda tx: tx.all(_ROWS)) == [(0,)]

    def test_a_hostile_filter_key_is_named(self, store: sync.Holdproof) -> None:
        with pytest.raises(ValueError, match="Invalid filter key"):
            adapter.HoldproofStore(store).search(("a",), filter={HOSTILE: "x"})

    def test_a_sync_call_works_inside_a_running_loop(self, store: sync.Holdproof) -> None:
        """As nodes make it in a notebook, where a graph is invoked on the thread of the kernel's loop."""

        async def play(memory: Any) -> list[Any]:
            memory.put(("a",), "k", {"v": 1})
            return [memory.get(("a",), "k").value, len(memory.search(("a",)))]

        assert self.acted(store, play) == [{"v": 1}, 1]

    def test_times_and_the_like_become_text(self, store: sync.Holdproof) -> None:
        kept, when = adapter.HoldproofStore(store), datetime(2026, 1, 2, tzinfo=UTC)
        kept.put(("a",), "k", {"when": when, "id": UUID(int=1), "c": Colour.RED, "p": Point(1, when), "t": (1, 2)})
        text = "2026-01-02T00:00:00+00:00"
        assert kept.get(("a",), "k").value == {
            "when": text,
            "id": str(UUID(int=1)),
            "c": "red",
            "p": {"x": 1, "when": text},
            "t": [1, 2],
        }

    def test_racing_batches_with_the_same_keys_all_end(self, live: sync.Holdproof) -> None:
        kept = adapter.HoldproofStore(live)

        def work(number: int) -> None:
            keys = ["x", "y", "z"][:: 1 if number % 2 else -1]
            for turn in range(5):
                kept.batch([base.PutOp(("a",), key, {"by": [number, turn]}) for key in keys])

        together(8, work)
        assert len({str(item.value) for item in kept.search(("a",))}) == 1

    # --- meaning -----------------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("made", [embed, aembed])
    def test_items_are_found_by_what_they_mean_whichever_colour_embeds(self, store: sync.Holdproof, made: Any) -> None:
        async def work(kept: Any) -> None:
            await kept.aput(("d",), "1", {"text": "aaa", "kind": "x"})
            await kept.aput(("d",), "2", {"text": "bbb", "kind": "x"})
            await kept.aput(("d",), "3", {"text": "aab", "kind": "y"})
            await kept.aput(("d",), "4", {"text": "aaa"}, index=False)
            await kept.aput(("d",), "5", {"other": ["b", "a"]}, index=["other[*]"])
            found = await kept.asearch(("d",), query="aaaa", limit=3)
            assert [item.key for item in found] == ["5", "1", "3"] or [item.key for item in found] == ["1", "5", "3"]
            assert [item.key for item in await kept.asearch(("d",), query="b", filter={"kind": "y"})] == ["3"]
            assert (await kept.asearch(("d",), limit=1))[0].score is None

        self.acted(store, work, index={**INDEX, "embed": made})

    def test_vectors_of_another_length_than_the_index_has_are_refused(self, store: sync.Holdproof) -> None:
        kept = adapter.HoldproofStore(store, index={**INDEX, "dims": 4})
        with pytest.raises(ValueError, match="4 dimensions"):
            kept.put(("a",), "k", {"text": "a"})
        assert kept.search(("a",)) == []

    def test_another_distance_is_refused_rather_than_ranked_wrongly(self, store: sync.Holdproof) -> None:
        with pytest.raises(ValueError, match="cosine"):
            adapter.HoldproofStore(store, index={**INDEX, "distance_type": "l2"})

    # --- time --------------------------------------------------------------------------------------------------------

    def test_reading_begins_the_time_anew_only_where_it_is_said(
        self, store: sync.Holdproof, clock: FrozenClock
    ) -> None:
        plain = adapter.HoldproofStore(store, ttl={"default_ttl": 1.0})
        fresh = adapter.HoldproofStore(store, ttl={"default_ttl": 1.0, "refresh_on_read": True})
        plain.put(("a",), "plain", {"v": 1})
        fresh.put(("b",), "got", {"v": 1})
        fresh.put(("b",), "searched", {"v": 2})
        fresh.put(("b",), "left", {"v": 3})
        clock.advance(40)
        assert plain.get(("a",), "plain") is not None
        assert fresh.get(("b",), "got") is not None
        assert len(fresh.search(("b",), filter={"v": 2})) == 1
        assert fresh.get(("b",), "left", refresh_ttl=False) is not None
        clock.advance(40)
        assert plain.get(("a",), "plain") is None
        assert {item.key for item in fresh.search((), refresh_ttl=False)} == {"got", "searched"}
        assert fresh.list_namespaces() == [("b",)]
        assert self.acted(store, lambda kept: kept.asweep_ttl()) == 2
        assert fresh.sweep_ttl() == 0

    def test_the_sweeper_ends_with_whoever_opened_it(self, tmp_path: Path) -> None:
        with adapter.HoldproofStore.from_conn_string(":memory:", ttl={"default_ttl": 1.0}) as kept:
            future = kept.start_ttl_sweeper(0.0001)
            assert kept.start_ttl_sweeper() is future
            kept.put(("a",), "k", {}, ttl=0.0001)
        assert future.result(60) is None
        with pytest.raises(errors.InvalidInputError):
            adapter.HoldproofStore.from_conn_string(self.file(tmp_path)).__enter__()

    def file(self, folder: Path) -> Path:
        path = folder / "store.sqlite"
        path.touch()
        return path

    # --- who ---------------------------------------------------------------------------------------------------------

    def test_namespaces_of_a_store_do_not_see_each_other(self, store: sync.Holdproof) -> None:
        one = adapter.HoldproofStore(sync.Holdproof(store.core, "one"), index=INDEX)
        other = adapter.HoldproofStore(sync.Holdproof(store.core, "other"), index=INDEX)
        one.put(("a",), "k", {"text": "aa"})
        assert other.get(("a",), "k") is None
        assert other.search((), query="aa") == other.search(()) == other.list_namespaces() == []
        other.delete(("a",), "k")
        assert one.get(("a",), "k") is not None

    def test_items_go_with_the_person_whose_they_are(self, store: sync.Holdproof) -> None:
        kept = adapter.HoldproofStore(store, subject=lambda path, _: path[1] if path[0] == "u" else None)
        kept.put(("u", "ada"), "likes", {"food": "pizza"})
        kept.put(("u", "bob"), "likes", {"food": "soup"})
        kept.put(("shared",), "k", {"v": 1})
        assert store.erase.subject("ada", who="grace").count == 1
        assert kept.list_namespaces() == [("shared",), ("u", "bob")]
        assert store.verify.run().verdict.sound

    def test_a_store_on_a_server_is_refused_with_a_reason(self) -> None:
        with sync.connect("http://127.0.0.1:9") as remote:
            opening: tuple[Callable[[Any], Any], ...] = (adapter.HoldproofStore, adapter.HoldproofSaver, SharedStore)
            for made in opening:
                with pytest.raises(errors.RemoteError, match="open in this process"):
                    made(remote)


class TestSqlite(OnSqlite, LangGraphStore):
    pass


class TestMemory(InMemory, LangGraphStore):
    pass


class TestPostgres(OnPostgres, LangGraphStore):
    pass
