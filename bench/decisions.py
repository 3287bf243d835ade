"""Decisions with all that belongs to them: the log leaf, the signed head, the runtime's own operations.

`logged unit` is the decision unit of `durable` in a real store, where the decision's row has a leaf and each group of
commits one signed head. Its ceiling writes the same statements, a constant in the place of the leaf, and has no log.
`whole decision` is composed of the runtime's operations; its ceiling replays exactly their statements. It reaches about
a quarter of that: every change of state has a leaf of its own, five in all, and what guards the statements (who may,
what is legal, what is held) is not in them.
`steps` are those of flows of ten, beside DBOS with the same flows; a step of ours is written down twice, when it begins
and when it has ended, each time with a leaf. `logged units` in that race set one such unit against one of its steps.
`growth` runs whole decisions in stores that have up to a million flows, and compares what they cost.
"""

from collections.abc import Sequence
from functools import partial

from bench import decision_unit, engines, growth, own_contestants, peers_postgres, peers_sqlite, workflows
from bench.engines import Engine
from bench.fresh_stores import Place, in_a_folder, on_a_server
from bench.goals import Goal
from bench.measurement import Options, Race, Result, run_race
from bench.transactions import CEILING, RAW, RAW_EIGHT

LOGGED, WHOLE, GROWTH = "logged unit", "whole decision", "growth of the store"
STEPS_SQLITE, STEPS_POSTGRES, UNITS = "steps on SQLite", "steps on PostgreSQL", "holdproof, logged units"


def run(options: Options) -> list[Result]:
    """Every race that the options ask for."""
    results: list[Result] = []
    if options.wants("sqlite"):
        results += run_race(_logged(options), options)
        results += run_race(_whole(options), options)
        results += run_race(_steps(STEPS_SQLITE, in_a_folder, engines.on_sqlite(), options), options)
        if options.race in GROWTH:
            results += _growth(options)
    if options.wants("postgres") and options.race in STEPS_POSTGRES:
        with peers_postgres.server() as running:
            place = partial(on_a_server, running)
            results += run_race(_steps(STEPS_POSTGRES, place, engines.on_postgres(running), options), options)
    return results


def _logged(options: Options) -> Race:
    contestants = [peers_sqlite.raw("logged"), peers_sqlite.raw_each("logged"), peers_sqlite.ceiling("logged")]
    contestants += [
        own_contestants.asynchronous("logged", callers, own_contestants.on_store) for callers in options.callers
    ]
    return Race(LOGGED, contestants, (RAW, RAW_EIGHT, CEILING))


def _whole(options: Options) -> Race:
    contestants = [
        decision_unit.ceiling(options.seconds),
        own_contestants.asynchronous("whole", options.crowd, own_contestants.on_store),
    ]
    return Race(WHOLE, contestants, (CEILING,))


def _growth(options: Options) -> list[Result]:
    with growth.race(GROWTH, options.crowd) as race:
        return run_race(race, options)


def _steps(title: str, place: Place, all_engines: Sequence[Engine], options: Options) -> Race:
    callers = options.crowd
    contestants = [workflows.steps(engine, callers) for engine in all_engines]
    units = own_contestants.asynchronous("logged", callers, partial(own_contestants.on_store, place), UNITS)
    references = [each.label for each in contestants if each.name.startswith("dbos")]
    return Race(title, [*contestants, units], references)


def goals(options: Options) -> list[Goal]:
    """What must be reached, and what is aimed at."""
    disk, fast = options.disk, "holdproof @64"
    few, many = (f"{growth.name(size)} @64" for size in (growth.SIZES[0], growth.SIZES[-1]))
    return [
        Goal(f"logged unit, 64 callers: 0.65 x ceiling{disk}", LOGGED, fast, CEILING, 0.65),
        Goal(f"logged unit, 64 callers: 8 x raw, a commit per statement{disk}", LOGGED, fast, RAW_EIGHT, 8),
        Goal(f"among {growth.SIZES[-1]:,} flows: 0.80 x the rate among 1,000{disk}", GROWTH, many, few, 0.80),
        Goal(f"logged units, 64 callers: 30 x the steps of dbos{disk}", STEPS_SQLITE, f"{UNITS} @64", "dbos @64", 30),
        Goal(f"on PostgreSQL: 5 x the steps of dbos{disk}", STEPS_POSTGRES, f"{UNITS} @64", "dbos @64", 5),
        Goal(f"steps on SQLite, 64 flows: 30 x dbos{disk}", STEPS_SQLITE, fast, "dbos @64", 30),
        Goal(f"steps on PostgreSQL, 64 flows: 5 x dbos{disk}", STEPS_POSTGRES, fast, "dbos @64", 5),
        Goal(f"steps on SQLite, 64 flows: 30 x dbos, WAL{disk}", STEPS_SQLITE, fast, "dbos, WAL @64", 30, aim=True),
        Goal(f"logged unit, 64 callers: 0.80 x ceiling{disk}", LOGGED, fast, CEILING, 0.80, aim=True),
        Goal(f"whole decision, 64 callers: 0.65 x ceiling{disk}", WHOLE, fast, CEILING, 0.65, aim=True),
    ]
