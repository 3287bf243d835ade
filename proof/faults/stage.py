"""The stage of every fault: a store as it stood before a chapter, the oracle that goes with it, and the judgement."""

import importlib
import logging
import pickle
import shutil
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from holdproof import errors, sync
from holdproof.evidence import heads
from holdproof.model.verdicts import Verdict
from proof.faults import calls, vfs
from proof.faults.farm import alone
from proof.faults.watch import watching
from proof.oracle import Oracle
from proof.scenario import Chapter, chapters, described, play

HOME = "home"
_COSTLY = ("holdproof.", "numpy", "numkong", "usearch", "zstandard")


@dataclass(frozen=True, slots=True)
class Verdicts:
    """What became of one fault."""

    injected: int = 0
    """How many faults there were; the event that was to fail may not have come."""
    acknowledged: int = 0
    lost: tuple[str, ...] = ()
    partial: tuple[str, ...] = ()
    alarms: tuple[str, ...] = ()
    """What verify or an opening said although nobody has touched the store."""
    untyped: tuple[str, ...] = ()
    """Errors that are none of ours."""

    @property
    def undetected(self) -> int:
        """What is wrong with the store while verify calls it sound."""
        return 0 if self.alarms else len(self.lost) + len(self.partial)

    @property
    def flaws(self) -> tuple[str, ...]:
        """Everything that should not be."""
        return (
            *(f"lost: {each}" for each in self.lost),
            *(f"partial: {each}" for each in self.partial),
            *(f"alarm: {each}" for each in self.alarms),
            *(f"untyped: {each}" for each in self.untyped),
        )


@dataclass(slots=True)
class Stage:
    """A scenario, and for each of its chapters a store that has everything before it."""

    folder: Path
    seed: int
    chapters: list[Chapter] = field(default_factory=list)
    counts: list[Counter[str]] = field(default_factory=list)

    def template(self, number: int) -> Path:
        """The folder of a chapter's beginning."""
        return self.folder / f"chapter-{number}"

    @contextmanager
    def set(self, number: int, name: str) -> Iterator[tuple[Path, Oracle]]:
        """A copy of what stood before a chapter, gone afterwards."""
        place = self.folder / name
        shutil.copytree(self.template(number), place)
        try:
            yield place, pickle.loads((place / "oracle").read_bytes())
        finally:
            shutil.rmtree(place)


def prepare() -> None:
    """Make this process one in which disks can fail; heads are kept with every commit, for no clock to decide it."""
    vfs.install()
    calls.install()
    heads._EVERY_S = -1.0
    logging.disable()


def set_up(folder: Path, seed: int) -> Stage:
    """Play the scenario once without faults: the stage, and how many events of each kind a chapter has."""
    stage = Stage(folder, seed, chapters(seed, restores=True))
    place = folder / "played"
    place.mkdir(parents=True)
    (place / "oracle").write_bytes(pickle.dumps(Oracle()))
    for number, chapter in enumerate(stage.chapters):
        shutil.copytree(place, stage.template(number))
        counts, modules = alone(lambda: _first(place, chapter))  # noqa: B023 (it runs here and now)
        stage.counts.append(counts)
        for module in modules:  # or every process to come would have to load them anew
            importlib.import_module(module)
    shutil.copytree(place, stage.template(len(stage.chapters)))
    return stage


def _first(place: Path, chapter: Chapter) -> tuple[Counter[str], list[str]]:
    oracle: Oracle = pickle.loads((place / "oracle").read_bytes())
    with watching(str(place)) as watch, sync.open(place / HOME) as store:
        failed = play(chapter, store, place, oracle.hear)
    assert failed == 0, f"{failed} operations of {chapter.name} fail without a fault"
    counts = Counter(watch.counts)
    (place / "oracle").write_bytes(pickle.dumps(oracle))
    return counts, [name for name in sys.modules if name.startswith(_COSTLY)]


def perform(place: Path, chapter: Chapter, tell: Any) -> list[str]:
    """Open, play, close, whatever happens; errors that are none of ours."""
    odd: list[str] = []

    def hear(line: dict[str, Any]) -> None:
        tell(line)
        if not line.get("typed", True):
            odd.append(line["error"])

    try:
        with sync.open(place / HOME) as store:
            play(chapter, store, place, hear)
    except errors.HoldproofError:
        pass
    except Exception as error:
        odd.append(described(error))
    return odd


def judge(place: Path, oracle: Oracle) -> Verdicts:
    """Reopen a store after a fault: is all there that must be, is nothing half, does it verify, does it go on?"""
    oracle.cut()
    try:
        with sync.open(place / HOME) as store:
            report = store.verify.run(full=True)
            alarms = (
                [] if report.verdict is Verdict.VALID else [f"{each.verdict}: {each.what}" for each in report.findings]
            )
            found = oracle.check(store)
            if not alarms:
                store.objects.put("after the fault", type="t", content="it goes on")
    except Exception as error:
        return Verdicts(alarms=(described(error),))
    return Verdicts(acknowledged=oracle.acknowledged, lost=found.lost, partial=found.partial, alarms=tuple(alarms))
