"""Looking at decisions as people do: the most urgent first, the newest first, by a piece of text; on every backend."""

import time

import pytest

from harness.filling import running
from holdproof import errors, sync
from holdproof.model.times import later
from holdproof.testing import FrozenClock
from holdproof.upkeep.verification import offline
from tests.conformance.decisions import InMemory, OnPostgres, OnSqlite, OnStore


def asked(store: sync.Holdproof, agent: str, **given: object) -> int:
    """A question of an agent of its own, so that no budget is in the way."""
    store.agents.register(agent, version="1.0.0")
    flow = store.flows.start(agent)
    store.flows.transition(flow.flow_id, "RUNNING")
    return store.escalations.request(flow.flow_id, reason="?", **given).id  # type: ignore[arg-type]


def pay_and_cancel(store: sync.Holdproof, undone: list[int]) -> None:
    """A worker whose flow is cancelled from elsewhere after a step that can be undone."""
    with store.flows.run("trader") as flow:
        flow.step("pay", lambda: 7, compensate=undone.append)
        assert store.flows.cancel(flow.flow_id, reason="not needed").status == "COMPENSATING"


class Inbox(OnStore):
    def test_the_most_urgent_question_comes_first(self, store: sync.Holdproof) -> None:
        calm = asked(store, "a")
        grave = asked(store, "b", impact="HIGH_IMPACT")
        late = asked(store, "c", deadline_s=900)
        soon = asked(store, "d", deadline_s=60)
        soon_and_grave = asked(store, "e", deadline_s=60, impact="HIGH_IMPACT")
        wanted = [soon_and_grave, soon, late, grave, calm]
        assert [each.id for each in store.escalations.list(status="PENDING", order="due").items] == wanted

    def test_pages_of_the_inbox_leave_nothing_out(self, store: sync.Holdproof) -> None:
        for number in range(7):
            asked(store, f"a{number}", deadline_s=60 * (number % 3 + 1) if number % 2 else None)
        whole = [each.id for each in store.escalations.list(status="PENDING", order="due").items]
        met = list[int]()
        cursor: str | None = None
        while True:
            page = store.escalations.list(status="PENDING", order="due", cursor=cursor, limit=2)
            met += [each.id for each in page.items]
            if page.next_cursor is None:
                break
            cursor = page.next_cursor
        assert met == whole
        for wrong in ("x", "a b c", "a b -1", "a b c d", f"a b {10**30}"):
            with pytest.raises(errors.InvalidInputError):
                store.escalations.list(status="PENDING", order="due", cursor=wrong)

    def test_what_waits_is_counted(self, store: sync.Holdproof, clock: FrozenClock) -> None:
        asked(store, "a")
        asked(store, "b", impact="HIGH_IMPACT", deadline_s=60)
        gone = asked(store, "c")
        store.escalations.resolve(gone, "reject", by="ann")
        assert store.escalations.count().to_dict() == {"total": 2, "high_impact": 1, "overdue": 0}
        clock.advance(61)
        assert store.escalations.count().overdue == 1
        assert store.escalations.count(ns="other").total == 0

    def test_answers_are_found_by_agent_flow_and_status_newest_first(self, store: sync.Holdproof) -> None:
        first, second, third = (asked(store, agent) for agent in "abc")
        store.escalations.resolve(first, "approve", by="ann")
        store.escalations.resolve(third, "reject", by="ann")
        found = store.escalations.list(status="RESOLVED")
        assert [each.id for each in found.items] == [third, first]
        assert [each.id for each in store.escalations.list().items] == [third, second, first]
        assert [each.id for each in store.escalations.list(agent_id="b").items] == [second]
        assert [each.id for each in store.escalations.list(status="APPROVED").items] == [first]
        flow_id = store.escalations.get(third).flow_id
        assert [each.id for each in store.escalations.list(flow_id=flow_id).items] == [third]
        page = store.escalations.list(limit=2)
        assert [each.id for each in store.escalations.list(cursor=page.next_cursor).items] == [first]
        with pytest.raises(errors.InvalidInputError):
            store.escalations.list(status="LOST")

    def test_a_budget_says_what_is_left_and_when_it_renews(self, store: sync.Holdproof, clock: FrozenClock) -> None:
        store.agents.set_budget("trader", per_hour=3)
        whole = store.escalations.budget("trader")
        assert (whole.spent, whole.left, whole.renews_at) == (0, 3, None)
        when = store.escalations.request(running(store), reason="?").created_at
        clock.advance(60)
        store.escalations.request(running(store), reason="?")
        spent = store.escalations.budget("trader")
        assert (spent.spent, spent.left, spent.renews_at) == (2, 1, later(when, 3600))
        clock.advance(3541)
        assert store.escalations.budget("trader").spent == 1


