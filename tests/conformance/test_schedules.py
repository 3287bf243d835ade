"""Schedules: one flow for every instant, whoever fires, whatever the clock does, and nothing from an edited row."""

import asyncio
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

import holdproof
from holdproof import sync
from holdproof.db import Tx, sql
from holdproof.errors import (
    AlreadyExistsError,
    CronError,
    InvalidInputError,
    NotFoundError,
    StaleVersionError,
    UnrecordableError,
)
from holdproof.model.flows import Flow
from holdproof.model.schedules import Firing, Schedule
from holdproof.model.times import to_micros
from holdproof.runtime import schedules
from holdproof.testing import FrozenClock
from tests.conformance.decisions import InMemory, OnPostgres, OnSqlite, OnStore

DAY = 86_400.0
HOUR = 3_600.0


def nightly(store: sync.Holdproof, name: str = "nightly", **changes: Any) -> Schedule:
    """A schedule at three in the morning; clocks of these tests begin at midnight of the first of January."""
    options = {"cron": "0 3 * * *", "agent_id": "trader", **changes}
    return store.schedules.create(name, "rebalance", **options)


def fired(store: sync.Holdproof) -> list[str]:
    """Fire, which must not fail; the instants whose flows were enqueued, to the minute."""
    firing = store.schedules.fire()
    assert firing.failures == ()
    return minutes(firing)


def minutes(firing: Firing) -> list[str]:
    return [each.instant[:16] for each in firing.flows]


