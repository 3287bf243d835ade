"""Mutants: guards changed one at a time; a test must notice each change.

A mutant is a source file with one small change (mutate.py): a comparison flipped, a bound moved by one, a condition
taken for true or false, a call or a raise left out, an operator of a query exchanged. The tests of its file
(targets.py) run against it, in a process of its own (trial.py); where none fails the mutant has survived, and either a
test is missing or the change changes nothing. Those of the second kind are explained in explained.txt, one a line.

`--budget-minutes` bounds the run; the seed says which mutants are tried first. Runs add up: what a run finds about a
file takes the place of what was known about it, and the rows of files it did not come to stay as they are.
"""

import argparse
import json
import random
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final, cast

from proof.mutants import targets, trial
from proof.mutants.sheet import Sheet
from proof.mutants.source_mutations import Mutant, mutants
from proof.report import FIGURES, Proof, Say

CLAIM: Final = "Whoever weakens a guard fails a test."
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
    everyone = {target: mutants(target.file, target.source()) for target in targets.TARGETS}
    names = {target.file: {mutant.name for mutant in crowd} for target, crowd in everyone.items()}
    sheet = Sheet(names, _kept(), again=given.again)
    crowd = [(target, mutant) for target in everyone if _asked(target, given.files) for mutant in everyone[target]]
    if given.again:
        crowd = [(target, mutant) for target, mutant in crowd if mutant.name in sheet.survivors]
        for _, mutant in crowd:
            if mutant.name in explained():  # these are known to survive
                sheet.note(mutant, "explained")
        crowd = [(target, mutant) for target, mutant in crowd if mutant.name in sheet.survivors]
    random.Random(given.seed).shuffle(crowd)
    crowd = crowd[: given.most or None]
    ends = time.monotonic() + 60 * given.budget_minutes
    court = trial.Court(given.at_once, {target for target, _ in crowd})
    for number, (_, mutant, found) in enumerate(court.fates(crowd, ends), start=1):
        fate = "explained" if found == "survived" and mutant.name in explained() else found
        sheet.note(mutant, fate)
        if fate == "survived":
            say(f"{number}/{len(crowd)} {fate}: {mutant.name} (line {mutant.line})")
    return Proof("mutants", CLAIM, given.seed, sheet.counts(), sheet.broken(), sheet.rows(), sheet.before_s())


def _asked(target: targets.Target, parts: Sequence[str]) -> bool:
    return not parts or any(part in target.file for part in parts)


def _kept() -> dict[str, Any]:
    path = FIGURES / "mutants.json"
    return cast(dict[str, Any], json.loads(path.read_text())) if path.exists() else {}


@cache
def explained() -> frozenset[str]:
    """The mutants that change nothing that anybody could see, by name; each line ends with why."""
    lines = _EXPLAINED.read_text(encoding="utf-8").splitlines()
    return frozenset(line.partition("  # ")[0].strip() for line in lines if line and not line.startswith("#"))


__all__ = ["Mutant", "Sheet", "arguments", "explained", "run"]