class Search(OnStore):
    def test_flows_are_found_by_a_piece_of_id_agent_or_type_newest_first(
        self, store: sync.Holdproof, clock: FrozenClock
    ) -> None:
        store.agents.register("buyer 100%", version="1.0.0")
        made = []
        for agent, kind in (("trader", "rebalance"), ("buyer 100%", "order_x"), ("trader", "hedge")):
            made.append(store.flows.start(agent, flow_type=kind).flow_id)
            clock.advance(1)
        newest = [*reversed(made)]
        assert [each.flow_id for each in store.flows.list().items] == newest
        assert [each.flow_id for each in store.flows.list(text="trade").items] == [made[2], made[0]]
        assert [each.flow_id for each in store.flows.list(text=made[1][3:20]).items if each.flow_id == made[1]] == [
            made[1]
        ]
        for text in ("100%", "r_x"):  # nothing in a text is a wildcard
            assert [each.flow_id for each in store.flows.list(text=text).items] == [made[1]]
        for text in ("%", "_", "'; DROP TABLE decision_flows; --", "1__%"):
            assert {each.flow_id for each in store.flows.list(text=text).items} <= {made[1]}
        assert [each.flow_id for each in store.flows.list(flow_type="hedge").items] == [made[2]]
        assert store.flows.list(status="RUNNING").items == []
        assert store.flows.list(text="e", ns="other").items == []
        for wrong in ({"status": "LOST"}, {"text": "\0"}, {"text": "x" * 501}, {"cursor": "yesterday"}, {"limit": 0}):
            with pytest.raises(errors.InvalidInputError):
                store.flows.list(**wrong)

    def test_pages_of_a_search_leave_nothing_out(self, store: sync.Holdproof, clock: FrozenClock) -> None:
        for number in range(7):
            store.flows.start("trader")
            clock.advance(number % 2)
        whole = [each.flow_id for each in store.flows.list().items]
        met = list[str]()
        cursor: str | None = None
        while True:
            page = store.flows.list(cursor=cursor, limit=3)
            met += [each.flow_id for each in page.items]
            if page.next_cursor is None:
                break
            cursor = page.next_cursor
        assert met == whole
        assert len(met) == 7

    def test_the_pace_counts_each_minute_and_the_quiet_ones(self, store: sync.Holdproof, clock: FrozenClock) -> None:
        running(store)
        clock.advance(120)
        store.flows.transition(running(store), "COMPLETED")
        pace = store.flows.pace(minutes=3)
        assert [each.transitions for each in pace] == [1, 0, 2]
        assert [each.completed for each in pace] == [0, 0, 1]
        assert [each.transitions for each in store.flows.pace(minutes=3, ns="other")] == [0, 0, 0]
        with pytest.raises(errors.InvalidInputError):
            store.flows.pace(minutes=0)

    def test_every_version_of_a_document_is_known_by_its_leaf(self, store: sync.Holdproof) -> None:
        flow_id = running(store)
        assert store.contexts.versions(flow_id).items == store.state.versions("trader").items == []
        for number in range(3):
            store.contexts.put(flow_id, {"n": number})
            store.state.put("trader", {"n": number})
        for found in (store.contexts.versions(flow_id).items, store.state.versions("trader").items):
            assert [each.ver for each in found] == [3, 2, 1]
            assert len({each.commitment for each in found}) == 3
        page = store.state.versions("trader", limit=2)
        assert [each.ver for each in store.state.versions("trader", cursor=page.next_cursor).items] == [1]
        with pytest.raises(errors.NotFoundError):
            store.state.versions("nobody")

    def test_evaluations_come_newest_first(self, store: sync.Holdproof) -> None:
        for name in "abc":
            store.evaluations.submit({"x": name}, evaluation_id=name, score=0.5, intent=[1.0])
        page = store.evaluations.list(limit=2)
        assert [each.evaluation_id for each in page.items] == ["c", "b"]
        assert [each.evaluation_id for each in store.evaluations.list(cursor=page.next_cursor).items] == ["a"]

    def test_feedback_comes_newest_first(self, store: sync.Holdproof) -> None:
        flow_id = running(store)
        made = [store.feedback.record("trader", flow_id, status="GOOD", score=n).id for n in (0.1, 0.2, 0.3)]
        found = store.feedback.list(agent_id="trader", limit=2)
        assert [each.score for each in found.items] == [0.3, 0.2]
        assert [each.id for each in store.feedback.list(agent_id="trader", cursor=found.next_cursor).items] == [made[0]]
        assert store.feedback.list(agent_id="nobody").items == []

    def test_cancelling_ends_a_flow_and_begins_to_undo_it(self, store: sync.Holdproof) -> None:
        flow_id = running(store)
        asked = store.escalations.request(flow_id, reason="?").id
        assert store.flows.cancel(flow_id, reason="not needed").status == "CANCELLED"
        assert store.escalations.get(asked).status == "CANCELLED"
        with pytest.raises(errors.IllegalTransitionError):
            store.flows.cancel(flow_id, reason="again")
        undone: list[int] = []
        with pytest.raises(errors.FlowEndedError, match="COMPENSATED"):
            pay_and_cancel(store, undone)
        assert undone == [7]

    def test_images_are_listed_newest_first(self, store: sync.Holdproof) -> None:
        assert store.image.list().items == []
        if not self.shared:
            return
        for number in range(2):
            store.objects.put("x", type="note", content=number)
            store.image.dump()
        newest, older = store.image.list().items
        assert newest.rev > older.rev
        assert (newest.damage, newest.bytes > 0) == (None, True)
        assert store.image.list(ns="other").items == []

    def test_a_flow_is_proven_to_a_stranger(self, live: sync.Holdproof) -> None:
        store = live
        flow_id = running(store)
        store.contexts.put(flow_id, {"n": 1})
        store.audit.record(flow_id, "looked")
        number = store.escalations.request(flow_id, reason="?", proposal={"buy": 1}).id
        store.escalations.resolve(number, "approve", by="ann")
        store.flows.transition(flow_id, "COMPLETED")
        until = time.monotonic() + 10
        while store.log.pending() and time.monotonic() < until:  # PostgreSQL signs a moment later
            time.sleep(0.02)
        checked = offline.check(store.bundle.export(flow_id, kind="flow"))
        assert (checked.verdict.word, checked.kind, checked.subject) == ("VALID", "flow", flow_id)
        with pytest.raises(errors.NotFoundError):
            store.bundle.export("nothing", kind="flow")


class TestInboxOnSqlite(OnSqlite, Inbox): ...


class TestInboxInMemory(InMemory, Inbox): ...


class TestInboxOnPostgres(OnPostgres, Inbox): ...


class TestSearchOnSqlite(OnSqlite, Search): ...


class TestSearchInMemory(InMemory, Search): ...


class TestSearchOnPostgres(OnPostgres, Search): ...
