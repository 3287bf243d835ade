"""A simulation of the runtime: years of thousands of agents, with crashes, in one process and from one seed.

Agents submit flows, work in steps, take locks, spend, ask people, delegate, fail and undo; workers die in the middle
and others take up what they left; operators answer late, change, cancel. The clock jumps from one event to the next.
After every step the rows are held against rules.py, at the end against ending.py, and the whole store is verified.
"""

import argparse
from typing import Final

from proof.report import Proof, Say
from proof.simulation.simulated_store import somewhere
from proof.simulation.stage import Outcome, Size, simulate

CLAIM: Final = "Whatever agents, people, crashes and time do, no rule of the runtime is broken."
_TOLD: Final = ("steps", "flows", "crashes", "stalls", "recovered", "checks", "verifications", "violations")


def arguments(parser: "argparse._ArgumentGroup") -> None:
    """The options of this proof."""
    parser.add_argument("--agents", type=int, default=2_000, metavar="N", help="how many there are (default 2,000)")
    parser.add_argument("--steps", type=int, default=200_000, metavar="N", help="effects performed (default 200,000)")
    parser.add_argument("--days", type=float, default=730, metavar="N", help="simulated days (default 730)")


def run(given: argparse.Namespace, say: Say) -> Proof:
    """Simulate in memory, in a file that is closed and opened again, and with fewer steps on PostgreSQL."""
    say(f"simulation: seed {given.seed}")
    sizes = {
        "memory": Size(given.agents, given.steps, given.days),
        "file": Size(given.agents, given.steps // 4, given.days),
        "postgres": Size(max(20, given.agents // 10), given.steps // 20, given.days),
    }
    outcomes: list[Outcome] = []
    for place, size in sizes.items():
        with somewhere(place, given.seed) as (opening, clock):
            outcomes.append(simulate(place, opening, clock, given.seed, size, say))
    return _told(given, outcomes)


def _told(given: argparse.Namespace, outcomes: list[Outcome]) -> Proof:
    total = {kind: sum(one.counts.get(kind, 0) for one in outcomes) for kind in _TOLD}
    counts = {"agents": given.agents, "simulated days": round(sum(one.days for one in outcomes)), **total}
    kept = [
        {"days": round(one.days), **dict(sorted(one.counts.items())), "root of the log": one.root} for one in outcomes
    ]
    names = dict.fromkeys(name for each in kept for name in each)
    rows = [
        {"": name, **{one.place: each.get(name, 0) for one, each in zip(outcomes, kept, strict=True)}} for name in names
    ]
    broken = [f"{one.place}, seed {given.seed}: {line}" for one in outcomes for line in one.broken]
    return Proof("simulation", CLAIM, given.seed, counts, broken, rows)
