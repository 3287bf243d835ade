"""Faults of disks, power, processes and clocks, under a whole scenario: nothing acknowledged is lost, nothing is half.

`python -m proof faults` tries every fault; `--only KIND --at N --seed S` repeats one; `--stride N` tries every N-th.
"""

import argparse
import os
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final

from proof.faults import cutting, failing, killing
from proof.faults.farm import farm
from proof.faults.stage import Stage, Verdicts, prepare, set_up
from proof.faults.watch import FULL, KILL, KINDS, WATCH
from proof.report import Proof, Say

NAME: Final = "faults"
CLAIM: Final = (
    "after any fault of disk, power, process or clock a store opens, verifies, and holds all that was acknowledged"
)
CUT, FORGOTTEN, CLOCK = "cut", "forgotten", "clock"
WHAT: Final = {
    **{kind: f"the N-th {kind} fails" for kind in KINDS},
    FULL: "no room from the N-th write on",
    FORGOTTEN: "the N-th sync fails, then the power goes",
    CUT: "the power goes after the N-th event",
    KILL: f"kill -9 in {killing.PROCESSES} processes on one home",
    CLOCK: "the clock jumps by hours before every operation",
}
_ROUNDS: Final = {KILL: 200, CLOCK: 20}

Answers = Iterable[tuple[Any, Verdicts | Exception]]


def arguments(parser: Any) -> None:
    """The options of this proof."""
    parser.add_argument("--only", choices=sorted(WHAT), action="append", help="one kind of fault; may be repeated")
    parser.add_argument("--at", type=int, metavar="N", help="only the N-th fault of a kind")
    parser.add_argument("--stride", type=int, default=1, metavar="N", help="every N-th fault only (default: every one)")
    parser.add_argument("--most", type=int, metavar="N", help="at most N or so of each kind, evenly spread")
    parser.add_argument(
        "--lying", action="store_true", help="let every sync lie: a power cut must be seen to lose much"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, metavar="N", help="how many at once")


def run(given: argparse.Namespace, say: Say) -> Proof:
    """Try them in an interpreter of its own: it takes the calls of the system over, and never gives them back."""
    say(f"faults: seed {given.seed}")
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as aside:
        return aside.submit(_run, given).result()


def _run(given: argparse.Namespace) -> Proof:
    where = Path("/dev/shm")  # a disk whose syncs cost nothing: it is us who decide what is durable
    folder = Path(tempfile.mkdtemp(prefix="holdproof-faults-", dir=where if os.access(where, os.W_OK) else None))
    try:
        prepare()
        stage = set_up(folder, given.seed)
        WATCH.lies = given.lying
        tried = [_Kind(kind, given.seed) for kind in WHAT if kind in (given.only or WHAT)]
        for kind in tried:
            kind.hear(_answers(stage, kind.kind, given))
            print(f"faults: {kind.told()}", file=sys.stderr, flush=True)
        return _proof(given.seed, tried)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _answers(stage: Stage, kind: str, given: argparse.Namespace) -> Answers:
    """Every fault of a kind that is wanted, and what became of it."""
    stride = max(given.stride, _count(stage, kind) // given.most if given.most else 1)
    wanted = range(given.at, given.at + 1) if given.at is not None else range(1, sys.maxsize, stride)
    if kind == CUT:
        return cutting.cuts(stage, wanted, given.jobs)
    if kind in _ROUNDS:
        rounds = [number for number in range(1, _ROUNDS[kind] + 1) if number in wanted]
        return farm(rounds, partial(killing.killed if kind == KILL else killing.jumped, stage), given.jobs)
    attempt: Callable[[failing.Fault], Verdicts] = partial(failing.attempt, stage)
    if kind == FORGOTTEN:
        attempt = partial(cutting.forgotten, stage)
    faults = failing.faults(stage, "sync" if kind == FORGOTTEN else kind)
    return farm((fault for fault in faults if fault.at in wanted), attempt, given.jobs)


def _count(stage: Stage, kind: str) -> int:
    """How many faults of a kind there are; of cuts, about."""
    if kind in _ROUNDS:
        return _ROUNDS[kind]
    whole: Counter[str] = sum(stage.counts, Counter())
    return whole.total() if kind == CUT else whole[{FULL: "write", FORGOTTEN: "sync"}.get(kind, kind)]


class _Kind:
    """What came of one kind of fault."""

    def __init__(self, kind: str, seed: int) -> None:
        self.kind, self.counts = kind, Counter[str]()
        self.broken: list[str] = []
        self._seed = seed

    def hear(self, answers: Answers) -> None:
        """Count, and note what did not hold, with how to repeat it."""
        for task, answer in answers:
            self.counts["tried"] += 1
            if self.counts["tried"] % 100 == 0:
                print(f"faults: {self.kind}: {self.counts['tried']:,} tried", file=sys.stderr, flush=True)
            for flaw in self._flaws(answer):
                at = task if isinstance(task, int) else task.at
                self.broken.append(f"{flaw} (python -m proof faults --only {self.kind} --at {at} --seed {self._seed})")
                print(f"faults: BROKEN: {self.broken[-1]}", file=sys.stderr, flush=True)

    def _flaws(self, answer: Verdicts | Exception) -> Iterator[str]:
        if isinstance(answer, Exception):
            self.counts["hung"] += 1
            yield f"{type(answer).__name__}: {answer}"
            return
        self.counts["injected"] += answer.injected
        self.counts["acknowledged"] += answer.acknowledged
        self.counts["undetected"] += answer.undetected
        for name in ("lost", "partial", "alarms", "untyped"):
            self.counts[name] += len(getattr(answer, name))
        yield from answer.flaws

    def row(self) -> dict[str, Any]:
        """For the table."""
        names = ("injected", "acknowledged", "lost", "partial", "undetected", "alarms", "untyped", "hung")
        return {"kind": self.kind, "what": WHAT[self.kind], **{name: self.counts[name] for name in names}}

    def told(self) -> str:
        """For whoever waits."""
        row = self.row()
        return f"{row.pop('kind')} ({row.pop('what')}): " + ", ".join(f"{count} {name}" for name, count in row.items())


def _proof(seed: int, tried: list[_Kind]) -> Proof:
    total: Counter[str] = sum((each.counts for each in tried), Counter())
    counts = {
        "faults injected": total["injected"],
        "operations acknowledged": total["acknowledged"],
        "lost": total["lost"],
        "partial": total["partial"],
        "undetected": total["undetected"],
        "false alarms": total["alarms"],
        "errors that are none of ours": total["untyped"],
        "hung": total["hung"],
    }
    broken = [line for each in tried for line in each.broken]
    return Proof(NAME, CLAIM, seed, counts, broken, [each.row() for each in tried])
