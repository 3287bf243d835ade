"""The shipped suite for telemetry stores, on every backend of ours; ages, space and damage."""

import asyncio
import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdproof import errors
from holdproof.config import RetentionSettings
from holdproof.db import Tx, open_database, sql
from holdproof.executors import SyncExecutor
from holdproof.model.storage import TelemetryEvent
from holdproof.storage import chunks, telemetry
from holdproof.storage.executors import AsyncStorageExecutor, OperationTracker
from holdproof.storage.stores import TelemetryStore
from holdproof.storage.telemetry import Telemetry
from holdproof.testing import FrozenClock, TelemetrySuite
from holdproof.testing.telemetry import event, numbers
from tests.conformance.membranes import InMemory, OnPostgres, OnSqlite, Place

_CHUNKS = sql("SELECT codec, events FROM telemetry_chunks ORDER BY last_at")
_ROWS = sql("SELECT count(*) FROM telemetry_events")
_HARM = sql("UPDATE telemetry_chunks SET data = :data")


class _Opens(Place):
    async def open(self) -> TelemetryStore:
        return Telemetry(AsyncStorageExecutor(await asyncio.to_thread(self.database, "telemetry"), OperationTracker()))


class AgeSuite(Place):
    """What happens to events as they grow old."""

    @pytest.fixture
    def clock(self) -> FrozenClock:
        return FrozenClock("2026-01-01T00:00:00Z")

    @pytest.fixture
    def store(self, clock: FrozenClock) -> Iterator[Telemetry[SyncExecutor]]:
        store = Telemetry(SyncExecutor(self.database("telemetry", clock=clock)), RetentionSettings(30, 365, 730))
        yield store
        store.close()

    def _chunks(self, store: Telemetry[SyncExecutor]) -> list[Any]:
        return store.executor.database.read(lambda tx: tx.all(_CHUNKS)).result()

    def test_the_tail_stays_short(self, store: Telemetry[SyncExecutor]) -> None:
        for at in range(0, 3300, 10):
            store.append([event(number) for number in range(at, at + 10)])
        [(rows,)] = store.executor.database.read(lambda tx: tx.all(_ROWS)).result()
        assert rows == 300
        assert self._chunks(store) == [("zlib", 1000)] * 3

    def test_chunks_are_packed_harder_as_they_age_and_removed_at_last(
        self, store: Telemetry[SyncExecutor], clock: FrozenClock
    ) -> None:
        store.append([event(number, span=f"s{number}") for number in range(2000)])
        seen = []
        for days in (1, 30, 335, 400):
            clock.advance(days * 86_400)
            removed = store.retain()
            seen.append((removed, sorted({codec for codec, _ in self._chunks(store)})))
            if not removed:
                assert numbers(store.query("s7")) == [7]
                assert store.count() == 2000
        assert seen == [(0, ["zlib"]), (0, ["zlib9"]), (0, ["lzma"]), (2000, [])]

    def test_a_chunk_that_is_half_old_is_cut(self, store: Telemetry[SyncExecutor], clock: FrozenClock) -> None:
        store.append([event(number, span=f"s{number % 10}") for number in range(1500)])
        clock.advance(86_400)
        assert store.prune((86_400 - 700) / 86_400) == 700
        assert store.count() == 800
        assert numbers(store.query(limit=2000)) == list(range(1499, 699, -1))
        assert numbers(store.query("s3", 2000)) == list(range(1493, 699, -10))

    def test_whoever_cuts_a_chunk_while_another_packs_it_harder_harms_nothing(
        self, store: Telemetry[SyncExecutor], clock: FrozenClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store.append([event(number) for number in range(1000)])
        clock.advance(40 * 86_400)
        store.retain()
        clock.advance(360 * 86_400)
        database, pack = store.executor.database, chunks.pack
        cutting, packed = threading.Event(), threading.Event()

        def slowly(texts: Any, codec: str = chunks.HOT) -> bytes:
            if codec == chunks.WARM:
                cutting.set()
                packed.wait(0.5)
            return pack(texts, codec)

        monkeypatch.setattr(chunks, "pack", slowly)
        cut = database.write(lambda tx: telemetry._prune(tx, telemetry._ago(tx, 400) + 700_000_000))
        assert cutting.wait(60)
        harder = database.write(lambda tx: telemetry._repack(tx, chunks.WARM, chunks.COLD, 365))
        harder.add_done_callback(lambda _: packed.set())
        assert (cut.result(), harder.result()) == (700, 1)
        assert (store.count(), self._chunks(store)) == (300, [("lzma", 300)])
        assert numbers(store.query(limit=1000)) == list(range(999, 699, -1))

    def test_an_export_misses_nothing_that_is_sealed_while_it_goes_on(self, store: Telemetry[SyncExecutor]) -> None:
        store.append([event(number) for number in range(1300)])
        walk = iter(store.export())
        found = [next(walk)]
        store.append([event(number) for number in range(2000, 2900)])  # seals the three hundred that were loose
        found += walk
        assert sorted(numbers(found)) == list(range(1300))

    def test_a_damaged_chunk_is_a_typed_error(self, store: Telemetry[SyncExecutor]) -> None:
        store.append([event(number) for number in range(1000)])
        store.executor.database.write(lambda tx: tx.execute(_HARM, data=b"damaged")).result()
        with pytest.raises(errors.CorruptError):
            store.query()

    def test_it_agrees_with_a_plain_list_on_any_walk(self, store: Telemetry[SyncExecutor]) -> None:
        chance, model = random.Random(7), list[TelemetryEvent]()
        for step in range(60):
            batch = [
                event(chance.randrange(5000), kind=f"k{chance.randrange(3)}", span=f"s{chance.randrange(50)}")
                for _ in range(chance.choice([1, 3, 40, 1500]))
            ]
            store.append(batch)
            model += batch
            span, kind = f"s{chance.randrange(50)}", chance.choice([None, "k1"])
            wanted = [each for each in model if each.span_id == span and kind in (None, each.event_type)]
            wanted.sort(key=lambda each: each.timestamp, reverse=True)
            found = store.query(span, 25, event_type=kind)
            assert [each.timestamp for each in found] == [each.timestamp for each in wanted[:25]], step
        assert store.count() == len(model)


class TestMemory(_Opens, InMemory, TelemetrySuite, AgeSuite):
    pass


class TestSqlite(_Opens, OnSqlite, TelemetrySuite, AgeSuite):
    def test_what_is_removed_gives_its_space_back(self, store: Telemetry[SyncExecutor]) -> None:
        path = Path(self.target)
        noise = random.Random(1)
        for at in range(0, 20_000, 1000):
            moments = [event(number).timestamp for number in range(at, at + 1000)]
            store.append([TelemetryEvent("x", now, {"noise": f"{noise.getrandbits(800):x}"}) for now in moments])
        store.close()
        full = path.stat().st_size
        again = Telemetry(SyncExecutor(open_database(path, space="telemetry")))
        assert again.prune(0) == 20_000
        again.close()
        assert full > 2_000_000
        assert path.stat().st_size < full / 10
        assert open_and_check(path) == []


class TestPostgres(_Opens, OnPostgres, TelemetrySuite, AgeSuite):
    def test_an_export_misses_no_chunk_of_a_sealer_that_commits_late(self, store: Telemetry[SyncExecutor]) -> None:
        database = store.executor.database
        store.append([event(number) for number in range(900)])
        sealed, go = threading.Event(), threading.Event()

        def slowly(tx: Tx) -> int:
            count = telemetry.seal(tx)
            telemetry.count(tx)  # what is sent is done once something is answered
            sealed.set()
            go.wait(30)
            return count

        slow = database.write(slowly)
        assert sealed.wait(30)
        other = Telemetry(SyncExecutor(open_database(self.target, space="telemetry")))
        try:
            other.append([event(number) for number in range(1000, 2000)])
            walk = iter(other.export())
            found = [next(walk)]
            go.set()
            assert slow.result() == 900
            found += walk
        finally:
            other.close()
        assert sorted(numbers(found)) == [*range(900), *range(1000, 2000)]


def open_and_check(path: Path) -> list[str]:
    database = open_database(path, space="telemetry")
    try:
        return database.backend.check()
    finally:
        database.close()


# --- chunks ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", [chunks.HOT, chunks.WARM, chunks.COLD])
def test_a_chunk_is_unpacked_as_it_was_packed(codec: str) -> None:
    texts = [chunks.line(event(number, span="é\n")).text for number in range(10)]
    assert chunks.unpack(chunks.pack(texts, codec), codec).split("\n") == texts


def test_keys_of_spans_and_traces_of_the_same_name_differ() -> None:
    assert len({chunks.key(place, "same") for place in range(4)}) == 4
    assert all(-(2**63) <= chunks.key(0, str(number)) < 2**63 for number in range(100))
