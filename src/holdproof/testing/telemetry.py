"""What every telemetry store must do: the suite a backend passes with a fixture of five lines.

Subclass `TelemetrySuite` in a test module and define `open`: a store that is empty at the start of each test.
"""

import asyncio
import json
from abc import abstractmethod
from typing import Any

import pytest

from holdproof import errors
from holdproof.model.storage import TelemetryEvent
from holdproof.model.times import to_text
from holdproof.storage.stores import TelemetryStore
from holdproof.testing.stores import StoreSuite

_BEGIN = 1_767_225_600_000_000  # 2026-01-01


def event(number: int, *, kind: str = "tool.call", span: str | None = None, **more: Any) -> TelemetryEvent:
    """An event one second after the one before it."""
    return TelemetryEvent(kind, to_text(_BEGIN + number * 1_000_000), {"n": number}, span_id=span, **more)


def numbers(events: list[TelemetryEvent]) -> list[int]:
    return [each.data["n"] for each in events]


class TelemetrySuite(StoreSuite):
    """One claim a test."""

    @abstractmethod
    async def open(self) -> TelemetryStore:
        """Open the test's store; any number of times, always the same."""

    def test_an_event_comes_back_as_it_went_in(self) -> None:
        async def test(store: TelemetryStore) -> None:
            assert isinstance(store, TelemetryStore)
            whole = TelemetryEvent(
                "a.b", "2026-01-01T12:00:00+02:00", {"é": [1, None, {"x": "\n\0"}]}, "inst", "0a1b2c3d", "s", "t"
            )
            await store.append([whole])
            assert await store.query() == [whole]

        self.use(test)

    def test_nothing_is_appended_by_an_empty_list(self) -> None:
        async def test(store: TelemetryStore) -> None:
            await store.append([])
            assert (await store.query(), await store.count()) == ([], 0)

        self.use(test)

    @pytest.mark.parametrize("size", [70, 999, 1000, 1001, 3500])
    def test_what_was_appended_is_there_newest_first_whatever_the_size_of_a_batch(self, size: int) -> None:
        async def test(store: TelemetryStore) -> None:
            mixed = sorted(range(3500), key=lambda number: number * 7919 % 3500)  # late ones among early ones
            events = [event(number, span=f"s{number // 5}") for number in mixed]
            for at in range(0, len(events), size):
                await store.append(events[at : at + size])
            assert await store.count() == 3500
            assert numbers(await store.query(limit=4000)) == list(range(3499, -1, -1))
            assert numbers(await store.query("s7")) == [39, 38, 37, 36, 35]
            assert numbers(await store.query(limit=3)) == [3499, 3498, 3497]

        self.use(test)

    def test_of_one_moment_the_later_comes_first(self) -> None:
        async def test(store: TelemetryStore) -> None:
            same = "2026-01-01T00:00:00Z"
            for first in (0, 1200, 2400):
                await store.append([TelemetryEvent("x", same, {"n": first + number}) for number in range(1200)])
            assert numbers(await store.query(limit=200)) == list(range(3599, 3399, -1))

        self.use(test)

    def test_every_filter_counts(self) -> None:
        async def test(store: TelemetryStore) -> None:
            events = [
                event(n, kind=f"k{n % 3}", span=f"s{n % 5}", trace_id=f"t{n % 7}", instance_id=f"i{n % 2}")
                for n in range(2600)
            ]
            # More than two chunks of a thousand and a rest, so that every path of a query is taken.
            await store.append(events)
            assert numbers(await store.query("s2", 10_000)) == [n for n in range(2599, -1, -1) if n % 5 == 2]
            events_found = await store.query("s2", 10_000, event_type="k1", trace_id="t3", instance_id="i1")
            expected = [n for n in range(2599, -1, -1) if (n % 5, n % 3, n % 7, n % 2) == (2, 1, 3, 1)]
            assert numbers(events_found) == expected
            # Both ends are inclusive.
            moments = {"since": to_text(_BEGIN + 10_000_000), "until": to_text(_BEGIN + 12_000_000)}
            assert numbers(await store.query(**moments)) == [12, 11, 10]  # type: ignore[arg-type]
            assert await store.query("nobody") == []
            assert await store.query(event_type="k1", since="2030-01-01T00:00:00Z") == []

        self.use(test)

    def test_a_name_that_stands_in_the_data_is_no_name(self) -> None:
        async def test(store: TelemetryStore) -> None:
            now = "2026-01-01T00:00:00Z"
            await store.append([TelemetryEvent("x", now, {"span": "s", "n": 1}, "s", "s", None, "s")])
            await store.append([TelemetryEvent("x", now, {"n": 2}, span_id='s"s')])
            assert await store.query("s") == []
            assert numbers(await store.query('s"s')) == [2]

        self.use(test)

    @pytest.mark.parametrize(
        "wrong",
        [
            TelemetryEvent("", "2026-01-01T00:00:00Z"),
            TelemetryEvent("x", "yesterday"),
            TelemetryEvent("x", "2026-01-01T00:00:00Z", {"x": object()}),
            TelemetryEvent("x", "2026-01-01T00:00:00Z", {"x": float("nan")}),
            TelemetryEvent("x", "2026-01-01T00:00:00Z", {}, span_id=7),  # type: ignore[arg-type]
            TelemetryEvent("x", "2026-01-01T00:00:00Z", {}, project_hash=7),  # type: ignore[arg-type]
            "event",
        ],
        ids=["no type", "no time", "no JSON", "no number", "no text", "no project", "no event"],
    )
    def test_a_batch_with_a_wrong_event_is_refused_whole(self, wrong: TelemetryEvent) -> None:
        async def test(store: TelemetryStore) -> None:
            with pytest.raises(errors.InvalidInputError):
                await store.append([event(1), wrong, event(2)])
            assert await store.count() == 0

        self.use(test)

    def test_a_time_without_a_zone_is_utc(self) -> None:
        async def test(store: TelemetryStore) -> None:
            await store.append([TelemetryEvent("x", "2026-01-01T01:00:00", {"n": 1})])
            await store.append([TelemetryEvent("x", "2026-01-01T01:30:00+01:00", {"n": 2})])
            assert numbers(await store.query()) == [1, 2]

        self.use(test)

    def test_what_is_older_is_pruned_and_the_rest_stays(self) -> None:
        async def test(store: TelemetryStore) -> None:
            await store.append([event(number, span=f"s{number}") for number in range(2700)])
            assert await store.prune(36_500) == 0
            assert await store.count() == 2700
            assert await store.prune(0) == 2700
            assert (await store.count(), await store.query(), await store.query("s7")) == (0, [], [])
            for days in (-1, float("inf"), float("nan"), 1e300, "1", None):
                with pytest.raises(errors.InvalidInputError):
                    await store.prune(days)  # type: ignore[arg-type]

        self.use(test)

    def test_a_limit_of_nothing_gives_nothing_and_less_is_refused(self) -> None:
        async def test(store: TelemetryStore) -> None:
            await store.append([event(1)])
            assert await store.query(limit=0) == []
            wrong: dict[str, Any]
            for wrong in ({"limit": -1}, {"limit": None}, {"limit": 2.5}, {"since": "yesterday"}, {"span_id": 7}):
                with pytest.raises(errors.InvalidInputError):
                    await store.query(**wrong)
            with pytest.raises(errors.InvalidInputError):
                await store.append(None)  # type: ignore[arg-type]

        self.use(test)

    def test_many_who_append_at_once_lose_nothing(self) -> None:
        async def test(store: TelemetryStore) -> None:
            batches = [[event(at * 40 + n) for n in range(40)] for at in range(100)]
            await asyncio.gather(*(store.append(batch) for batch in batches))
            assert await store.count() == 4000
            assert sorted(numbers(await store.query(limit=5000))) == list(range(4000))

        self.use(test)

    def test_what_was_appended_survives_closing(self) -> None:
        async def test(store: TelemetryStore) -> None:
            await store.append([event(number) for number in range(1100)])
            await store.close()
            await store.close()
            again = await self.open()
            try:
                assert await again.count() == 1100
                assert json.dumps((await again.query(limit=1))[0].to_dict())
            finally:
                await again.close()

        self.use(test)
