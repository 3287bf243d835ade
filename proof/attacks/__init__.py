"""Every tampering that docs/threat-model.md speaks of, done to real stores on both databases.

An attack is done to a copy of a store with something of everything in it. Then the store is verified as its owner
would, or what was tampered with is loaded, restored or checked as its reader would. What cannot be noticed is in the
matrix too, with the reason and, where there is one, with the witness that does notice.
"""

import argparse
from collections import Counter
from collections.abc import Iterator

from proof.attacks import bundles, files, history, memory, rows, skills
from proof.attacks.matrix import Attack, Row, judge
from proof.attacks.place import Lab, Place, quiet
from proof.report import Proof, Say
from tests.servers import Postgres

CLAIM = "every tampering is noticed as the threat model says, or named there as one that cannot be"


def arguments(parser: argparse._ArgumentGroup) -> None:
    """Which attacks to try."""
    parser.add_argument("--on", choices=("sqlite", "postgres"), help="one database only")
    parser.add_argument("--only", default="", metavar="WORDS", help="attacks whose area or name has these words")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="only every Nth attack (default 1: all)")


def run(given: argparse.Namespace, say: Say) -> Proof:
    """Try every attack on every database."""
    found: list[Row] = []
    for database in ("sqlite", "postgres"):
        if given.on in (None, database):
            found += _on(database, given, say)
    broken = [f"{_where(row)}: {row.got}, expected {row.expected}" for row in found if not row.holds]
    return Proof("attacks", CLAIM, given.seed, _counts(found), broken, [row.to_dict() for row in found])


def _where(row: Row) -> str:
    return f"{row.database}: {row.area}: {row.attack}"


def catalogue(lab: Lab) -> Iterator[Attack]:
    """Every attack that is possible on the lab's database."""
    yield from rows.attacks(lab.template.past)
    yield from history.attacks(lab)
    yield from files.attacks()
    yield from memory.attacks()
    yield from skills.attacks()
    yield from bundles.attacks()


def _on(database: str, given: argparse.Namespace, say: Say) -> list[Row]:
    server = Postgres() if database == "postgres" else None
    try:
        lab = Lab(server)
        try:
            return [*tried(lab, chosen(lab, given.only, given.every), say)]
        finally:
            lab.close()
    finally:
        if server is not None:
            server.stop()


def chosen(lab: Lab, only: str = "", every: int = 1) -> list[Attack]:
    """The attacks that are asked for."""
    found = [each for each in catalogue(lab) if only in f"{each.area}: {each.name}"]
    return found[::every]


def tried(lab: Lab, attacks: list[Attack], say: Say) -> Iterator[Row]:
    """Each attack on a store of its own."""
    quiet(True)
    try:
        for number, attack in enumerate(attacks, 1):
            with lab.copy() as place:
                row = judge(attack, place)
            if not row.holds:
                say(f"{_where(row)}: {row.got} by {row.found_by} ({row.detector})")
            if number % 50 == 0 or number == len(attacks):
                say(f"{lab.template.database}: {number} of {len(attacks)} attacks")
            yield row
    finally:
        quiet(False)


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


__all__ = ["Lab", "Place", "arguments", "catalogue", "chosen", "run", "tried"]
