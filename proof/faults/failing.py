"""One event of the disk fails: every write, sync, open, truncation, deletion, rename and folder of a scenario in turn.

Each fault is met by the store as it stood before the chapter it falls into. The chapter is played to its end, the store
closed, the process thrown away; then the store is opened without faults and judged.
"""

import pickle
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from proof.faults.farm import alone
from proof.faults.stage import Stage, Verdicts, judge, perform
from proof.faults.watch import FULL, watching
from proof.oracle import Oracle


@dataclass(frozen=True, slots=True)
class Fault:
    """The `at`-th event of a kind, counted through the whole scenario: the `within`-th of its chapter."""

    kind: str
    at: int
    chapter: int
    within: int


def faults(stage: Stage, kind: str) -> Iterator[Fault]:
    """Every fault of a kind that the scenario has."""
    at = 0
    for number, counts in enumerate(stage.counts):
        for within in range(1, counts["write" if kind == FULL else kind] + 1):
            at += 1
            yield Fault(kind, at, number, within)


def attempt(stage: Stage, fault: Fault) -> Verdicts:
    """Let it happen, and judge what is left."""
    with stage.set(fault.chapter, f"{fault.kind}-{fault.at}") as (place, oracle):
        before = oracle.acknowledged
        fired, odd = alone(lambda: _suffer(stage, fault, place, oracle))
        told: Oracle = pickle.loads((place / "oracle").read_bytes())
        found = judge(place, told)
    return replace(found, injected=fired, untyped=tuple(odd), acknowledged=told.acknowledged - before)


def _suffer(stage: Stage, fault: Fault, place: Path, oracle: Oracle) -> tuple[int, list[str]]:
    with watching(str(place), fault.kind, fault.within, stage.seed) as watch:
        odd = perform(place, stage.chapters[fault.chapter], oracle.hear)
    (place / "oracle").write_bytes(pickle.dumps(oracle))
    return min(1, len(watch.fired)), odd
