"""Schedules under attack and in a race: many workers fire each instant once, and an edited row fires nothing."""

from typing import Any

import pytest

from harness.filling import settled
from holdproof import sync
from holdproof.db import Tx, sql
from holdproof.errors import TamperedError
from holdproof.model.verdicts import Verdict
from holdproof.runtime import schedule_rows
from holdproof.testing import FrozenClock
from tests.conformance.decisions import InMemory, OnPostgres, OnSqlite, OnStore
from tests.conformance.racing import together
from tests.conformance.test_schedules import DAY, HOUR, nightly


class Races(OnStore):
    """Many workers on one store, each with its own connections."""

    def test_racing_workers_fire_each_instant_once(self, clock: FrozenClock) -> None:
        stores = [self.open(clock=clock) for _ in range(3)] if self.shared else [self.open(clock=clock)]
        try:
            store = stores[0]
            store.agents.register("trader", version="1.0.0")
            for number in range(3):
                nightly(store, f"s{number}", cron="*/10 * * * *", catch_up="all")
            clock.advance(5 * HOUR)
            instants: list[tuple[str, str]] = []

            def work(number: int) -> int:
                firing = stores[number % len(stores)].schedules.fire()
                assert firing.failures == ()
                instants.extend((each.schedule, each.instant) for each in firing.flows)
                return 0

            together(6, work)
            assert len(instants) == len(set(instants)) == 3 * 30
            assert len(store.flows.list(limit=1000).items) == 90

            def change(number: int) -> str:
                if number % 2:
                    return str(len(stores[number % len(stores)].schedules.fire().flows))
                return str(stores[number % len(stores)].schedules.delete("s0"))

            clock.advance(601)
            outcomes = together(6, change)
            # One deletes it; whether it was fired before or not, it was at most once.
            assert outcomes["True"] == 1
            assert len(store.flows.list(limit=1000).items) in (92, 93)
        finally:
            for each in stores:
                each.close()


_EDITS = {
    "arguments": """arguments = '{"args":["a yacht"],"kwargs":{}}'""",
    "function": "function = 'pay'",
    "function_version": "function_version = '0.9'",
    "agent": "agent_id = 'broker'",
    "cron": "cron = '* * * * *'",
    "catch_up": "catch_up = 'all'",
    "fired_until": "fired_until = '2025-01-01T00:00:00.000000Z'",
    "next_at": "next_at = '2025-01-01T00:00:00.000000Z'",
    "queue": "queue = 'other'",
    "salt": "leaf_salt = NULL",
}


class Tampering(OnStore):
    """A schedule that somebody edited in the database."""

    def _edit(self, store: sync.Holdproof, change: str) -> None:
        store.write(lambda tx: tx.execute(sql(f"UPDATE schedules SET {change} WHERE name = 'nightly'")))

    def _tampered(self, store: sync.Holdproof) -> list[str | None]:
        settled(store)
        findings = store.verify.run(full=True, lock=False).findings
        return [each.table for each in findings if each.verdict is Verdict.TAMPERED]

    @pytest.mark.parametrize("edit", sorted(_EDITS))
    def test_an_edited_schedule_fires_nothing_and_the_others_go_on(self, clock: FrozenClock, edit: str) -> None:
        with self.open(clock=clock) as store:
            store.agents.register("trader", version="1.0.0")
            schedule = nightly(store)
            nightly(store, "other")
            clock.advance(4 * HOUR)
            self._edit(store, _EDITS[edit])
            firing = store.schedules.fire()
            assert [each.schedule for each in firing.flows] == ["other"]
            assert [(each.schedule, each.code) for each in firing.failures] == [("nightly", "evidence.tampered")]
            assert schedule.schedule_id in firing.failures[0].error
            refused: list[Any] = [
                lambda: store.schedules.trigger("nightly"),
                lambda: store.schedules.backfill("nightly", "2025-01-01T00:00:00Z", "2025-01-01T01:00:00Z"),
                # Another version would make the edit look right.
                lambda: store.schedules.update("nightly", queue="q"),
                lambda: store.schedules.pause("nightly"),
                lambda: store.schedules.delete("nightly"),
            ]
            for call in refused:
                with pytest.raises(TamperedError):
                    call()
            assert len(store.flows.list().items) == 1
            # Another agent's name also puts the entry into the wrong stream.
            assert self._tampered(store) == (["log_leaves", "schedules"] if edit == "agent" else ["schedules"])

    def test_an_older_version_that_was_put_back_fires_nothing(self, clock: FrozenClock) -> None:
        with self.open(clock=clock) as store:
            store.agents.register("trader", version="1.0.0")
            nightly(store, cron="* * * * *", args=["old"])
            columns = ", ".join((*schedule_rows.SCHEDULES.projection.columns, "leaf_id", "leaf_ver", "leaf_salt"))
            names = columns.split(", ")
            row = store.read(lambda tx: tx.one(sql(f"SELECT {columns} FROM schedules")))
            assert row is not None
            values = dict(zip(names, row, strict=True))
            store.schedules.update("nightly", args=["new"])
            clock.advance(HOUR)
            changes = ", ".join(f"{name} = :{name}" for name in names)

            def put_back(tx: Tx) -> None:
                tx.execute(sql(f"UPDATE schedules SET {changes}"), **values)

            store.write(put_back)
            firing = store.schedules.fire()
            assert (firing.flows, [each.code for each in firing.failures]) == ((), ["evidence.tampered"])
            assert "was put back" in firing.failures[0].error
            assert "schedules" in self._tampered(store)

    def test_a_schedule_that_was_removed_or_silenced_is_named(self, clock: FrozenClock) -> None:
        with self.open(clock=clock) as store:
            store.agents.register("trader", version="1.0.0")
            nightly(store)
            self._edit(store, "paused = 1")
            clock.advance(DAY)
            assert store.schedules.fire().flows == ()
            assert self._tampered(store) == ["schedules"]
            store.write(lambda tx: tx.execute(sql("DELETE FROM schedules")))
            assert self._tampered(store) == ["schedules"]


class TestSqlite(OnSqlite, Races, Tampering):
    pass


class TestMemory(InMemory, Races, Tampering):
    pass


class TestPostgres(OnPostgres, Races, Tampering):
    pass
