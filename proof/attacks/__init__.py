"""Every tampering that docs/threat-model.md speaks of, done to real stores on both databases.

An attack is done to a copy of a store with something of everything in it. Then the store is verified as its owner
would, or what was tampered with is loaded, restored or checked as its reader would. What cannot be noticed is in the
matrix too, with the reason and, where there is one, with the witness that does notice.
"""

import argparse
import json
import multiprocessing
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final

from harness.servers import Postgres
from proof.attacks import bundles, callers, files, history, memory, rows, skills, substitution
from proof.attacks.attacked_store import Lab, Place, quiet
from proof.attacks.matrix import Attack, Row, judge, together
from proof.report import RUNS, Proof, Say

DATABASES: Final = ("sqlite", "postgres")
MATRIX: Final = RUNS / "attack-matrix.json"
CLAIM: Final = "every tampering is noticed as the threat model says, or named there as one that cannot be"


def arguments(parser: argparse._ArgumentGroup) -> None:
    """Which attacks to try."""
    parser.add_argument("--on", choices=DATABASES, help="one database only")
    parser.add_argument("--only", default="", metavar="WORDS", help="attacks whose area or name has these words")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="only every Nth attack (default 1: all)")
    parser.add_argument("--apart", action="store_true", help="no two attacks on one store; takes much longer")
    parser.add_argument("--keep", type=Path, metavar="FILE", help="rows as they come; what is there is not done again")


def run(given: argparse.Namespace, say: Say) -> Proof:
    """Try every attack, on both databases at once."""
    databases = [name for name in DATABASES if given.on in (None, name)]
    say(f"attacks on {' and '.join(databases)}")
    with ProcessPoolExecutor(len(databases), multiprocessing.get_context("spawn")) as pool:
        options = {"keep": given.keep, "apart": given.apart}
        asked = [pool.submit(on, database, given.only, given.every, **options) for database in databases]
        found = [row for each in asked for row in each.result()]
    if given.on is None and not given.only and given.every == 1:
        write(found)
    return summed(found, given.seed)


def write(found: list[Row], where: Path = MATRIX) -> None:
    """Write the whole matrix, a row on a line; the summary of it is what git keeps."""
    where.parent.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(json.dumps(row.to_dict(), ensure_ascii=False) for row in found)
    where.write_text(f"[\n{lines}\n]\n")


def summed(found: list[Row], seed: int) -> Proof:
    """The matrix, counted: the same kind of attack with the same outcome is one row."""
    broken = [f"{_where(row)}: {row.got}, expected {row.expected}" for row in found if not row.holds]
    return Proof("attacks", CLAIM, seed, _counts(found), broken, _table(found))


def _table(found: list[Row]) -> list[dict[str, Any]]:
    seen: defaultdict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in found:
        word, name = row.got.split()[0], row.attack if row.by_design else ""
        seen[row.area, row.attacker_has, name, word, row.exit_code, row.found_by, row.locked, row.by_design].append(row)
    names = ("area", "attacker has", "attack", "verdict", "exit code", "noticed by", "writes refused", "by design")
    return [
        {
            **dict(zip(names, key, strict=True)),
            "attack": key[2] or f"{len({row.attack for row in same})} attacks, such as: {same[0].attack}",
            **{database: sum(row.database == database for row in same) for database in DATABASES},
        }
        for key, same in seen.items()
    ]


def _where(row: Row) -> str:
    return f"{row.database}: {row.area}: {row.attack}"


def catalogue(lab: Lab) -> Iterator[Attack]:
    """Every attack that is possible on the lab's database."""
    yield from rows.attacks(lab.template.past)
    yield from rows.declared(lab.template.past)
    yield from history.attacks(lab)
    yield from substitution.attacks(lab)
    yield from files.attacks(lab.template.database)
    yield from memory.attacks()
    yield from skills.attacks()
    yield from bundles.attacks()
    yield from callers.attacks(lab)


def on(database: str, only: str = "", every: int = 1, keep: Path | None = None, *, apart: bool = False) -> list[Row]:
    """The attacks that are asked for, on one database; those whose row is kept are not tried again."""
    found = {_where(row): row for row in kept(keep) if row.database == database}
    server = Postgres(syncs=False) if database == "postgres" else None
    try:
        lab = Lab(server)
        try:
            left = [each for each in chosen(lab, only, every) if f"{database}: {each.area}: {each.name}" not in found]
            for row in tried(lab, left, _say, apart=apart):
                found[_where(row)] = row
                if keep is not None:
                    with keep.open("a") as file:
                        file.write(json.dumps(row.to_dict()) + "\n")
            return [*found.values()]
        finally:
            lab.close()
    finally:
        if server is not None:
            server.stop()


def kept(path: Path | None) -> list[Row]:
    """The rows of an earlier run."""
    if path is None or not path.exists():
        return []
    return [Row(**json.loads(line)) for line in path.read_text().splitlines()]


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def chosen(lab: Lab, only: str = "", every: int = 1) -> list[Attack]:
    """The attacks that are asked for."""
    found = [each for each in catalogue(lab) if only in f"{each.area}: {each.name}"]
    return found[::every]


def tried(lab: Lab, attacks: list[Attack], say: Say, *, apart: bool = True) -> Iterator[Row]:
    """Each attack on a store of its own; or those on different tables at once, each named by a finding of its own."""
    quiet(True)
    done = 0
    try:
        for group in _groups(attacks, apart):
            for row in _try(lab, group):
                if not row.holds:
                    say(f"{_where(row)}: {row.got} by {row.found_by} ({row.detector})")
                yield row
            done += len(group)
            if done % 50 < len(group) or done == len(attacks):
                say(f"{lab.template.database}: {done} of {len(attacks)} attacks")
    finally:
        quiet(False)


def _groups(attacks: list[Attack], apart: bool) -> Iterator[list[Attack]]:
    """Attacks to be done at once: no two of them on one table, and none that has to go unnoticed."""
    tables: defaultdict[str, list[Attack]] = defaultdict(list)
    alone = []
    for attack in attacks:
        if not apart and attack.area == rows.AREA and attack.names:
            tables[attack.names].append(attack)
        else:
            alone.append(attack)
    for group in zip_longest(*tables.values()):
        yield [attack for attack in group if attack is not None]
    yield from ([attack] for attack in alone)


def _try(lab: Lab, group: list[Attack]) -> Iterator[Row]:
    left = group
    if len(group) > 1:
        with lab.copy() as place:
            found = together(group, place)
        yield from (row for row in found if row is not None)
        left = [attack for attack, row in zip(group, found, strict=True) if row is None]
    for attack in left:
        with lab.copy(shared=attack.shares) as place:
            yield judge(attack, place)


def _counts(found: list[Row]) -> dict[str, int]:
    seen = Counter(row.found_by for row in found if not row.by_design)
    return {
        "attacks": len(found),
        **{f"on {name}": count for name, count in sorted(Counter(row.database for row in found).items())},
        **{f"noticed by {name}": count for name, count in sorted(seen.items())},
        "writes refused afterwards": sum(row.locked for row in found),
        "cannot be noticed there, by design": sum(bool(row.by_design) for row in found),
        "otherwise than expected": sum(not row.holds for row in found),
    }


__all__ = ["Lab", "Place", "arguments", "catalogue", "chosen", "on", "run", "together", "tried"]
