"""kill -9 while rows are being stamped: each row with its leaf, no leaf twice, no head beyond what is durable."""

import contextlib
import os
import random
from pathlib import Path

from holdproof import sync
from holdproof.db import sql
from holdproof.evidence import log
from tests.conformance.logs import MIGRATIONS, check
from tests.faults.children import child, kill_after

KILLS = int(os.environ.get("HOLDPROOF_KILLS", "12"))
_HANDLES = sql("SELECT leaf_id FROM things")


def _words(home: Path, url: str | None = None) -> list[str]:
    return [str(home), *([url] if url else [])]


class Memory:
    """What the killed processes had said."""

    def __init__(self) -> None:
        self.handles: set[str] = set()
        self.published = 0

    def hear(self, lines: list[str]) -> None:
        for line in lines:
            if line.startswith("head "):
                self.published = max(self.published, int(line.removeprefix("head ")))
            else:
                self.handles.add(line)

    def inspect(self, store: sync.Holdproof) -> None:
        """Acknowledged rows are there, each under the head; what was published is in the log; the audit is clean."""
        kept = {row[0] for row in store.read(lambda tx: tx.all(_HANDLES))}
        assert self.handles <= kept, f"{len(self.handles - kept)} acknowledged rows are lost"
        audited = check(store)
        assert self.published <= audited.size, "a head was shown that is not durable"
        assert store.context.log.continuity.sound
        assert len(store.read(log.head).note.signatures) == 1


def _rounds(home: Path, url: str | None, rounds: int, seed: int) -> Memory:
    chance, memory = random.Random(seed), Memory()
    for _ in range(rounds):
        with child("log_writer", *_words(home, url)) as process:
            memory.hear(kill_after(process, chance.uniform(0, 0.08)))
        with sync.open(home, url, migrations=MIGRATIONS) as store:
            memory.inspect(store)
    return memory


def test_rows_and_leaves_survive_kill_9_together_on_sqlite(tmp_path: Path) -> None:
    memory = _rounds(tmp_path / "home", None, KILLS, seed=1)
    assert len(memory.handles) > KILLS
    assert memory.published > KILLS


def test_rows_and_leaves_survive_kill_9_together_on_postgres(tmp_path: Path, postgres_url: str) -> None:
    rounds = max(8, KILLS // 4)
    memory = _rounds(tmp_path / "home", postgres_url, rounds, seed=2)
    assert len(memory.handles) > rounds


def test_when_the_sequencer_is_killed_another_goes_on(tmp_path: Path, postgres_url: str) -> None:
    """Two processes with one key: whichever sequences is killed again and again, the other never stops."""
    home, memory = tmp_path / "home", Memory()
    with child("log_writer", *_words(home, postgres_url)) as steady:
        for _ in range(max(6, KILLS // 5)):
            with child("log_writer", *_words(home, postgres_url)) as victim:
                memory.hear(kill_after(victim, 0.2))
        memory.hear(kill_after(steady, 0.1))
    with sync.open(home, postgres_url, migrations=MIGRATIONS) as store:
        memory.inspect(store)


def test_two_processes_grow_one_log_in_one_file(tmp_path: Path) -> None:
    home, memory = tmp_path / "home", Memory()
    sync.open(home, migrations=MIGRATIONS).close()
    with contextlib.ExitStack() as stack:
        writers = [stack.enter_context(child("log_writer", *_words(home))) for _ in range(2)]
        for writer in writers:
            memory.hear(kill_after(writer, 1.0))
    with sync.open(home, migrations=MIGRATIONS) as store:
        memory.inspect(store)
        assert len(memory.handles) > 512
