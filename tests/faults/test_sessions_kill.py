"""kill -9 while sessions run: what was acknowledged is there, and none is there without its start or its end."""

import os
import random
from pathlib import Path

from holdproof.db import open_database
from holdproof.executors import SyncExecutor
from holdproof.storage.sessions import Sessions
from tests.faults.children import child, kill_after

KILLS = int(os.environ.get("HOLDPROOF_KILLS", "12"))


def _rounds(target: str, rounds: int, seed: int) -> int:
    """Kill a writer again and again; how much was acknowledged."""
    chance, said = random.Random(seed), 0
    for _ in range(rounds):
        with child("session_writer", target) as process:
            lines = kill_after(process, chance.uniform(0, 0.15))
        _inspect(target, lines)
        said += len(lines)
    return said


def _inspect(target: str, lines: list[str]) -> None:
    database = open_database(target, space="membrane")
    sessions = Sessions(SyncExecutor(database))
    try:
        for line in lines:
            kind, id, *number = line.split()
            told = sessions.timeline(id)
            types = [event.event_type for event in told.events]
            assert types[0] == "session_start"
            steps = [event.message for event in told.events if event.event_type == "step"]
            assert steps == [str(step) for step in range(len(steps))], "a session is there in part, or twice"
            assert (types[-1] == "session_end") == told.session.ended
            assert types.count("session_end") == told.session.ended
            assert not number or int(number[0]) < len(steps), "an acknowledged event is lost"
            assert kind != "end" or told.session.tokens_used == len(steps), "an acknowledged end is lost"
        assert database.backend.check() == []
    finally:
        database.close()


def test_sessions_survive_kill_9_on_sqlite(tmp_path: Path) -> None:
    rounds = max(3, KILLS // 6)
    assert _rounds(str(tmp_path / "membrane.db"), rounds, seed=1) > rounds


def test_sessions_survive_kill_9_on_postgres(postgres_url: str) -> None:
    rounds = max(3, KILLS // 10)
    assert _rounds(postgres_url, rounds, seed=2) > rounds
