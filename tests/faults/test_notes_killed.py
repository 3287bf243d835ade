"""kill -9 while items of LangGraph are written: what was acknowledged is there, a batch is whole or not there."""

import os
import random
from pathlib import Path

import pytest

from holdproof import sync
from tests.faults.children import child, kill_after

pytest.importorskip("langgraph.store.base", reason="not installed: pip install langgraph-checkpoint")

KILLS = int(os.environ.get("HOLDPROOF_KILLS", "12"))


def _rounds(home: Path, url: str | None, rounds: int, seed: int) -> int:
    """Kill a writer again and again; how much was acknowledged."""
    chance, said = random.Random(seed), 0
    words = [str(home)] + ([url] if url else [])
    for _ in range(rounds):
        with child("note_writer", *words) as process:
            lines = kill_after(process, chance.uniform(0, 0.15))
        _inspect(home, url, lines)
        said += len(lines)
    return said


def _inspect(home: Path, url: str | None, lines: list[str]) -> None:
    with sync.open(home, url) as store:
        turns = {}
        for path in store.notes.paths(prefixes=[["killed"]]).items:
            pair = store.notes.search(path, vector=[1.0, 1.0]).items
            assert sorted(note.key for note in pair) == ["one", "two"], "a batch is there in part"
            assert pair[0].value == pair[1].value, "a batch is there in part"
            turns[path[1]] = pair[0].value["turn"]
        for line in lines:
            number, turn = line.split()
            assert int(turn) <= turns[number], "an acknowledged batch is lost"
        assert store.verify.run().verdict.sound


def test_items_survive_kill_9_on_sqlite(tmp_path: Path) -> None:
    rounds = max(2, KILLS // 6)
    assert _rounds(tmp_path / "home", None, rounds, seed=1) > rounds


def test_items_survive_kill_9_on_postgres(postgres_store: tuple[str, Path]) -> None:
    url, home = postgres_store
    rounds = max(1, KILLS // 12)
    assert _rounds(home, url, rounds, seed=2) > rounds
