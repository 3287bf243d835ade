"""kill -9 at random moments: every acknowledged row is there afterwards, and no half of a pair."""

import contextlib
import os
import random
from pathlib import Path

import pytest

from harness.servers import Postgres
from holdproof.db import Database, open_database, sql
from tests.faults.children import child, kill_after
from tests.faults.writer import MIGRATIONS, pair

KILLS = int(os.environ.get("HOLDPROOF_KILLS", "15"))
PARTS = 5
"""Of a hundred kills, so that they can run side by side."""
_LEFTS = sql("SELECT id FROM lefts")
_ODD = sql(
    "SELECT count(*) FROM lefts l WHERE NOT EXISTS (SELECT 1 FROM rights r WHERE r.id = l.id)",
)


def _inspect(db: Database, acknowledged: set[str]) -> None:
    kept = {row[0] for row in db.read(lambda tx: tx.all(_LEFTS)).result()}
    assert acknowledged <= kept, f"{len(acknowledged - kept)} acknowledged pairs are lost"
    assert db.read(lambda tx: tx.one(_ODD)).result() == (0,), "half a pair was kept"
    assert db.backend.check() == []
    assert db.write(lambda tx: pair(tx, "inspector")).result()


def _rounds(target: str, rounds: int, seed: int) -> int:
    chance, acknowledged = random.Random(seed), set[str]()
    for number in range(rounds):
        with child("writer", target, f"w{number}") as process:
            acknowledged.update(kill_after(process, chance.uniform(0, 0.05)))
        db = open_database(target, migrations=MIGRATIONS)
        try:
            _inspect(db, acknowledged)
        finally:
            db.close()
    return len(acknowledged)


@pytest.mark.parametrize("seed", range(PARTS))
def test_every_acknowledged_write_survives_kill_9_on_sqlite(tmp_path: Path, seed: int) -> None:
    rounds = KILLS // PARTS
    assert _rounds(str(tmp_path / "kernel.db"), rounds, seed) > rounds


def test_every_acknowledged_write_survives_kill_9_on_postgres(empty_postgres_url: str) -> None:
    rounds = max(10, KILLS // 10)
    assert _rounds(empty_postgres_url, rounds, seed=2) > rounds


@pytest.mark.parametrize("killed", [1])
def test_killing_one_of_four_processes_leaves_the_others_writing(tmp_path: Path, killed: int) -> None:
    target = str(tmp_path / "kernel.db")
    open_database(target, migrations=MIGRATIONS).close()
    with contextlib.ExitStack() as stack:
        writers = [stack.enter_context(child("writer", target, f"w{n}")) for n in range(4)]
        acknowledged = set(kill_after(writers[0], 0.3))
        for writer in writers[killed:]:
            acknowledged.update(kill_after(writer, 0.2))
    db = open_database(target, migrations=MIGRATIONS)
    try:
        _inspect(db, acknowledged)
    finally:
        db.close()


def test_acknowledged_writes_survive_a_crash_of_the_server(postgres: Postgres, empty_postgres_url: str) -> None:
    db = open_database(empty_postgres_url, migrations=MIGRATIONS)
    try:
        for mode in ("immediate", "fast", "immediate"):
            futures = [db.write(lambda tx: pair(tx, "me")) for _ in range(300)]
            postgres.restart(mode)
            futures += [db.write(lambda tx: pair(tx, "me")) for _ in range(50)]
            _inspect(db, {future.result(60) for future in futures})
        kept = db.read(lambda tx: tx.all(_LEFTS)).result()
        assert len(kept) == 3 * 350 + 3, "nothing was done twice"
    finally:
        db.close()
