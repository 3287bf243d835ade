"""Finding flows by what they are, counting them, and changing many at once; on every backend."""

from typing import Any

import pytest

from holdproof import errors, sync
from holdproof.api import OpenFlow
from holdproof.db import Query, sql
from holdproof.executors import SyncExecutor
from holdproof.model.flows import FlowCount
from holdproof.model.verdicts import Verdict
from holdproof.runtime import flow_facets, flow_search, gauges
from holdproof.testing import FrozenClock
from tests.conformance.decisions import InMemory, OnPostgres, OnSqlite, OnStore

Flow = OpenFlow[SyncExecutor]
_MISLEAD = sql("UPDATE flow_attributes SET value = :value WHERE dfid = 'a' AND key = 'customer'")
_FORGE = sql("UPDATE decision_flows SET attributes = :value WHERE dfid = 'a'")
_ADD = sql("INSERT INTO flow_attributes (dfid, ns, key, value) VALUES ('b', 'main', 'customer', 'c-9')")
_REMOVE = sql("DELETE FROM flow_attributes WHERE dfid = 'b' AND value = 'c-9'")


def ids(page: Any) -> list[str]:
    return [flow.flow_id for flow in page.items]


def edit(store: sync.Holdproof, query: Query, values: dict[str, str]) -> None:
    """Write behind the store's back."""
    store.write(lambda tx: tx.execute(query, expect=1, **values))


