"""Telemetry: events a second in batches of a thousand, and finding a span among a million events.

`100k/s` is a clock that counts a thousand events every ten milliseconds, `1 ms` one that ticks every millisecond.
`rows and index` is what one would write by hand: a row for each event with an index on its span, in one transaction a
batch, on the same engine.
"""

import itertools
import json
import os
import random
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.goals import Goal
from bench.measurement import Contestant, Meter, Options, Race, Result, progress, run_race
from holdproof.db import Migration, Tx, open_database, sql
from holdproof.executors import SyncExecutor
from holdproof.model.storage import TelemetryEvent
from holdproof.model.times import to_text
from holdproof.storage.telemetry import Telemetry

EVENTS = int(os.environ.get("HOLDPROOF_BENCH_EVENTS", "1000000"))
BATCH = 1_000
APPEND, SPAN = f"append in batches of {BATCH:,}", f"a span of {EVENTS:,} events"
RATE, TICK, HAND = "100k/s @1", "1 ms @1", "rows and index @1"

_HAND = Migration(
    "0001_hand",
    "CREATE TABLE by_hand (id INTEGER PRIMARY KEY, at TEXT NOT NULL, kind TEXT NOT NULL, span_id TEXT, trace_id TEXT,"
    " data TEXT NOT NULL); CREATE INDEX by_hand_span ON by_hand (span_id);",
)
_ADD = sql("INSERT INTO by_hand (at, kind, span_id, trace_id, data) VALUES (:at, :kind, :span_id, :trace_id, :data)")


def run(options: Options) -> list[Result]:
    """Every race that the options ask for."""
    if not options.wants("sqlite"):
        return []
    results = run_race(Race(APPEND, [_clock("100k/s", 0.01, BATCH), _by_hand(), _append()], (RATE, HAND)), options)
    if options.race in SPAN:
        with _large() as (store, spans):
            results += run_race(Race(SPAN, [_clock("1 ms", 0.001, 1), _find(store, spans)], (TICK,)), options)
    return results


def goals(options: Options) -> list[Goal]:
    """What must be reached."""
    del options
    return [
        Goal("append: at least 100,000 events/s", APPEND, "holdproof @1", RATE, 1.0),
        Goal(f"{SPAN}: at most 1 ms", SPAN, "holdproof @1", TICK, 1.0),
        Goal("append: as fast as rows with an index on the span", APPEND, "holdproof @1", HAND, 1.0, aim=True),
    ]


def _events(first: int, count: int = BATCH) -> list[TelemetryEvent]:
    """Five events a span, ten spans a trace."""
    chance = random.Random(first)
    spans = [f"{chance.getrandbits(64):016x}" for _ in range(count // 5)]
    return [
        TelemetryEvent(
            f"tool.{number % 20}",
            to_text(1_767_225_600_000_000 + (first + number) * 1000),
            {"n": first + number, "tool": "search", "ms": number % 77, "ok": True},
            "instance",
            None,
            spans[number // 5],
            f"{first:016x}{number // 50:016x}",
        )
        for number in range(count)
    ]


def _clock(name: str, step_s: float, units: int) -> Contestant:
    def sample(meter: Meter) -> None:
        meter.start()
        for tick in itertools.count(1):
            time.sleep(max(0.0, meter._begin + tick * step_s - time.perf_counter()))
            if not meter.done(units):
                return

    return Contestant(name, 1, sample)


def _append() -> Contestant:
    def sample(meter: Meter) -> None:
        batches = itertools.cycle([_events(at * BATCH) for at in range(20)])
        with _store() as store:
            meter.start()
            for batch in batches:
                store.append(batch)
                if not meter.done(BATCH):
                    return

    return Contestant("holdproof", 1, sample)


def _by_hand() -> Contestant:
    def put(tx: Tx, batch: list[TelemetryEvent]) -> None:
        rows = ((each, json.dumps(each.data)) for each in batch)
        tx.many(
            _ADD,
            (
                {"at": e.timestamp, "kind": e.event_type, "span_id": e.span_id, "trace_id": e.trace_id, "data": data}
                for e, data in rows
            ),
        )

    def sample(meter: Meter) -> None:
        batches = itertools.cycle([_events(at * BATCH) for at in range(20)])
        with tempfile.TemporaryDirectory(prefix="bench-telemetry-") as folder:
            database = open_database(Path(folder, "hand.db"), space="telemetry", migrations=[_HAND])
            meter.start()
            for batch in batches:
                database.write(lambda tx: put(tx, batch)).result()  # noqa: B023
                if not meter.done(BATCH):
                    break
            database.close()

    return Contestant("rows and index", 1, sample)


def _find(store: Telemetry[SyncExecutor], spans: list[str]) -> Contestant:
    def sample(meter: Meter) -> None:
        chance = random.Random(1)
        meter.start()
        while True:
            assert store.query(chance.choice(spans))
            if not meter.done():
                return

    return Contestant("holdproof", 1, sample)


@contextmanager
def _store() -> Iterator[Telemetry[SyncExecutor]]:
    with tempfile.TemporaryDirectory(prefix="bench-telemetry-") as folder:
        store = Telemetry(SyncExecutor(open_database(Path(folder, "telemetry.db"), space="telemetry")))
        try:
            yield store
        finally:
            store.close()


@contextmanager
def _large() -> Iterator[tuple[Telemetry[SyncExecutor], list[str]]]:
    """A store of a million events, and some of their spans."""
    spans: list[str] = []
    with _store() as store:
        for first in range(0, EVENTS, BATCH):
            progress(f"filling: {first:,} of {EVENTS:,}")
            batch = _events(first)
            spans += [str(each.span_id) for each in batch[::100]]
            store.append(batch)
        progress("")
        yield store, spans
