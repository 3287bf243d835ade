"""Growth: one measurement of the store an hour, which a restart does not forget, on every backend."""

from contextlib import closing
from pathlib import Path

import apsw
import pytest

from holdproof import errors, sync
from holdproof.evidence import growth
from holdproof.model.log import StoreSize
from holdproof.testing import FrozenClock
from tests.conformance.decisions import InMemory, OnPostgres, OnSqlite, OnStore

HOUR = 3600.0


def _work(store: sync.Holdproof, flows: int = 1) -> None:
    for _ in range(flows):
        store.flows.start("trader", flow_type="trade")


def _hours(store: sync.Holdproof, by: str = "hour") -> list[str]:
    return [each.at[:13] for each in store.log.growth(by=by, limit=1_000)]


class Growth(OnStore):
    def test_each_hour_has_one_measurement_and_the_newest_comes_first(
        self, store: sync.Holdproof, clock: FrozenClock
    ) -> None:
        for _ in range(3):
            _work(store)
            store.sweep.run()
            store.sweep.run()
            clock.advance(HOUR)
        assert _hours(store) == ["2026-01-01T02", "2026-01-01T01", "2026-01-01T00"]
        third, second, first = store.log.growth()
        assert third.entries > second.entries > first.entries > 0
        assert min(each.bytes for each in (first, second, third)) > 0
        assert store.verify.run().ok

    def test_a_log_that_has_not_grown_is_not_measured_again(self, store: sync.Holdproof, clock: FrozenClock) -> None:
        _work(store)
        store.sweep.run()
        for _ in range(5):
            clock.advance(HOUR)
            store.sweep.run()
        assert _hours(store) == ["2026-01-01T00"]

    def test_of_two_sweeps_at_the_same_moment_one_measurement_stays(self, store: sync.Holdproof) -> None:
        _work(store)
        store.write(growth._measure)
        [first] = store.log.growth()
        _work(store, 3)
        store.write(growth._measure)
        assert [*store.log.growth()] == [first]
        assert store.read(growth.now).entries > first.entries

    def test_after_ninety_days_the_last_measurement_of_each_day_stays(
        self, store: sync.Holdproof, clock: FrozenClock
    ) -> None:
        for _ in range(48):
            _work(store)
            store.sweep.run()
            clock.advance(HOUR)
        assert _hours(store, "day") == ["2026-01-02T23", "2026-01-01T23"]
        clock.advance(growth.KEPT_H_S)
        _work(store)
        store.sweep.run()
        assert _hours(store) == ["2026-04-03T00", "2026-01-02T23", "2026-01-01T23"]

    def test_a_range_is_listed_page_by_page(self, store: sync.Holdproof, clock: FrozenClock) -> None:
        for _ in range(5):
            _work(store)
            store.sweep.run()
            clock.advance(HOUR)
        sizes: list[StoreSize] = []
        cursor = None
        while True:
            page = store.log.growth(since="2026-01-01T01:00:00Z", until="2026-01-01T03:30:00Z", cursor=cursor, limit=2)
            sizes += page.items
            cursor = page.next_cursor
            if cursor is None:
                break
        assert [each.at[11:13] for each in sizes] == ["03", "02", "01"]

    @pytest.mark.parametrize("arguments", [{"by": "week"}, {"cursor": "x"}, {"since": "now"}, {"limit": 0}])
    def test_what_cannot_be_asked_is_refused(self, store: sync.Holdproof, arguments: dict[str, str]) -> None:
        with pytest.raises(errors.InvalidInputError):
            store.log.growth(**arguments)  # type: ignore[arg-type]


class TestGrowthOnSqlite(OnSqlite, Growth):
    def test_thinning_reads_one_day_for_each_measurement_however_many_came_since(self, store: sync.Holdproof) -> None:
        # The writer waits meanwhile: by days alone it was half a second each hour after three years.
        store.sweep.run()
        with closing(apsw.Connection(str(self.home / "kernel.db"), flags=apsw.SQLITE_OPEN_READONLY)) as connection:
            plan = connection.execute(f"EXPLAIN QUERY PLAN {growth._THIN.sqlite}", ("2026",)).fetchall()
        steps = [str(detail) for *_, detail in plan]
        assert any("(hour>? AND hour<?)" in step for step in steps), steps


class TestGrowthInMemory(InMemory, Growth):
    pass


class TestGrowthOnPostgres(OnPostgres, Growth):
    pass


def test_what_was_measured_is_there_after_the_store_was_opened_again(tmp_path: Path) -> None:
    with sync.open(tmp_path) as store:
        store.agents.register("trader", version="1.0.0")
        store.sweep.run()
        [before] = store.log.growth()
    with sync.open(tmp_path) as store:
        assert [*store.log.growth()] == [before]
