"""Activity: counts by hour and agent, the same before and after they were counted, on every backend."""

from typing import Any

import pytest

from holdproof import errors, sync
from holdproof.model.activity import ActivityCount
from holdproof.runtime import activity
from holdproof.testing import FrozenClock
from tests.conformance.decisions import InMemory, OnPostgres, OnSqlite, OnStore

HOUR = 3600.0


def _work(store: sync.Holdproof, clock: FrozenClock) -> None:
    """In the first hour two flows end, in the third one fails; three escalations: answered, expired, waiting."""
    store.agents.register("clerk", version="1.0.0")
    for _ in range(2):
        with store.flows.run("trader", flow_type="trade"):
            clock.advance(1)
    clock.advance(2 * HOUR)
    flow = store.flows.start("clerk", flow_type="file").flow_id
    store.flows.transition(flow, "RUNNING")
    answered = store.escalations.request(flow, reason="first", proposal={"a": 1})
    clock.advance(30)
    store.escalations.resolve(answered.id, "approve", by="ann", comment="fine")
    store.escalations.request(flow, reason="second", proposal={"a": 2}, deadline_s=60)
    clock.advance(90)
    store.sweep.run()
    with pytest.raises(ZeroDivisionError), store.flows.run("trader", flow_type="trade"):
        1 / 0  # noqa: B018 (it is to fail)


def _totals(store: sync.Holdproof) -> dict[str, tuple[int, ...]]:
    return {each.bucket: _numbers(each) for each in store.activity.stats()}


def _numbers(count: ActivityCount) -> tuple[int, ...]:
    return (count.started, count.completed, count.failed, count.escalations, count.answers, count.expired)


