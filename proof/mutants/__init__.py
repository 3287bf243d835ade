"""Mutants: guards changed one at a time; a test must notice each change.

A mutant is a source file with one small change (mutate.py): a comparison flipped, a bound moved by one, a condition
taken for true or false, a call or a raise left out, an operator of a query exchanged. The tests of its file
(targets.py) run against it, in a process of its own (trial.py); where none fails the mutant has survived, and either a
test is missing or the change changes nothing. Those of the second kind are explained in explained.txt, one a line.

`--budget-minutes` bounds the run; the seed says which mutants are tried first.
"""

import argparse
import json
import random
import time
from collections import Counter
from pathlib import Path
from typing import Any, Final

from proof.mutants import targets, trial
from proof.mutants.mutate import Mutant, mutants
from proof.report import FIGURES, Proof, Say

CLAIM: Final = "Whoever weakens a guard fails a test."
_FATES: Final = ("killed", "timed out", "explained", "survived")
_EXPLAINED: Final = Path(__file__).with_name("explained.txt")


def arguments(parser: argparse._ArgumentGroup) -> None:
    """The options of this proof."""
    parser.add_argument(
        "--files", nargs="*", default=[], metavar="PART", help="only files whose path holds one of these"
    )
    parser.add_argument("--budget-minutes", type=float, default=60.0, metavar="N", help="when to stop (default 60)")
    parser.add_argument("--again", action="store_true", help="only what survived the last time; the rest stays counted")
    parser.add_argument("--at-once", type=int, default=2, metavar="N", help="how many at a time (default 2)")
    parser.add_argument("--most", type=int, default=0, metavar="N", help="at most so many mutants; 0 for all")


def run(given: argparse.Namespace, say: Say) -> Proof:
    """Try as many mutants as there is time for, or those that survived the last time."""
    before = json.loads((FIGURES / "mutants.json").read_text()) if given.again else None
    chosen = [each for each in targets.TARGETS if not given.files or any(part in each.file for part in given.files)]
    crowd = [(target, mutant) for target in chosen for mutant in mutants(target.file, target.source())]
    random.Random(given.seed).shuffle(crowd)
    fates: Counter[tuple[str, str]] = Counter()
    there, known = len(crowd), explained()
    if before is not None:
        left = {line.rpartition(" (line ")[0] for line in before["broken"]}
        crowd, there = [each for each in crowd if each[1].name in left], before["counts"]["mutants"]
        for row in before["rows"]:
            fates.update({(row["file"], fate): row[fate] for fate in _FATES if fate != "survived"})
        fates.update((target.file, "explained") for target, mutant in crowd if mutant.name in known)
        crowd = [each for each in crowd if each[1].name not in known]  # these are known to survive
    crowd = crowd[: given.most or None]
    ends = time.monotonic() + 60 * given.budget_minutes
    broken: list[str] = []
    for target, mutant, found in trial.Court(given.at_once).fates(crowd, ends):
        fate = "explained" if found == "survived" and mutant.name in known else found
        fates[target.file, fate] += 1
        if fate == "survived":
            broken.append(f"{mutant.name} (line {mutant.line}) fails no test")
            say(f"{sum(fates.values())}/{len(crowd)} {fate}: {mutant.name} (line {mutant.line})")
    return Proof("mutants", CLAIM, given.seed, _counts(fates, there), tuple(sorted(broken)), _rows(fates))


def explained() -> frozenset[str]:
    """The mutants that change nothing that anybody could see, by name; each line ends with why."""
    lines = _EXPLAINED.read_text(encoding="utf-8").splitlines()
    return frozenset(line.partition("  # ")[0].strip() for line in lines if line and not line.startswith("#"))


def _counts(fates: Counter[tuple[str, str]], there: int) -> dict[str, int]:
    def of(*wanted: str) -> int:
        return sum(count for (_, fate), count in fates.items() if fate in wanted)

    return {
        "files": len({file for file, _ in fates}),
        "mutants": there,
        "tried": sum(fates.values()),
        "killed": of("killed", "timed out"),
        "of these by a time limit": of("timed out"),
        "explained": of("explained"),
        "survived": of("survived"),
    }


def _rows(fates: Counter[tuple[str, str]]) -> tuple[dict[str, Any], ...]:
    def row(file: str) -> dict[str, Any]:
        found = {fate: fates[file, fate] for fate in _FATES}
        return {"file": file, "tried": sum(found.values()), **found}

    return tuple(row(file) for file in sorted({file for file, _ in fates}))


__all__ = ["Mutant", "arguments", "explained", "run"]
