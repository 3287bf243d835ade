"""kill -9 inside steps, between them and inside compensations: nothing that was done is done again."""

import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from holdfast import sync
from tests.conformance.decisions import OnPostgres, OnSqlite, OnStore, sound
from tests.faults.stepper import STEPS

KILLS = max(4, int(os.environ.get("HOLDFAST_KILLS", "100")) // 25)


class Killed(OnStore):
    @pytest.mark.parametrize("fail", ["", "fail"], ids=["completed", "compensated"])
    def test_a_worker_killed_anywhere_does_nothing_twice(self, tmp_path: Path, fail: str) -> None:
        chance, world = random.Random(7), tmp_path / "world"
        world.touch()
        with self.open() as store:
            store.agents.register("trader", version="1.0.0")
            dfid = store.flows.start("trader").dfid
            for _ in range(KILLS):
                with self.worker(dfid, world, fail) as process:
                    self.attend(store, process, world, chance.uniform(0.0, 0.25))
            with self.worker(dfid, world, fail) as process:
                self.attend(store, process, world, 120)
            assert store.flows.get(dfid).status == ("COMPENSATED" if fail else "COMPLETED")
            done = [f"do {number}" for number in range(STEPS)]
            undone = [f"undo {number}" for number in reversed(range(STEPS))] if fail else []
            assert world.read_text().splitlines() == done + undone
            sound(store)

    def worker(self, dfid: str, world: Path, fail: str) -> "subprocess.Popen[str]":
        target: dict[str, Any] = self.target()
        arguments = [str(target["home"]), str(target.get("url", "")), dfid, str(world), fail]
        command = [sys.executable, "-m", "tests.faults.stepper", *arguments]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def attend(self, store: sync.Holdfast, process: "subprocess.Popen[str]", world: Path, seconds: float) -> None:
        """Answer what is asked, truthfully, until the worker ends or its time is up and it is killed."""
        assert process.stdout is not None
        process.stdout.readline()
        until = time.monotonic() + seconds
        while process.poll() is None and time.monotonic() < until:
            answer(store, world)
            time.sleep(0.01)
        process.kill()


def answer(store: sync.Holdfast, world: Path) -> None:
    """Look whether the deed was done: then that is the result; else it may be done."""
    for asked in store.escalations.pending().escalations:
        name = asked.context["step"]
        deed = name.replace("undo order", "undo").replace("order", "do")
        if deed in world.read_text().splitlines():
            store.escalations.resolve(asked.id, "APPROVED", by="auditor", proposal=deed)
        else:
            store.escalations.resolve(asked.id, "APPROVED", by="auditor")


class TestSqlite(OnSqlite, Killed):
    pass


class TestPostgres(OnPostgres, Killed):
    pass