class Activity(OnStore):
    def test_what_happened_is_counted_by_the_hour_and_by_agent(self, store: sync.Holdproof, clock: FrozenClock) -> None:
        _work(store, clock)
        assert _totals(store) == {"2026-01-01T00": (2, 2, 0, 0, 0, 0), "2026-01-01T02": (2, 0, 2, 2, 1, 1)}
        by_agent = {each.agent_id: _numbers(each) for each in store.activity.stats(by="all", by_agent=True)}
        assert by_agent == {"clerk": (1, 0, 1, 2, 1, 1), "trader": (3, 2, 1, 0, 0, 0)}
        [day] = store.activity.stats(by="day")
        assert (day.bucket, day.ended) == ("2026-01-01", 4)

    def test_a_flow_whose_steps_are_undone_ends_once_and_as_failed(self, store: sync.Holdproof) -> None:
        ways = (
            ("RUNNING", "COMPENSATING", "COMPENSATED"),
            ("RUNNING", "FAILED", "COMPENSATING", "COMPENSATED"),
            ("RUNNING", "FAILED", "COMPENSATING", "FAILED"),
            ("RUNNING", "CANCELLED", "COMPENSATING", "COMPENSATED"),
        )
        for way in ways:
            flow_id = store.flows.start("trader", flow_type="trade").flow_id
            for status in way:
                store.flows.transition(flow_id, status)
        [day] = store.activity.stats(by="day")
        assert (day.started, day.ended, day.failed, day.cancelled) == (4, 4, 3, 1)

    def test_counts_are_the_same_before_and_after_the_sweep_counted_them(
        self, store: sync.Holdproof, clock: FrozenClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(activity, "_BATCH", 1)
        _work(store, clock)
        before = _totals(store)
        for _ in range(3):
            clock.advance(activity.SETTLED_S)
            store.sweep.run()
            assert _totals(store) == before
        assert store.read(activity.counted_until) > "2026-01-01T02"
        # What comes after what was counted is added to the same hour.
        with store.flows.run("trader", flow_type="trade"):
            pass
        assert _totals(store)["2026-01-01T02"][:2] == (3, 1)

    def test_of_two_sweeps_that_counted_the_same_one_is_taken(self, store: sync.Holdproof, clock: FrozenClock) -> None:
        _work(store, clock)
        before = _totals(store)
        clock.advance(activity.SETTLED_S + 1)
        batch = store.read(activity._read_batch)
        assert batch is not None
        for _ in range(2):
            store.write(lambda tx: activity._store(tx, batch))
        assert _totals(store) == before

    def test_an_idle_store_is_not_written_to(self, store: sync.Holdproof, clock: FrozenClock) -> None:
        _work(store, clock)
        clock.advance(activity.SETTLED_S + 1)
        store.sweep.run()
        until = store.read(activity.counted_until)
        clock.advance(600)
        store.sweep.run()
        assert store.read(activity.counted_until) == until

    def test_a_range_leaves_out_what_is_before_and_after_its_hours(
        self, store: sync.Holdproof, clock: FrozenClock
    ) -> None:
        _work(store, clock)
        later_hours = store.activity.stats(since="2026-01-01T02:30:00Z")
        assert [each.bucket for each in later_hours] == ["2026-01-01T02"]
        earlier = store.activity.stats(until="2026-01-01T01:00:00Z")
        assert [each.bucket for each in earlier] == ["2026-01-01T00"]
        assert store.activity.stats(ns="elsewhere") == ()
        with pytest.raises(errors.InvalidInputError, match="by is one of"):
            store.activity.stats(by="week")

    def test_the_time_to_an_answer_is_that_of_people_and_not_of_deadlines(
        self, store: sync.Holdproof, clock: FrozenClock
    ) -> None:
        assert store.activity.answer_times().median_s is None
        _work(store, clock)
        times = store.activity.answer_times()
        assert (times.answers, times.median_s, times.slowest_s) == (1, 30.0, 30.0)


class Facets(OnStore):
    def test_what_waits_is_counted_and_listed_by_what_it_has_in_common(
        self, store: sync.Holdproof, clock: FrozenClock
    ) -> None:
        del clock
        numbers = {}
        requests: dict[str, dict[str, Any]] = {
            "grave": {"impact": "HIGH_IMPACT", "deadline_s": 600},
            "calm": {"impact": "LOW_IMPACT"},
            "named": {"impact": "LOW_IMPACT", "approvers": "2 of finance"},
        }
        for name, more in requests.items():
            flow = store.flows.start("trader", flow_type="trade" if name == "grave" else "file").flow_id
            store.flows.transition(flow, "RUNNING")
            store.people.put("ann", groups=["finance"])
            store.people.put("bob", groups=["finance"])
            numbers[name] = store.escalations.request(flow, reason=name, proposal={}, **more).id
        counts = {
            (each.flow_type, each.impact, each.approvers): (each.count, each.due) for each in store.escalations.facets()
        }
        assert counts == {
            ("trade", "HIGH_IMPACT", ""): (1, 1),
            ("file", "LOW_IMPACT", ""): (1, 0),
            ("file", "LOW_IMPACT", "2 of finance"): (1, 0),
        }

        def listed(**filters: object) -> set[int]:
            page = store.escalations.list(status="PENDING", order="due", **filters)  # type: ignore[arg-type]
            newest = store.escalations.list(status="PENDING", **filters)  # type: ignore[arg-type]
            assert {each.id for each in page.items} == {each.id for each in newest.items}
            return {each.id for each in page.items}

        assert listed(impact="HIGH_IMPACT") == {numbers["grave"]}
        assert listed(flow_type="file") == {numbers["calm"], numbers["named"]}
        assert listed(approvers=["2 of finance"]) == {numbers["named"]}
        assert listed(approvers=[""]) == {numbers["grave"], numbers["calm"]}
        assert listed(due_before="2026-01-01T01:00:00Z") == {numbers["grave"]}
        for wrong in ({"impact": "SOME"}, {"approvers": "finance"}, {"due_before": "soon"}):
            with pytest.raises(errors.InvalidInputError):
                listed(**wrong)


class TestActivityOnSqlite(OnSqlite, Activity, Facets):
    pass


class TestActivityInMemory(InMemory, Activity, Facets):
    pass


class TestActivityOnPostgres(OnPostgres, Activity, Facets):
    pass
