"""kill -9 inside steps, between them and inside compensations: nothing that was done is done again."""

import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from holdproof import sync
from tests.conformance.decisions import OnPostgres, OnSqlite, OnStore, sound
from tests.faults.stepper import STEPS

KILLS = max(2, int(os.environ.get("HOLDPROOF_KILLS", "100")) // 50)
DFID = "killed"

Workers = list["subprocess.Popen[str]"]


class Killed(OnStore):
    @pytest.mark.parametrize("fail", ["", "fail"], ids=["completed", "compensated"])
    @pytest.mark.parametrize("how", ["block", "decision"])
    def test_a_worker_killed_anywhere_does_nothing_twice(self, tmp_path: Path, how: str, fail: str) -> None:
        chance, world = random.Random(7), tmp_path / "world"
        world.touch()
        with self.open() as store:
            store.agents.register("trader", version="1.0.0")
            if how == "block":
                store.flows.start("trader", flow_id=DFID)
            for _ in range(KILLS):
                self.attend(store, world, [self.worker(how, world, fail)], chance.uniform(0.0, 0.25))
            self.attend(store, world, [self.worker(how, world, fail)], 120)
            self.judge(store, world, fail)

    @pytest.mark.parametrize(
        ("die", "asked"),
        [("do 3", ["order 3"]), ("between 3", []), ("undo 3", ["undo order 3"])],
        ids=["inside a step", "between steps", "inside a compensation"],
    )
    def test_two_workers_recover_a_flow_and_one_of_them_ends_it(
        self, tmp_path: Path, die: str, asked: list[str]
    ) -> None:
        world, fail = tmp_path / "world", "fail" if die.startswith("undo") else ""
        with self.open() as store:
            store.agents.register("trader", version="1.0.0")
            [dead] = self.attend(store, world, [self.worker("decision", world, fail, die)], 120)
            assert dead.returncode == -9
            assert store.escalations.list(status="PENDING").items == []
            others = [self.worker("decision", world, fail) for _ in range(2)]
            seen: list[str] = []
            self.attend(store, world, others, 120, seen)
            assert (seen, [other.returncode for other in others]) == (asked, [0, 0])
            self.judge(store, world, fail)

    def judge(self, store: sync.Holdproof, world: Path, fail: str) -> None:
        """Each deed was done once, in order, and undone once, in reverse order, if it was to be."""
        assert store.flows.get(DFID).status == ("COMPENSATED" if fail else "COMPLETED")
        done = [f"do {number}" for number in range(STEPS)]
        undone = [f"undo {number}" for number in reversed(range(STEPS))] if fail else []
        assert world.read_text().splitlines() == done + undone
        sound(store)

    def worker(self, how: str, world: Path, fail: str, die: str = "") -> "subprocess.Popen[str]":
        target: dict[str, Any] = self.target()
        arguments = [how, str(target["home"]), str(target.get("url", "")), DFID, str(world), fail, die]
        command = [sys.executable, "-m", "tests.faults.stepper", *arguments]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def attend(
        self, store: sync.Holdproof, world: Path, workers: Workers, seconds: float, seen: list[str] | None = None
    ) -> Workers:
        """Answer what is asked, truthfully, until the workers end or their time is up and they are killed."""
        for process in workers:
            assert process.stdout is not None
            process.stdout.readline()
        until = time.monotonic() + seconds
        while any(process.poll() is None for process in workers) and time.monotonic() < until:
            names = answer(store, world)
            if seen is not None:
                seen += names
            time.sleep(0.01)
        for process in workers:
            process.kill()
            process.communicate()
        return workers


def answer(store: sync.Holdproof, world: Path) -> list[str]:
    """Look whether the deed was done: then that is the result; else it may be done. Which steps were asked about."""
    names = []
    for asked in store.escalations.list(status="PENDING").items:
        names.append(name := asked.context["step"])
        deed = name.replace("undo order", "undo").replace("order", "do")
        done = deed in world.read_text().splitlines()
        answer = "happened" if done else "did_not_happen"
        store.escalations.resolve(asked.id, answer, by="auditor", result=deed if done else None)
    return names


class TestSqlite(OnSqlite, Killed):
    pass


class TestPostgres(OnPostgres, Killed):
    pass
