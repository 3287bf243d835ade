"""kill -9 with several processes on one home, and clocks that jump.

A process kills itself at an event of the disk that the seed has chosen; the others go on until theirs comes. What all
of them have acknowledged is there afterwards. A clock jumps by hours, forwards and backwards, before every operation;
nothing that was acknowledged may depend on it.
"""

import json
import os
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

from holdproof import sync
from holdproof.db.clock import system_clock
from proof.faults.farm import farm
from proof.faults.stage import HOME, Stage, Verdicts, judge
from proof.faults.watch import KILL, watching
from proof.scenario import chapters, play

PROCESSES = 3
_EVENTS = 2500
"""A process is killed at one of its first so many events; a scenario on a store that is there has about 3,000."""
_JUMP_H = 72


def killed(stage: Stage, number: int) -> Verdicts:
    """A round: several processes play the scenario, each under its name, until each is killed or done."""
    chance = random.Random(f"{stage.seed}/kill/{number}")
    with stage.set(chance.randrange(len(stage.counts) + 1), f"kill-{number}") as (place, oracle):
        before = oracle.acknowledged
        dooms = [(f"k{number}p{each}", chance.randint(1, _EVENTS)) for each in range(PROCESSES)]
        files = {name: place / f"{name}.said" for name, _ in dooms}
        ended = list(farm(dooms, lambda doom: _work(stage, place, files[doom[0]], *doom), PROCESSES))
        for file in files.values():
            for line in file.read_text().splitlines() if file.exists() else ():
                oracle.hear(json.loads(line))
        found = judge(place, oracle)
    deaths = sum(isinstance(answer, Exception) for _, answer in ended)
    return replace(found, injected=deaths, acknowledged=oracle.acknowledged - before)


def _work(stage: Stage, place: Path, said: Path, name: str, doom: int) -> None:
    file = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def say(line: dict[str, Any]) -> None:
        os.write(file, (json.dumps(line) + "\n").encode())

    with watching(str(place / HOME), KILL, doom, stage.seed):
        for chapter in chapters(stage.seed, name, alone=False):
            with sync.open(place / HOME) as store:
                play(chapter, store, place, say)


class Jumping:
    """A clock that is told to jump."""

    def __init__(self, chance: random.Random) -> None:
        self._chance, self._ahead, self.jumps = chance, 0, 0

    def jump(self) -> None:
        """By hours, forwards or backwards."""
        self.jumps += 1
        self._ahead = round(self._chance.uniform(-_JUMP_H, _JUMP_H) * 3_600_000_000)

    def __call__(self) -> int:
        """Microseconds since 1970."""
        return system_clock() + self._ahead


def jumped(stage: Stage, number: int) -> Verdicts:
    """A scenario under a clock that jumps before every operation; nothing may fail for it."""
    clock, failed = Jumping(random.Random(f"{stage.seed}/clock/{number}")), list[str]()
    with stage.set(0, f"clock-{number}") as (place, oracle):

        def tell(line: dict[str, Any]) -> None:
            oracle.hear(line)
            if "begun" in line:
                clock.jump()
            elif "failed" in line:
                failed.append(f"{line['failed']}: {line['error']}")

        for chapter in chapters(stage.seed, f"c{number}"):
            with sync.open(place / HOME, clock=clock) as store:
                play(chapter, store, place, tell)
        found = judge(place, oracle)
    return replace(found, injected=clock.jumps, acknowledged=oracle.acknowledged, alarms=(*found.alarms, *failed))
