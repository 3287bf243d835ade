"""Four processes race for the same thing, round after round (HOLDPROOF_RACES); the guards hold on both databases."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest

from harness.filling import running
from holdproof import sync
from holdproof.api import OpenFlow
from holdproof.executors import SyncExecutor
from tests.conformance.decisions import CrashError, OnPostgres, OnSqlite, OnStore
from tests.conformance.racer import Start, run
from tests.faults.children import FORKS

ROUNDS = int(os.environ.get("HOLDPROOF_RACES", "8"))
RACERS = 4


@dataclass(frozen=True, slots=True)
class Racer:
    """A process that waits for the start of each round."""

    process: BaseProcess
    pipe: Connection

    def answer(self) -> str:
        assert self.pipe.poll(90), "a racer hangs"
        return str(self.pipe.recv())


class Racers:
    """All that take part."""

    def __init__(self, racers: list[Racer]) -> None:
        self._racers = racers

    def round(self, turn: int, shares: list[str]) -> list[str]:
        """Give each its share at once, and wait for all to say what they got."""
        for racer, share in zip(self._racers, shares, strict=True):
            racer.pipe.send((str(turn), share))
        return [racer.answer() for racer in self._racers]


def _started(start: Start) -> Racer:
    ours, theirs = FORKS.Pipe()
    process = FORKS.Process(target=run, args=(start, theirs), daemon=True)
    process.start()
    theirs.close()
    return Racer(process, ours)


@contextmanager
def racers(mode: str, target: dict[str, Any], scratch: Path) -> Iterator[Racers]:
    start = Start(mode, str(target.get("home", "")), str(target.get("url", "")), str(scratch))
    everybody = [_started(start) for _ in range(RACERS)]
    try:
        assert [racer.answer() for racer in everybody] == ["ready"] * RACERS
        yield Racers(everybody)
    finally:
        for racer in everybody:
            racer.pipe.close()
            racer.process.join()
            assert racer.process.exitcode == 0


class Races(OnStore):
    def race(
        self,
        mode: str,
        store: sync.Holdproof,
        scratch: Path,
        shares: Callable[[], list[str]],
        judge: Callable[[int, list[str], list[str]], None],
    ) -> None:
        with racers(mode, self.target(), scratch) as running_ones:
            for turn in range(ROUNDS):
                given = shares()
                judge(turn, given, running_ones.round(turn, given))

    def test_capacity_is_never_exceeded(self, live: sync.Holdproof, tmp_path: Path) -> None:
        def judge(turn: int, _: list[str], got: list[str]) -> None:
            assert sorted(got) == ["0", "0", "1", "1"]
            assert sum(lock.amount for lock in live.locks.list(resource=f"r{turn}").items) == 800

        self.race("locks", live, tmp_path / "x", lambda: [running(live) for _ in range(RACERS)], judge)

    def test_waiting_processes_get_the_lock_one_after_the_other(self, live: sync.Holdproof, tmp_path: Path) -> None:
        def judge(_: int, __: list[str], got: list[str]) -> None:
            assert sorted(got) == ["1", "2", "3", "4"]

        self.race("waits", live, tmp_path / "x", lambda: [running(live) for _ in range(RACERS)], judge)

    def test_exactly_one_process_executes(self, live: sync.Holdproof, tmp_path: Path) -> None:
        executed = tmp_path / "executed"

        def judge(turn: int, _: list[str], got: list[str]) -> None:
            assert got == [f"result {turn}"] * RACERS
            assert executed.read_text().split() == [str(number) for number in range(turn + 1)]

        self.race("once", live, executed, lambda: ["-"] * RACERS, judge)

    def test_a_budget_of_three_grants_three(self, live: sync.Holdproof, tmp_path: Path) -> None:
        names = iter(range(ROUNDS))

        def shares() -> list[str]:
            name = f"a{next(names)}"
            live.agents.register(name, version="1.0.0")
            live.agents.set_budget(name, per_hour=3, on_exhausted="suspend")
            return [",".join(running(live, name) for _ in range(2)) for _ in range(RACERS)]

        def judge(turn: int, _: list[str], got: list[str]) -> None:
            assert sum(map(int, got)) == 3
            assert len(live.escalations.list(status="PENDING", agent_id=f"a{turn}").items) == 3
            assert live.agents.get(f"a{turn}").status == "SUSPENDED"

        self.race("budget", live, tmp_path / "x", shares, judge)

    def test_forty_rejections_count_forty(self, live: sync.Holdproof, tmp_path: Path) -> None:
        def judge(_: int, given: list[str], got: list[str]) -> None:
            counts = sorted(int(count) for answer in got for count in answer.strip("[]").split(","))
            assert counts == list(range(1, 41))
            assert live.retries.get(given[0]).rejection_count == 40

        self.race("rejections", live, tmp_path / "x", lambda: [running(live)] * RACERS, judge)

    def test_one_resolver_wins(self, live: sync.Holdproof, tmp_path: Path) -> None:
        def shares() -> list[str]:
            return [str(live.escalations.request(running(live), reason="?").id)] * RACERS

        def judge(_: int, given: list[str], got: list[str]) -> None:
            assert sorted(got) == ["0", "0", "0", "1"]
            assert live.escalations.get(int(given[0])).status == "APPROVED"

        self.race("resolvers", live, tmp_path / "x", shares, judge)

    def test_one_worker_runs_a_flow_again(self, live: sync.Holdproof, tmp_path: Path) -> None:
        turns, executed = iter(range(ROUNDS)), tmp_path / "executed"

        @live.flow(name="raced", agent="trader", lease_s=0.001)
        def raced(flow: OpenFlow[SyncExecutor], turn: int) -> None:
            raise CrashError

        def shares() -> list[str]:
            turn = next(turns)
            for _ in range(3):
                with pytest.raises(CrashError):
                    raced(turn)
            return [f"w{number}" for number in range(RACERS)]

        def judge(turn: int, _: list[str], got: list[str]) -> None:
            assert sum(map(int, got)) == 3
            lines = executed.read_text().splitlines()
            assert len(set(lines)) == len(lines) == 3 * (turn + 1)
            assert live.flows.list(status="RUNNING").items == []

        self.race("recoveries", live, executed, shares, judge)


class TestSqlite(OnSqlite, Races):
    pass


class TestPostgres(OnPostgres, Races):
    pass
