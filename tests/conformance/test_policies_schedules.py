"""Policies and schedules: what is denied is passed over, and holds up nothing else."""

from typing import Any

import pytest

from holdproof import sync
from holdproof.runtime import escalation_messages, schedules
from holdproof.testing import FrozenClock
from tests.conformance.decisions import InMemory, OnPostgres, OnSqlite, OnStore

_DENIES = """permit(principal, action, resource);
@id("not") forbid(principal == Agent::"other", action, resource);
@id("three") forbid(principal, action, resource) when { context has at && context.at like "*T00:03*" };
"""


class PoliciesAndSchedules(OnStore):
    def test_a_denied_instant_is_passed_over_and_recorded_once_while_other_schedules_fire(
        self, store: sync.Holdproof, clock: FrozenClock
    ) -> None:
        store.agents.register("other", version="1")
        store.schedules.create("aaa", "nightly", cron="* * * * *", agent_id="other")
        store.schedules.create("bbb", "nightly", cron="* * * * *", agent_id="trader", catch_up="all", instant_as="at")
        denying(store)
        clock.advance(300)
        firing = store.schedules.fire()
        assert [each.instant[11:16] for each in firing.flows] == ["00:01", "00:02", "00:04", "00:05"]
        assert {each.schedule for each in firing.flows} == {"bbb"}
        codes = [(each.schedule, each.code) for each in firing.failures]
        denials = len(codes)
        assert {*codes} == {("aaa", "policy.denied"), ("bbb", "policy.denied")}
        assert codes.count(("bbb", "policy.denied")) == 1
        again = store.schedules.fire()
        assert (again.flows, again.failures) == ((), ())
        assert len(store.policies.decisions(decision="deny").items) == denials
        assert (store.schedules.get("aaa").next_at or "")[11:16] == "00:06"

    def test_many_denied_instants_are_passed_over_in_turns(self, store: sync.Holdproof, clock: FrozenClock) -> None:
        store.agents.register("other", version="1")
        store.schedules.create("aaa", "nightly", cron="* * * * *", agent_id="other", catch_up="all")
        denying(store)
        clock.advance(105 * 60)
        assert [len(store.schedules.fire().failures) for _ in range(3)] == [100, 5, 0]
        assert len(store.policies.decisions(decision="deny", limit=1000).items) == 105

    def test_a_worker_runs_flows_whatever_becomes_of_schedules_and_reminders(
        self, live: sync.Holdproof, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fails(*_: Any, **__: Any) -> Any:
            raise RuntimeError("this part of a look fails")

        monkeypatch.setattr(schedules, "fire_due", fails)
        monkeypatch.setattr(escalation_messages, "is_any_near", fails)
        add_one = live.flow(agent="trader", name="add_one")(lambda flow, number: number + 1)
        with live.worker(concurrency=1):
            assert add_one.enqueue(1).result(timeout_s=30) == 2


def denying(store: sync.Holdproof) -> None:
    store.policies.create("payments", _DENIES)
    store.policies.activate("payments")


class TestSqlite(OnSqlite, PoliciesAndSchedules):
    pass


class TestInMemory(InMemory, PoliciesAndSchedules):
    pass


class TestPostgres(OnPostgres, PoliciesAndSchedules):
    pass