class Broken:
    """The world outside: what was done, and what fails until it is mended."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.fails = True

    def act(self, what: str) -> str:
        self.done.append(what)
        return what

    def ship(self, what: str) -> str:
        if self.fails:
            raise ValueError(f"no ship for {what}")
        return self.act(what)


def buying(store: sync.Holdproof, world: Broken, *, undo: bool = False) -> Any:
    @store.flow(name="buy", agent="trader", lease_s=10)
    def buy(flow: Flow, what: str) -> str:
        flow.step(
            "pay", world.act, f"pay {what}", compensate=(lambda paid: world.act(f"undo {paid}")) if undo else None
        )
        return flow.step("ship", world.ship, what)

    return buy


class Search(OnStore):
    # --- attributes -----------------------------------------------------------------------------------------------

    def test_flows_are_found_by_their_attributes_however_they_were_opened(self, store: sync.Holdproof) -> None:
        @store.flow(agent="trader", attributes={"customer": "c-1"})
        def order(flow: Flow, what: str) -> str:
            return what

        order.with_id("called")("tea")
        order.opening(flow_id="queued", attributes={"customer": "c-2", "shop": "north"}).enqueue("tea")
        store.flows.start("trader", flow_id="started", attributes={"customer": "c-1", "shop": "north"})
        with store.flows.run("trader", flow_id="block", attributes={"shop": "north"}):
            pass
        assert set(ids(store.flows.list(attributes={"customer": "c-1"}))) == {"called", "started"}
        assert set(ids(store.flows.list(attributes={"shop": "north"}))) == {"queued", "started", "block"}
        assert ids(store.flows.list(attributes={"shop": "north", "customer": "c-1"})) == ["started"]
        assert ids(store.flows.list(attributes={"shop": "north"}, status="COMPLETED")) == ["block"]
        assert ids(store.flows.list(attributes={"shop": "south"})) == []
        assert store.flows.attributes("queued") == {"customer": "c-2", "shop": "north"}
        first = store.flows.list(attributes={"shop": "north"}, limit=2)
        rest = store.flows.list(attributes={"shop": "north"}, limit=2, cursor=first.next_cursor)
        assert (len(first.items), len(rest.items)) == (2, 1)

    def test_attributes_that_could_not_be_erased_or_stored_are_refused(self, store: sync.Holdproof) -> None:
        refused: list[Any] = [{"a": ""}, {"": "a"}, {"a": "x" * 1000}, {str(n): "x" for n in range(33)}, {"a": 1}]
        for attributes in refused:
            with pytest.raises(errors.InvalidInputError):
                store.flows.start("trader", attributes=attributes)
        with pytest.raises(errors.InvalidInputError, match="subject"):
            store.flows.start("trader", attributes={"customer": "ann"}, subject="ann")
        with pytest.raises(errors.NotFoundError):
            store.flows.attributes("unknown")
        assert store.flows.list().items == []

    def test_edited_attributes_are_found_by_verify(self, store: sync.Holdproof) -> None:
        store.flows.start("trader", flow_id="a", attributes={"customer": "c-1"})
        store.flows.start("trader", flow_id="b")

        def verdict() -> Verdict:
            return store.verify.run(lock=False).verdict

        assert verdict() is Verdict.VALID
        attacks: list[tuple[Any, dict[str, str], Any, dict[str, str]]] = [
            (_MISLEAD, {"value": "c-2"}, _MISLEAD, {"value": "c-1"}),
            (_FORGE, {"value": "{}"}, _FORGE, {"value": '{"customer":"c-1"}'}),
            (_ADD, {}, _REMOVE, {}),
        ]
        for attack, values, repair, originals in attacks:
            edit(store, attack, values)
            assert verdict() is Verdict.TAMPERED
            edit(store, repair, originals)
            assert verdict() is Verdict.VALID

    # --- filters --------------------------------------------------------------------------------------------------

    def test_flows_are_found_by_time_error_and_inputs(self, store: sync.Holdproof, clock: FrozenClock) -> None:
        buy = buying(store, Broken())
        for what in ("tea", "coffee"):
            with pytest.raises(ValueError, match="no ship"):
                buy.with_id(what)(what)
            clock.advance(3600)
        opened = {flow.flow_id: flow.created_at for flow in store.flows.list().items}
        assert ids(store.flows.list(error="no ship for tea")) == ["tea"]
        assert ids(store.flows.list(error="no ship")) == ["coffee", "tea"]
        assert ids(store.flows.list(inputs="coffee")) == ["coffee"]
        assert ids(store.flows.list(inputs="yacht")) == []
        assert ids(store.flows.list(until=opened["coffee"])) == ["tea"]
        assert ids(store.flows.list(since=opened["coffee"])) == ["coffee"]
        assert ids(store.flows.list(since=opened["tea"], until=opened["coffee"], text="buy")) == ["tea"]

    def test_flows_are_counted_by_bucket(self, store: sync.Holdproof, clock: FrozenClock) -> None:
        world = Broken()
        buy = buying(store, world)
        with pytest.raises(ValueError, match="no ship"):
            buy("tea")
        world.fails = False
        buy.opening(attributes={"shop": "north"})("tea")
        clock.advance(3600)
        buy("tea")
        first, second = store.flows.stats(by="hour")
        assert (first.count, first.completed, first.failed) == (2, 1, 1)
        assert (second.count, second.completed, second.failed) == (1, 1, 0)
        newest, *_ = store.flows.list().items
        assert second.bucket == newest.created_at[:13]
        assert store.flows.stats(by="status") == [FlowCount("COMPLETED", 2, 2, 0), FlowCount("FAILED", 1, 0, 1)]
        assert store.flows.stats(by="agent_id", attributes={"shop": "north"}) == [FlowCount("trader", 1, 1, 0)]
        assert store.flows.stats(by="flow_type", status="FAILED") == [FlowCount("buy", 1, 0, 1)]
        assert sum(each.count for each in store.flows.stats(by="day")) == 3
        with pytest.raises(errors.InvalidInputError):
            store.flows.stats(by="colour")

    def test_flows_in_trouble_are_those_that_status_counts(self, store: sync.Holdproof, clock: FrozenClock) -> None:
        opened = [
            store.flows.start("trader", flow_id=name, attributes={"shop": shop}).flow_id
            for name, shop in (("lost", "north"), ("worked on", "north"), ("half", "south"), ("idle", "north"))
        ]
        for flow_id in opened:
            store.flows.transition(flow_id, "RUNNING")
        store.flows.lease("lost", "first", lease_s=10)
        store.flows.lease("worked on", "second", lease_s=3600)
        store.sagas.mark_dirty("half", "pay", {"paid": 7})
        store.flows.transition("half", "FAILED")
        clock.advance(60)
        counts = store.read(gauges.read)
        assert (counts["flows.orphaned"], counts["flows.dirty"]) == (1, 1)
        assert ids(store.flows.list(trouble="ORPHANED")) == ["lost"]
        assert ids(store.flows.list(trouble="DIRTY")) == ["half"]
        assert ids(store.flows.list(trouble="DIRTY", attributes={"shop": "south"}, status="FAILED")) == ["half"]
        assert ids(store.flows.list(trouble="ORPHANED", attributes={"shop": "south"})) == []
        facets = store.flows.facets(trouble="ORPHANED")
        assert (facets.total, facets.exact, facets.statuses) == (1, True, {"RUNNING": 1})
        assert store.flows.cancel_many(trouble="ORPHANED", dry_run=True).flow_ids == ("lost",)
        with pytest.raises(errors.InvalidInputError, match="DIRTY, ORPHANED"):
            store.flows.list(trouble="TIRED")
        with pytest.raises(errors.InvalidInputError, match="DIRTY, ORPHANED"):
            store.flows.facets(trouble="TIRED")

    def test_a_word_for_several_statuses_finds_and_counts_the_flows_of_each(self, store: sync.Holdproof) -> None:
        for name, *steps in (
            ("new",),
            ("at work", "RUNNING"),
            ("done", "RUNNING", "COMPLETED"),
            ("declined", "RUNNING", "FAILED"),
            ("undone", "RUNNING", "COMPENSATING", "COMPENSATED"),
            ("withdrawn", "CANCELLED"),
        ):
            store.flows.start("trader", flow_id=name)
            for status in steps:
                store.flows.transition(name, status)
        wanted = {
            "OPEN": ["at work", "new"],
            "ENDED": ["withdrawn", "undone", "declined", "done"],
            "FAILED_OR_COMPENSATED": ["undone", "declined"],
            "FAILED": ["declined"],
        }
        for word, names in wanted.items():
            assert sorted(ids(store.flows.list(status=word))) == sorted(names)
            assert store.flows.facets(status=word).total == len(names)
            assert sum(each.count for each in store.flows.stats(by="status", status=word)) == len(names)
        assert sorted(store.flows.cancel_many(status="OPEN", dry_run=True).flow_ids) == ["at work", "new"]
        with pytest.raises(errors.InvalidInputError, match="FAILED_OR_COMPENSATED"):
            store.flows.list(status="CLOSED")

    def test_beyond_a_bound_the_newest_are_counted_and_the_page_is_told(
        self, store: sync.Holdproof, clock: FrozenClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for number in range(9):
            store.flows.start("trader", flow_id=f"flow {number}", flow_type="even" if number % 2 == 0 else "odd")
            clock.advance(60)
        whole = store.flows.facets()
        assert (whole.total, whole.exact, whole.counted) == (9, True, 9)
        monkeypatch.setattr(flow_facets, "_COUNTED", 2)
        # What is counted by time and status is all there is, though by type and agent it is the newest.
        by_time = store.flows.facets()
        assert (by_time.total, by_time.exact, by_time.counted) == (9, True, 2)
        assert store.flows.facets(flow_type="even").exact is False
        monkeypatch.setattr(flow_facets, "_MOST", 3)
        newest = store.flows.facets()
        assert (newest.total, newest.exact) == (4, False)
        assert newest.buckets[0].since > whole.buckets[0].since
        assert [sum(each.statuses.values()) for each in newest.buckets][-1] <= 4

    def test_a_search_by_text_looks_at_so_many_at_a_time_and_goes_on_to_the_end(
        self, store: sync.Holdproof, clock: FrozenClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        opened = []
        for number in range(10):
            # Two of each moment: a moment is looked at whole.
            clock.advance(number % 2)
            name = f"{'needle' if number in (0, 1, 6) else 'hay'} {number}"
            opened.append(store.flows.start("trader", flow_id=name, flow_type="find").flow_id)
        monkeypatch.setattr(flow_search, "MOST_LOOKED_AT", 3)
        for looked_for, expected in (("NEEDLE", ["needle 6", "needle 1", "needle 0"]), ("straw", [])):
            seen: list[str] = []
            cursor: str | None = None
            pages = 0
            while pages == 0 or cursor is not None:
                page = store.flows.list(text=looked_for, cursor=cursor, limit=2)
                seen += [flow.flow_id for flow in page]
                cursor = page.next_cursor
                pages += 1
            assert seen == expected
            assert 2 < pages < len(opened)
        page = store.flows.list(text="needle", limit=2)
        assert flow_search.looked_back_to(page.next_cursor) == store.flows.get(opened[6]).created_at
        facets = store.flows.facets(text="needle")
        assert (facets.total, facets.exact) == (1, False)
        assert store.flows.facets(text="needle", since=store.flows.get(opened[-2]).created_at).exact
        # What an index leads to is found at once.
        assert store.flows.list(text="needle", status="CREATED", limit=9).next_cursor is None
        assert len(store.flows.list(limit=9).items) == 9
        # Many at once are looked for to the end.
        assert len(store.flows.cancel_many(text="needle", dry_run=True).flow_ids) == 3

    def test_a_search_comes_past_a_moment_of_more_flows_than_it_looks_at(
        self, store: sync.Holdproof, clock: FrozenClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store.flows.start("trader", flow_id="needle 0", flow_type="find")
        clock.advance(1)
        for number in range(1, 9):
            store.flows.start("trader", flow_id=f"{'needle' if number % 3 == 0 else 'hay'} {number}", flow_type="find")
        monkeypatch.setattr(flow_search, "MOST_LOOKED_AT", 3)
        for looked_for, expected in (("needle", ["needle 6", "needle 3", "needle 0"]), ("straw", [])):
            for limit in (1, 2, 9):
                seen: list[str] = []
                page = store.flows.list(text=looked_for, limit=limit)
                seen += [flow.flow_id for flow in page]
                cursors = set[str]()
                while page.next_cursor is not None:
                    assert page.next_cursor not in cursors, "the search stays where it is"
                    cursors.add(page.next_cursor)
                    page = store.flows.list(text=looked_for, cursor=page.next_cursor, limit=limit)
                    seen += [flow.flow_id for flow in page]
                assert seen == expected

    @pytest.mark.parametrize("many", [1, 3, 20_000])
    def test_flows_of_a_status_are_the_same_from_whichever_index(
        self, store: sync.Holdproof, clock: FrozenClock, monkeypatch: pytest.MonkeyPatch, many: int
    ) -> None:
        monkeypatch.setattr(flow_search, "_MANY", many)
        for number in range(6):
            store.flows.start("trader", flow_id=f"flow {number}")
            clock.advance(1)
            if number % 2:
                store.flows.transition(f"flow {number}", "RUNNING")
        store.agents.register("trader", version="1.0.0", ns="other")
        store.flows.start("trader", flow_id="elsewhere", ns="other")
        first = store.flows.list(status="OPEN", limit=4)
        rest = store.flows.list(status="OPEN", limit=4, cursor=first.next_cursor)
        assert ids(first) + ids(rest) == [f"flow {number}" for number in range(5, -1, -1)]
        assert ids(store.flows.list(status="RUNNING", text="FLOW 3")) == ["flow 3"]
        assert store.flows.facets(status="RUNNING").statuses == {"RUNNING": 3}

    # --- many at once ---------------------------------------------------------------------------------------------

    def test_many_are_cancelled_and_a_dry_run_only_names_them(self, store: sync.Holdproof) -> None:
        for name in ("a", "b", "c"):
            store.flows.start("trader", flow_id=name, flow_type="rebalance" if name < "c" else "other")
        store.flows.start("trader", flow_id="child", flow_type="rebalance", parent="a")
        plan = store.flows.cancel_many(flow_type="rebalance", dry_run=True)
        assert (plan.dry_run, set(plan.flow_ids)) == (True, {"a", "b", "child"})
        assert {flow.status for flow in store.flows.list().items} == {"CREATED"}
        done = store.flows.cancel_many(flow_type="rebalance", reason="the market is closed")
        assert (set(done.flow_ids), done.refused) == ({"a", "b", "child"}, ())
        assert ids(store.flows.list(status="CREATED")) == ["c"]
        assert store.flows.cancel_many(flow_type="rebalance").flow_ids == ()
        with pytest.raises(errors.InvalidInputError, match="at least one filter"):
            store.flows.cancel_many()

    def test_many_failed_flows_are_tried_again_from_the_step_that_failed(self, store: sync.Holdproof) -> None:
        world = Broken()
        buy = buying(store, world)
        for what in ("tea", "coffee"):
            with pytest.raises(ValueError, match="no ship"):
                buy.with_id(what)(what)
        world.fails = False
        assert set(store.flows.retry_many(error="no ship", dry_run=True).flow_ids) == {"tea", "coffee"}
        done = store.flows.retry_many(error="no ship")
        assert (set(done.flow_ids), len(done.successors)) == ({"tea", "coffee"}, 2)
        assert [again.error for again in store.flows.recover().reruns] == [None, None]
        assert {store.flows.result(flow_id) for flow_id in done.successors} == {"tea", "coffee"}
        assert sorted(world.done) == ["coffee", "pay coffee", "pay tea", "tea"]
        again = store.flows.retry_many(error="no ship")
        assert (again.flow_ids, len(again.refused)) == ((), 2)
        assert "was forked already" in again.refused[0]

    def test_a_flow_whose_steps_were_undone_is_tried_again_from_the_start(self, store: sync.Holdproof) -> None:
        world = Broken()
        with pytest.raises(ValueError, match="no ship"):
            buying(store, world, undo=True)("tea")
        world.fails = False
        [successor] = store.flows.retry_many(status="COMPENSATED").successors
        store.flows.recover()
        assert store.flows.result(successor) == "tea"
        assert world.done == ["pay tea", "undo pay tea", "pay tea", "tea"]

    def test_many_are_deleted_and_the_log_stays_valid(self, store: sync.Holdproof) -> None:
        world = Broken()
        world.fails = False
        buy = buying(store, world)
        for what in ("tea", "coffee", "cake"):
            buy.with_id(what).opening(attributes={"drink": "no" if what == "cake" else "yes"})(what)
        store.flows.fork("tea", at="ship", effects="real")
        open_flow = store.flows.start("trader", attributes={"drink": "yes"})
        plan = store.flows.delete_many(attributes={"drink": "yes"}, dry_run=True)
        assert {"tea", "coffee"} <= set(plan.flow_ids)
        done = store.flows.delete_many(attributes={"drink": "yes"}, who="ann")
        assert done.flow_ids == ("coffee",)
        assert done.refused == ("tea: it, or a flow below it, is open, dirty, asked about, forked or held",)
        with pytest.raises(errors.NotFoundError):
            store.flows.get("coffee")
        assert store.flows.get(open_flow.flow_id).status == "CREATED"
        assert store.verify.run(full=True, lock=False).verdict is Verdict.VALID
        [pruning] = store.retention.list().items
        assert (pruning.who, pruning.count) == ("ann", 1)


class TestSqlite(OnSqlite, Search):
    pass


class TestMemory(InMemory, Search):
    pass


class TestPostgres(OnPostgres, Search):
    pass
