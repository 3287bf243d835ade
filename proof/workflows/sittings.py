"""Proofs of many rounds on both databases: some rounds in each store, so that a run may end at any time.

python -m proof kills --rounds 1000 --database postgres --seed 18 --minutes 60

A run on one database replaces the counts of that database and leaves those of the other.
"""

import argparse
import json
import random
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from harness.servers import Postgres
from holdproof import sync
from proof.report import FIGURES, Proof, Say

DATABASES: Final = ("sqlite", "postgres")
LARGEST: Final = "largest"
"""How the names of counts begin of which the largest is kept, not the sum."""

Counts = Mapping[str, int | float]


@dataclass(frozen=True)
class Place:
    """A folder of its own for one sitting, and the URL of its database unless that is a file in the folder."""

    folder: Path
    url: str | None = None

    @property
    def home(self) -> Path:
        """Where the store lives."""
        return self.folder / "home"

    def open(self) -> sync.Holdproof:
        """Open the store; the first time creates it."""
        return sync.open(self.home, self.url)


@dataclass(frozen=True)
class Plan:
    """A proof of many rounds: what is claimed, and what one sitting does, which counts or raises AssertionError."""

    name: str
    claim: str
    sitting: Callable[[Place, int, random.Random], Counts]
    rounds: int
    rounds_a_sitting: int


def arguments(parser: Any, plan: Plan) -> None:
    """How many rounds, on which database, for how long."""
    parser.add_argument(
        "--rounds", type=int, default=plan.rounds, metavar="N", help=f"on each database (default {plan.rounds:,})"
    )
    parser.add_argument("--database", choices=DATABASES, help="one database only")
    parser.add_argument("--minutes", type=float, metavar="N", help="on each database; begin no sitting after that")


def run(given: argparse.Namespace, say: Say, plan: Plan) -> Proof:
    """Hold the sittings; the counts."""
    earlier = _kept(plan.name)
    rows = {row["database"]: row for row in earlier.get("rows", ())}
    broken = {database: [line for line in earlier.get("broken", ()) if line.startswith(database)] for database in rows}
    for database in [given.database] if given.database else DATABASES:
        rows[database], broken[database] = _rows_of(given, say, plan, database)
    names = dict.fromkeys(name for row in rows.values() for name in row)
    # A database all of whose sittings failed counted nothing.
    ordered = [{name: rows[each].get(name, 0) for name in names} for each in DATABASES if each in rows]
    summed = [name for name in names if name not in ("database", "seed", "minutes") and not name.startswith(LARGEST)]
    counts = {name: sum(row[name] for row in ordered) for name in summed}
    before_s = sum(60 * row["minutes"] for row in earlier.get("rows", ()) if row is rows[row["database"]])
    lines = [line for database in rows for line in broken[database]]
    return Proof(plan.name, plan.claim, given.seed, counts, tuple(lines), tuple(ordered), before_s)


def _kept(name: str) -> dict[str, Any]:
    path = FIGURES / f"{name}.json"
    earlier: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return earlier


def _rows_of(given: argparse.Namespace, say: Say, plan: Plan, database: str) -> tuple[dict[str, Any], list[str]]:
    begin = time.monotonic()
    row: dict[str, Any] = {"database": database, "seed": given.seed, "minutes": 0, "rounds": 0, "sittings": 0}
    broken: list[str] = []
    with _places(database) as next_place:
        while row["rounds"] < given.rounds:
            if given.minutes is not None and time.monotonic() > begin + 60 * given.minutes:
                break
            rounds = min(plan.rounds_a_sitting, given.rounds - row["rounds"])
            seed = f"{plan.name} {given.seed} {database} {row['sittings']}"
            try:
                _add(row, plan.sitting(next_place(), rounds, random.Random(seed)))
            except Exception as error:
                broken.append(f"{database}, sitting {row['sittings']}: {type(error).__name__}: {str(error)[:500]}")
                say(broken[-1])
            row["rounds"] += rounds
            row["sittings"] += 1
            row["minutes"] = round((time.monotonic() - begin) / 60)
            say(f"{plan.name}: {row}")
    return row, broken


def _add(row: dict[str, Any], counts: Counts) -> None:
    for name, value in counts.items():
        row[name] = max(row.get(name, 0), value) if name.startswith(LARGEST) else row.get(name, 0) + value


@contextmanager
def _places(database: str) -> Iterator[Callable[[], Place]]:
    """Give out places, each of its own; one server has all databases of a run."""
    server = Postgres(syncs=False) if database == "postgres" else None  # processes are killed here, not machines
    with tempfile.TemporaryDirectory(prefix="holdproof-proof-") as parent:
        names: list[str] = []

        def next_place() -> Place:
            names.append(f"sitting{len(names)}")
            folder = Path(parent, names[-1])
            folder.mkdir()
            if server is None:
                return Place(folder)
            server.sql(f"CREATE DATABASE {names[-1]}")
            return Place(folder, server.url(names[-1]))

        try:
            yield next_place
        finally:
            if server is not None:
                server.stop()


__all__ = ["DATABASES", "LARGEST", "Counts", "Place", "Plan", "arguments", "run"]
