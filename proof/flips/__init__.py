"""Random damage to every file of a store: each is noticed, or proven to change nothing.

Ten thousand times a bit, a byte, a sector or the end of some file is damaged. What would notice is asked directly, in a
warm process: the integrity check that `verify` begins with, a load, a restore, a check. The whole of `verify --full`
runs wherever that finds nothing, for every header, and for a share of the rest. What nobody notices has to answer as
before: rows, searches, heads and keys are compared with those of the undamaged store.
"""

import argparse
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from proof.attacks.attacked_store import quiet
from proof.flips import checks, damage
from proof.flips.checks import SILENT, Bench, Kind
from proof.flips.subject import Subject
from proof.report import Proof, Say

CLAIM = "damage to any file of a store is noticed, or changes no answer"


def _in(folder: str, *patterns: str) -> Callable[[Subject], list[Path]]:
    """Files of one of the subject's folders, by pattern; none that are empty."""

    def find(subject: Subject) -> list[Path]:
        base: Path = getattr(subject, folder)
        found = {path for pattern in patterns for path in base.glob(pattern)}
        return sorted(path for path in found if path.is_file() and path.stat().st_size)

    return find


KINDS: Final = (
    Kind("kernel.db", _in("home", "kernel.db"), 330, checks.database),
    Kind("membrane.db", _in("home", "membrane.db"), 140, checks.database),
    Kind("telemetry.db", _in("home", "telemetry.db"), 60, checks.database),
    Kind("write-ahead log", _in("live", "*.db-wal"), 25, checks.wal),
    Kind("shared memory of the log", _in("live", "*.db-shm"), 10, checks.wal),
    Kind("blob", _in("home", "blobs/**/*"), 60, checks.blob),
    Kind("sidecar of vectors", _in("home", "cache/*"), 20, checks.sidecar),
    Kind("image", _in("home", "images/main/*.car", "images/main/*.json"), 50, checks.image),
    Kind("index of an image", _in("home", "images/main/*.idx"), 10, checks.image),
    Kind("archive", _in("elsewhere", "memory.car"), 30, checks.archive),
    Kind("sealed archive", _in("elsewhere", "sealed.car"), 10, checks.archive),
    Kind("backup", _in("elsewhere", "backup/**/*"), 40, checks.backup),
    Kind("bundle", _in("elsewhere", "*.zip"), 50, checks.bundle),
    Kind("trust file", _in("elsewhere", "trust.json"), 20, checks.trust),
    Kind("DBOM file", _in("home", "dboms/*.json"), 10, checks.dbom),
    Kind("skill", lambda subject: [subject.skill], 10, checks.skill),
    Kind("private key", _in("home", "config/keys/*.pem"), 40, checks.key),
    Kind("kept heads", _in("home", "state/heads.jsonl"), 20, checks.heads),
    Kind("kept erasures", _in("home", "state/erasures.jsonl"), 20, checks.erasures),
    Kind("memory of a witness", _in("elsewhere", "witness.json"), 15, checks.witness),
    Kind("flag of a lockdown", _in("home", "state/lockdowns/*/lockdown.json"), 10, checks.flag),
    Kind("mark of DBOM files", _in("home", "state/dboms/filed.json"), 5, checks.mark),
    Kind("settings", _in("home", "config/config.yaml"), 10, checks.settings),
    Kind("evidence of a lockdown", _in("home", "state/lockdowns/*/*.note"), 5, checks.evidence),
)


def arguments(parser: argparse._ArgumentGroup) -> None:
    """How many, and of what."""
    parser.add_argument("--flips", type=int, default=10_000, metavar="N", help="how often a file is damaged")
    parser.add_argument("--kind", default="", metavar="WORDS", help="only files whose kind has these words")
    parser.add_argument("--flip", type=int, default=None, metavar="N", help="only the Nth, to see it once more")


def run(given: argparse.Namespace, say: Say) -> Proof:
    """Damage, ask, put back; as often as is asked for."""
    numbers = [given.flip] if given.flip is not None else range(given.flips)
    folder = Path(tempfile.mkdtemp(prefix="holdproof-flips-"))
    try:
        found = flips(folder, given.seed, numbers, say, kind=given.kind)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    tally = Counter(each["outcome"] for each in found)
    broken = [
        f"{each['kind']}: {each['file']}: {each['damage']}: {each['why']} (--seed {given.seed} --flip {each['flip']})"
        for each in found
        if each["outcome"] == SILENT
    ]
    counts = {"flips": len(found), **{name: tally[name] for name in ("detected", "harmless", "by design", SILENT)}}
    return Proof("flips", CLAIM, given.seed, counts, broken[:100], _table(found))


def flips(folder: Path, seed: int, numbers: "range | list[int]", say: Say, *, kind: str = "") -> list[dict[str, Any]]:
    """Each flip by its number, which with the seed says everything about it."""
    subject = Subject(folder / "subject")
    bench = Bench(subject, folder / "scratch")
    kinds = [each for each in KINDS if kind in each.name and each.paths(subject)]
    found = []
    quiet(True)
    try:
        for done, number in enumerate(numbers, 1):
            found.append(_flip(bench, kinds, seed, number))
            if done % 500 == 0:
                say(f"{done} of {len(numbers)} flips, {sum(each['outcome'] == SILENT for each in found)} silent")
    finally:
        quiet(False)
    return found


def _flip(bench: Bench, kinds: list[Kind], seed: int, number: int) -> dict[str, Any]:
    dice = random.Random(f"{seed}/{number}")  # the same draw whoever runs it
    [kind] = dice.choices(kinds, [each.share for each in kinds])
    path = dice.choice(kind.paths(bench.subject))
    what = damage.drawn(dice, bench.once(str(path), path.read_bytes))
    bench.number = number
    told = checks.told(kind, bench, path, what)
    return {
        "flip": number,
        "kind": kind.name,
        "file": path.name,
        "damage": str(what),
        "outcome": told.outcome,
        "why": told.why,
    }


def _table(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """How often each came out how, for each kind of file, with the first flip that did."""
    seen = Counter((each["kind"], each["outcome"], each["why"]) for each in found)
    first = {(each["kind"], each["outcome"], each["why"]): each for each in reversed(found)}
    order = [kind.name for kind in KINDS]
    return [
        {"kind": kind, "outcome": outcome, "why": why, "flips": count, "first": first[kind, outcome, why]["flip"]}
        for (kind, outcome, why), count in sorted(seen.items(), key=lambda each: (order.index(each[0][0]), each[0][1:]))
    ]
