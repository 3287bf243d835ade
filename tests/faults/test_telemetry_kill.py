"""kill -9 while telemetry is appended and sealed: acknowledged batches are there, each whole or not at all."""

import os
import random
from collections import Counter
from pathlib import Path

from holdproof.db import open_database
from holdproof.executors import SyncExecutor
from holdproof.storage.telemetry import Telemetry
from tests.faults.children import child, kill_after

KILLS = int(os.environ.get("HOLDPROOF_KILLS", "12"))


def _rounds(target: str, rounds: int, seed: int) -> int:
    """Kill a writer again and again; how many batches were acknowledged."""
    chance, said = random.Random(seed), dict[str, int]()
    for _ in range(rounds):
        with child("telemetry_writer", target) as process:
            lines = kill_after(process, chance.uniform(0, 0.15))
        said |= {batch: int(size) for batch, size in (line.split() for line in lines)}
        _inspect(target, said)
    return len(said)


def _inspect(target: str, said: dict[str, int]) -> None:
    database = open_database(target, space="telemetry")
    store = Telemetry(SyncExecutor(database))
    try:
        events = store.query(limit=10_000_000)
        assert store.count() == len(events)
        found = Counter(each.span_id for each in events)
        sizes = {each.span_id: each.data["of"] for each in events}
        assert dict(found) == sizes, "a batch is there in part, or twice"
        assert said.items() <= found.items(), "an acknowledged batch is lost"
        some = next(iter(said), None)
        assert some is None or sorted(each.data["n"] for each in store.query(some, 2000)) == list(range(said[some]))
        assert database.backend.check() == []
    finally:
        store.close()


def test_telemetry_survives_kill_9_on_sqlite(tmp_path: Path) -> None:
    rounds = max(4, KILLS // 3)
    assert _rounds(str(tmp_path / "telemetry.db"), rounds, seed=1) > rounds


def test_telemetry_survives_kill_9_on_postgres(postgres_url: str) -> None:
    rounds = max(3, KILLS // 6)
    assert _rounds(postgres_url, rounds, seed=2) > 0