class Schedules(OnStore):
    # --- what a schedule is ---

    def test_a_new_schedule_tells_when_it_fires_next(self, store: sync.Holdproof) -> None:
        schedule = nightly(store, timezone="Europe/Berlin", args=["BTC", 5], kwargs={"dry": True}, queue="night")
        assert schedule.next_at == "2026-01-01T02:00:00.000000Z"
        assert schedule.arguments == {"args": ["BTC", 5], "kwargs": {"dry": True}}
        assert (schedule.function, schedule.function_version, schedule.catch_up) == ("rebalance", "1.0", "one")
        assert (schedule.agent_id, schedule.queue, schedule.paused) == ("trader", "night", False)
        assert store.schedules.get("nightly") == schedule

    def test_a_name_is_taken_until_its_schedule_is_deleted(self, store: sync.Holdproof) -> None:
        first = nightly(store, args=["secret"])
        with pytest.raises(AlreadyExistsError, match="update it, or delete it first"):
            nightly(store)
        assert store.schedules.delete("nightly") is True
        assert store.schedules.delete("nightly") is False
        with pytest.raises(NotFoundError, match="there is no schedule nightly"):
            store.schedules.get("nightly")
        assert store.schedules.list().items == []
        assert nightly(store).schedule_id != first.schedule_id
        # What it was called with goes with it.
        assert "secret" not in str(store.read(lambda tx: tx.all(sql("SELECT arguments FROM schedules"))))

    def test_what_is_wrong_is_refused_before_anything_is_written(self, store: sync.Holdproof) -> None:
        with pytest.raises(CronError) as caught:
            nightly(store, cron="0 25 * * *")
        assert caught.value.fields["position"] == 3
        with pytest.raises(InvalidInputError, match="there is no time zone"):
            nightly(store, timezone="Mars/Olympus")
        with pytest.raises(InvalidInputError, match="name the agent"):
            nightly(store, agent_id=None)
        with pytest.raises(InvalidInputError):
            nightly(store, catch_up="some")
        with pytest.raises(InvalidInputError, match="instant_as"):
            nightly(store, instant_as="not a name")
        assert store.schedules.list().items == []

    def test_schedules_are_listed_by_name_in_pages(self, store: sync.Holdproof) -> None:
        for name in ("c", "a", "b"):
            nightly(store, name)
        store.schedules.create("d", "report", cron="@hourly", agent_id="trader", paused=True)
        page = store.schedules.list(limit=3)
        assert [each.name for each in page.items] == ["a", "b", "c"]
        assert [each.name for each in store.schedules.list(cursor=page.next_cursor).items] == ["d"]
        assert [each.name for each in store.schedules.list(function="report").items] == ["d"]
        assert [each.name for each in store.schedules.list(paused=True).items] == ["d"]
        assert [each.name for each in store.schedules.list(paused=False, limit=1).items] == ["a"]

    def test_an_update_changes_what_it_names_and_counts_from_now_on(
        self, store: sync.Holdproof, clock: FrozenClock
    ) -> None:
        first = nightly(store, args=[1], instant_as="at")
        clock.advance(12 * HOUR)
        # Three o'clock has passed and was not fired; under the new expression nine has too.
        changed = store.schedules.update("nightly", cron="0 9 * * *", expected_version=first.version)
        assert (changed.version, changed.next_at) == (2, "2026-01-02T09:00:00.000000Z")
        assert (changed.arguments, changed.instant_as) == (first.arguments, "at")
        assert fired(store) == []
        with pytest.raises(StaleVersionError, match="the current version is 2"):
            store.schedules.update("nightly", queue="q", expected_version=1)
        changed = store.schedules.update(
            "nightly", function="report", version="2", args=[2], agent_id="auditor", instant_as="", catch_up="all"
        )
        assert (changed.function, changed.function_version, changed.agent_id) == ("report", "2", "auditor")
        assert (changed.arguments, changed.instant_as, changed.catch_up) == ({"args": [2], "kwargs": {}}, None, "all")
        with pytest.raises(CronError):
            store.schedules.update("nightly", cron="x")

    # --- firing ---

    def test_each_instant_has_one_flow(self, store: sync.Holdproof, clock: FrozenClock) -> None:
        schedule = nightly(store, args=["BTC"], instant_as="at", queue="night")
        assert fired(store) == []
        clock.advance(3 * HOUR)
        firing = store.schedules.fire()
        assert minutes(firing) == ["2026-01-01T03:00"]
        assert firing.next_at == "2026-01-02T03:00:00.000000Z"
        assert fired(store) == []
        flow = store.flows.get(firing.flows[0].flow_id)
        assert (flow.status, flow.flow_type, flow.agent_id) == ("CREATED", "rebalance", "trader")
        assert (flow.created_by_type, flow.created_by_id) == ("schedule", "nightly")
        call = store.flows.inputs(flow.flow_id)
        assert call.arguments == {"args": ["BTC"], "kwargs": {"at": "2026-01-01T03:00:00.000000Z"}}
        assert (call.name, call.queue) == ("rebalance", "night")
        clock.advance(DAY)
        assert fired(store) == ["2026-01-02T03:00"]
        # Firing is no change that somebody made.
        assert store.schedules.get("nightly").version == schedule.version

    def test_nothing_is_active_nothing_is_next(self, store: sync.Holdproof) -> None:
        assert store.schedules.fire() == Firing((), (), (), None)

    @pytest.mark.parametrize(
        ("catch_up", "hours", "instants", "since"),
        [
            # Down over three nights, and up again at noon, or just at three.
            ("none", 84, [], "01-01T03:00"),
            ("none", 75, ["01-04T03:00"], "01-01T03:00"),
            ("one", 84, ["01-04T03:00"], "01-01T03:00"),
            ("one", 75, ["01-04T03:00"], "01-01T03:00"),
            ("one", 12, ["01-01T03:00"], None),
            ("all", 84, ["01-01T03:00", "01-02T03:00", "01-03T03:00", "01-04T03:00"], None),
        ],
    )
    def test_what_was_missed_is_made_up_for_as_the_schedule_says(
        self,
        store: sync.Holdproof,
        clock: FrozenClock,
        catch_up: str,
        hours: int,
        instants: list[str],
        since: str | None,
    ) -> None:
        nightly(store, catch_up=catch_up)
        clock.advance(hours * HOUR + 30)
        firing = store.schedules.fire()
        assert minutes(firing) == [f"2026-{each}" for each in instants]
        assert [each.since[5:16] for each in firing.missed] == ([] if since is None else [since])
        assert fired(store) == []
        clock.advance(DAY)
        assert len(fired(store)) == (0 if catch_up == "none" and hours == 84 else 1)

    def test_many_instants_are_made_up_for_in_several_transactions(
        self, store: sync.Holdproof, clock: FrozenClock
    ) -> None:
        nightly(store, cron="*/5 * * * *", catch_up="all")
        clock.advance(11 * HOUR)
        first = store.schedules.fire()
        # Due at once again: the rest is for the next transaction, of whichever worker.
        assert (len(first.flows), first.next_at) == (100, "2026-01-01T11:00:00.000000Z")
        assert len(fired(store)) == 32
        assert fired(store) == []

    def test_a_schedule_of_seconds_is_not_walked_through_a_year_that_was_missed(
        self, store: sync.Holdproof, clock: FrozenClock
    ) -> None:
        nightly(store, cron="* * * * * *", catch_up="one")
        nightly(store, "monthly", cron="0 0 1 * *", catch_up="one")
        clock.advance(360 * DAY + 1800)
        firing = store.schedules.fire()
        assert [each.instant for each in firing.flows if each.schedule == "monthly"] == ["2026-12-01T00:00:00.000000Z"]
        # Those of the last minute were not missed.
        assert len([each for each in firing.flows if each.schedule == "nightly"]) == 61

    def test_a_clock_that_jumps_gives_no_instant_twice_and_loses_none(
        self, store: sync.Holdproof, clock: FrozenClock
    ) -> None:
        nightly(store, catch_up="one")
        clock.advance(4 * HOUR)
        assert fired(store) == ["2026-01-01T03:00"]
        # Ten days too far, then set right.
        clock.advance(10 * DAY)
        assert fired(store) == ["2026-01-11T03:00"]
        clock.advance(-10 * DAY)
        assert fired(store) == []
        instants = []
        for _ in range(12):
            clock.advance(DAY)
            instants += fired(store)
        assert instants == [f"2026-01-{day:02}T03:00" for day in (*range(2, 11), 12, 13)]
        # A little back, as clocks of two machines differ: nothing happens twice.
        clock.advance(-30)
        assert fired(store) == []

    @pytest.mark.parametrize(
        ("friday", "nights", "hours"),
        [
            # Half past two does not exist on the 29th: the first instant after it. Two days have 47 hours.
            ("2026-03-27", ["03-28T01:30", "03-29T01:00", "03-30T00:30"], 71),
            # Half past two comes twice on the 25th: the first time.
            ("2026-10-23", ["10-24T00:30", "10-25T00:30", "10-26T01:30"], 73),
        ],
    )
    def test_clocks_that_are_set_forward_and_back(
        self, store: sync.Holdproof, clock: FrozenClock, friday: str, nights: list[str], hours: int
    ) -> None:
        zone = ZoneInfo("Europe/Berlin")
        noon = datetime.fromisoformat(f"{friday}T12:00:00").replace(tzinfo=zone)
        clock.micros = to_micros(noon.isoformat())
        nightly(store, cron="30 2 * * *", timezone="Europe/Berlin", catch_up="all")
        nightly(store, "hourly", cron="@hourly", timezone="Europe/Berlin", catch_up="all")
        # The same time on the clock, three days later.
        clock.micros = to_micros((noon + timedelta(days=3)).isoformat())
        firing = store.schedules.fire()
        assert [each.instant[5:16] for each in firing.flows if each.schedule == "nightly"] == nights
        assert len([each for each in firing.flows if each.schedule == "hourly"]) == hours

    # --- by hand ---

    def test_what_passes_while_it_is_paused_is_left_to_a_backfill(
        self, store: sync.Holdproof, clock: FrozenClock
    ) -> None:
        nightly(store, catch_up="all")
        assert store.schedules.pause("nightly").version == store.schedules.pause("nightly").version == 2
        clock.advance(3.5 * DAY)
        assert fired(store) == []
        resumed = store.schedules.resume("nightly")
        assert (resumed.paused, resumed.version, resumed.next_at) == (False, 3, "2026-01-05T03:00:00.000000Z")
        assert store.schedules.resume("nightly") == resumed
        assert fired(store) == []
        backfill = store.schedules.backfill("nightly", "2026-01-02T00:00:00Z", "2026-01-04T03:00:00Z")
        assert [each.instant[:16] for each in backfill.flows] == ["2026-01-02T03:00", "2026-01-03T03:00"]
        assert backfill.existing == 0
        again = store.schedules.backfill("nightly", "2026-01-01T03:00:00Z", "2026-01-04T03:00:00Z")
        assert ([each.instant[:16] for each in again.flows], again.existing) == (["2026-01-01T03:00"], 2)

    def test_a_backfill_and_a_firing_of_the_same_instants_give_them_one_flow(
        self, store: sync.Holdproof, clock: FrozenClock
    ) -> None:
        nightly(store, cron="*/5 * * * *", catch_up="all", args=["first"])
        clock.advance(20 * HOUR)
        backfill = store.schedules.backfill("nightly", "2025-12-31T23:00:00Z", "2026-01-01T10:00:00Z")
        assert len(backfill.flows) == 132
        # Changed since: the flows of those instants stay what they were.
        store.schedules.update("nightly", args=["second"])
        instants = [*fired(store), *fired(store), *fired(store)]
        assert instants[0] == "2026-01-01T10:00"
        assert len(instants) == 121
        assert store.flows.inputs(backfill.flows[-1].flow_id).arguments["args"] == ["first"]

    def test_a_backfill_is_of_the_past_and_has_an_end(self, store: sync.Holdproof, clock: FrozenClock) -> None:
        nightly(store, cron="* * * * * *")
        clock.advance(DAY)
        with pytest.raises(InvalidInputError, match="end is after now"):
            store.schedules.backfill("nightly", "2026-01-01T00:00:00Z", "2026-01-02T00:00:01Z")
        with pytest.raises(InvalidInputError, match="more than 10,000 instants"):
            store.schedules.backfill("nightly", "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z")
        with pytest.raises(InvalidInputError):
            store.schedules.backfill("nightly", "yesterday", "2026-01-02T00:00:00Z")
        with pytest.raises(NotFoundError):
            store.schedules.backfill("weekly", "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z")

    def test_a_schedule_is_triggered_by_hand_as_often_as_one_likes(self, store: sync.Holdproof) -> None:
        nightly(store, instant_as="at", paused=True)
        flows = [store.schedules.trigger("nightly") for _ in range(2)]
        assert len({each.flow_id for each in flows}) == 2
        call = store.flows.inputs(flows[0].flow_id)
        assert call.arguments == {"args": [], "kwargs": {"at": "2026-01-01T00:00:00.000000Z"}}
        assert fired(store) == []

    def test_an_agent_that_may_not_act_keeps_its_own_schedules_waiting_and_no_others(
        self, store: sync.Holdproof, clock: FrozenClock
    ) -> None:
        store.agents.register("broker", version="1.0.0")
        nightly(store)
        nightly(store, "other", agent_id="broker")
        store.agents.set_status("trader", "SUSPENDED", reason="under review")
        clock.advance(4 * HOUR)
        firing = store.schedules.fire()
        assert [each.schedule for each in firing.flows] == ["other"]
        assert [(each.schedule, each.code) for each in firing.failures] == [("nightly", "agent.inactive")]
        # In the future: nobody waits busily for a schedule that cannot be fired.
        assert firing.next_at == "2026-01-02T03:00:00.000000Z"
        assert store.schedules.get("nightly").next_at == "2026-01-01T03:00:00.000000Z"
        store.agents.set_status("trader", "ACTIVE")
        assert fired(store) == ["2026-01-01T03:00"]


