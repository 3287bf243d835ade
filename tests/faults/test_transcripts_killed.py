"""kill -9 while conversations grow: what was acknowledged is there, every turn is whole, and its document with it."""

import os
import random
from pathlib import Path

from holdproof import sync
from tests.faults.children import child, kill_after

KILLS = int(os.environ.get("HOLDPROOF_KILLS", "12"))


def _rounds(home: Path, url: str | None, rounds: int, seed: int) -> int:
    """Kill a writer again and again; how much was acknowledged."""
    chance, said = random.Random(seed), 0
    words = [str(home)] + ([url] if url else [])
    for _ in range(rounds):
        with child("transcript_writer", *words) as process:
            lines = kill_after(process, chance.uniform(0, 0.15))
        _inspect(home, url, lines)
        said += len(lines)
    return said


def _inspect(home: Path, url: str | None, lines: list[str]) -> None:
    with sync.open(home, url) as store:
        turns = {}
        for one in store.transcripts.list(prefix="chat/").items:
            items = [item.value for item in reversed(store.transcripts.list_items(one.name, limit=1000).items)]
            turns[one.name] = len(items) // 2
            whole = [[turn, who] for turn in range(turns[one.name]) for who in ("user", "agent")]
            assert items == whole, "a turn is there in part, or twice"
            assert one.state == {"turns": turns[one.name]}, "the document is not that of the last turn"
        for line in lines:
            number, turn = line.split()
            assert int(turn) < turns[f"chat/{number}"], "an acknowledged turn is lost"
        assert store.check().ok


def test_conversations_survive_kill_9_on_sqlite(tmp_path: Path) -> None:
    rounds = max(2, KILLS // 6)
    assert _rounds(tmp_path / "home", None, rounds, seed=1) > rounds


def test_conversations_survive_kill_9_on_postgres(postgres_store: tuple[str, Path]) -> None:
    url, home = postgres_store
    rounds = max(2, KILLS // 10)
    assert _rounds(home, url, rounds, seed=2) > rounds
