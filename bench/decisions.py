"""Decisions with all that belongs to them: the log leaf, the signed head, the runtime's own operations.

`logged unit` is the decision unit of `durable` in a real store, where the decision's row has a leaf and each group of
commits one signed head. Its ceiling writes the same statements, a constant in the place of the leaf, and has no log.
`whole decision` is composed of the runtime's operations; its ceiling replays exactly their statements. It is further
from that ceiling than the logged unit from its own: every change of state has a leaf of its own, five in all, and what
guards the statements (who may, what is legal, what is held) is not in them.
"""

from bench import ours, peers_sqlite, whole
from bench.durable import CEILING, RAW, RAW_EIGHT
from bench.goals import Goal
from bench.harness import Options, Race, Result, run_race

LOGGED, WHOLE = "logged unit", "whole decision"


def run(options: Options) -> list[Result]:
    """Every race that the options ask for."""
    results: list[Result] = []
    if options.wants("sqlite"):
        results += run_race(_logged(options), options)
        results += run_race(_whole(options), options)
    return results


def _logged(options: Options) -> Race:
    contestants = [peers_sqlite.raw("logged"), peers_sqlite.raw_each("logged"), peers_sqlite.ceiling("logged")]
    contestants += [ours.asynchronous("logged", callers, ours.on_store) for callers in options.callers]
    return Race(LOGGED, contestants, (RAW, RAW_EIGHT, CEILING))


def _whole(options: Options) -> Race:
    contestants = [whole.ceiling(options.seconds), ours.asynchronous("whole", options.crowd, ours.on_store)]
    return Race(WHOLE, contestants, (CEILING,))


def goals(options: Options) -> list[Goal]:
    """What must be reached, and what is aimed at."""
    disk, fast = options.disk, "holdfast @64"
    return [
        Goal(f"logged unit, 64 callers: 0.65 x ceiling{disk}", LOGGED, fast, CEILING, 0.65),
        Goal(f"logged unit, 64 callers: 8 x raw, a commit per statement{disk}", LOGGED, fast, RAW_EIGHT, 8),
        Goal(f"logged unit, 64 callers: 0.80 x ceiling{disk}", LOGGED, fast, CEILING, 0.80, aim=True),
        Goal(f"whole decision, 64 callers: 0.65 x ceiling{disk}", WHOLE, fast, CEILING, 0.65, aim=True),
    ]