class Embedded(OnStore):
    """What has to be seen where the store is."""

    def test_a_function_brings_its_name_its_version_and_its_agent(self, store: sync.Holdproof) -> None:
        @store.flow(agent="trader", version="3")
        def rebalance(flow: Any, amount: Decimal, *, at: str, day: datetime | None = None) -> None: ...

        day = datetime(2026, 1, 1, tzinfo=UTC)
        schedule = store.schedules.create(
            "n", rebalance, cron="@daily", args=(Decimal("9.90"),), kwargs={"day": day}, instant_as="at"
        )
        assert (schedule.function, schedule.function_version, schedule.agent_id) == ("rebalance", "3", "trader")
        assert schedule.arguments["args"] == [{"$decimal": "9.90"}]
        changed = store.schedules.update("n", function=rebalance.opening(agent="broker"))
        assert (changed.function_version, changed.agent_id) == ("3", "broker")
        # Arguments that do not fit are refused now, not at three in the morning.
        with pytest.raises(InvalidInputError, match="at"):
            store.schedules.create("m", rebalance, cron="@daily", args=(Decimal(1),))
        with pytest.raises(UnrecordableError):
            store.schedules.create("m", "rebalance", agent_id="trader", cron="@daily", args=(object(),))

    def test_large_arguments_are_passed_whole(self, store: sync.Holdproof, clock: FrozenClock) -> None:
        text = "x" * 20_000
        assert nightly(store, args=[text, "small"]).arguments["args"] == [text, "small"]
        clock.advance(4 * HOUR)
        firing = store.schedules.fire()
        assert store.flows.inputs(firing.flows[0].flow_id).arguments["args"] == [text, "small"]

    def test_a_namespace_has_its_own_schedules(self, store: sync.Holdproof, clock: FrozenClock) -> None:
        store.agents.register("tenant-trader", version="1.0.0", ns="tenant")
        nightly(store)
        nightly(store, agent_id="tenant-trader", ns="tenant")
        clock.advance(4 * HOUR)
        flow_id = store.schedules.fire(ns="tenant").flows[0].flow_id
        assert store.flows.get(flow_id, ns="tenant").ns == "tenant"
        assert store.schedules.delete("nightly", ns="tenant") is True
        assert fired(store) == ["2026-01-01T03:00"]

    def test_a_schedule_is_created_changed_and_triggered_in_one_transaction(self, store: sync.Holdproof) -> None:
        def compose(tx: Tx) -> Flow:
            schedules.create(tx, "nightly", "rebalance", cron="@daily", agent_id="trader")
            # Its entry is in the log only at the commit; it is compared with what this transaction wrote.
            schedules.update(tx, "nightly", args=["BTC"])
            return schedules.trigger(tx, "nightly")

        assert store.flows.inputs(store.write(compose).flow_id).arguments["args"] == ["BTC"]

    def test_a_worker_hears_of_a_new_schedule(self, store: sync.Holdproof) -> None:
        before = store.database.topics.epoch
        nightly(store)
        assert store.database.topics.epoch > before


class TestSqlite(OnSqlite, Schedules, Embedded):
    pass


class TestMemory(InMemory, Schedules, Embedded):
    pass


class TestPostgres(OnPostgres, Schedules, Embedded):
    pass


def test_the_async_client_has_the_same_methods(tmp_path: Path) -> None:
    clock = FrozenClock()

    async def scenario() -> None:
        async with holdproof.open(tmp_path, clock=clock) as store:

            @store.flow(agent="trader")
            async def rebalance(flow: Any, symbol: str) -> str:
                return symbol

            await store.schedules.create("nightly", rebalance, cron="@daily", args=["BTC"])
            clock.advance(DAY + 1)
            assert minutes(await store.schedules.fire()) == ["2026-01-02T00:00"]
            backfill = await store.schedules.backfill("nightly", "2025-12-31T00:00:00Z", "2026-01-02T00:00:01Z")
            assert (len(backfill.flows), backfill.existing) == (2, 1)

    asyncio.run(scenario())
