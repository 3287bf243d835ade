"""The power goes: after every event of a scenario in turn, and at the end of one in which a sync has failed.

A chapter is played once and every event recorded, among them what was acknowledged. The record is told to a disk that
forgets (platter.py); whatever it would have left at a point is a store that must open, verify, and hold all that was
acknowledged before that point.
"""

import pickle
import random
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from proof.faults.failing import Fault
from proof.faults.fake_disk import FakeDisk
from proof.faults.farm import alone, farm
from proof.faults.stage import Stage, Verdicts, judge, perform
from proof.faults.watch import Event, watching
from proof.oracle import Oracle

_SHARED: Final = "-shm"
"""Memory that SQLite's processes share: a file by name only, made anew after a power cut."""

Answer = tuple["Cut | Fault", Verdicts | Exception]


@dataclass(frozen=True, slots=True)
class Cut:
    """The power goes after the `at`-th event of the scenario: the `within`-th of its chapter."""

    kind: str
    at: int
    chapter: int
    within: int


def cuts(stage: Stage, wanted: range, jobs: int) -> Iterator[Answer]:
    """Cut the power after those events, counted through the whole scenario."""
    at = 0
    for number in range(len(stage.chapters)):
        events = alone(lambda: _recorded(stage, number))  # noqa: B023 (it runs here and now)
        if any(each in wanted for each in range(at, at + len(events))):
            yield from _chapter(stage, number, events, at, wanted, jobs)
        at += len(events)


def _chapter(stage: Stage, number: int, events: list[Event], at: int, wanted: range, jobs: int) -> Iterator[Answer]:
    with stage.set(number, f"cut-{number}") as (place, oracle):
        platter, before = FakeDisk(place, random.Random(stage.seed)), oracle.acknowledged

        def tasks() -> Iterator[Cut]:
            """Each task is started when it is asked for, with the disk as it is then."""
            for within, event in enumerate(events, 1):
                if event[0] == "say":
                    oracle.hear(event[1])
                else:
                    platter.hear(event)
                if at + within - 1 in wanted:
                    yield Cut("cut", at + within - 1, number, within)

        def work(cut: Cut) -> Verdicts:
            chance = random.Random(f"{stage.seed}/{cut.at}")
            found = _left(stage, platter, oracle, f"cut-{cut.at}-left", chance)
            return replace(found, injected=1, acknowledged=oracle.acknowledged - before)

        yield from farm(tasks(), work, jobs)


def _left(stage: Stage, platter: FakeDisk, oracle: Oracle, name: str, chance: random.Random) -> Verdicts:
    """Judge what the disk would have left."""
    place = stage.folder / name
    try:
        platter.cut(place, chance)
        return judge(place, oracle)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _recorded(stage: Stage, number: int) -> list[Event]:
    """Play a chapter and give its events; in the place that will be loaded as the disk before it."""
    with stage.set(number, f"cut-{number}") as (place, _):
        platter = FakeDisk(place, random.Random(stage.seed))
        with watching(str(place), record=True) as watch:
            perform(place, stage.chapters[number], watch.say)
        assert watch.events is not None
        for event in watch.events:
            if event[0] != "say":
                platter.hear(event)
        unseen = [name for name in platter.unlike(place) if not name.endswith(_SHARED)]
        assert not unseen, f"changed behind our back: {unseen}"
        return watch.events


def forgotten(stage: Stage, fault: Fault) -> Verdicts:
    """A sync fails, the store goes on as it sees fit, and when it is done the power goes."""
    with stage.set(fault.chapter, f"forgotten-{fault.at}") as (place, oracle):
        before = oracle.acknowledged
        chance = random.Random(f"{stage.seed}/forgotten/{fault.at}")
        platter = FakeDisk(place, chance)
        record = place.with_name(f"{place.name}-record")
        try:
            fired, odd = alone(lambda: _suffer(stage, fault, place, record))
            for event in pickle.loads(record.read_bytes()):
                if event[0] == "say":
                    oracle.hear(event[1])
                else:
                    platter.hear(event)
        finally:
            record.unlink(missing_ok=True)
        found = _left(stage, platter, oracle, f"forgotten-{fault.at}-left", chance)
    return replace(found, injected=fired, untyped=tuple(odd), acknowledged=oracle.acknowledged - before)


def _suffer(stage: Stage, fault: Fault, place: Path, record: Path) -> tuple[int, list[str]]:
    with watching(str(place), "sync", fault.within, stage.seed, record=True) as watch:
        odd = perform(place, stage.chapters[fault.chapter], watch.say)
    record.write_bytes(pickle.dumps(watch.events))
    return len(watch.fired), odd
