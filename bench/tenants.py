"""Eight processes on one store, and each on a tenant of its own: what a log for each of them is worth.

Both write whole decisions with the same number of callers, in turns, on the same server. The client shares the
machine with the server: the ratio says less than it would beside more cores.
"""

from contextlib import ExitStack
from functools import partial

from bench import decision_unit, peers_postgres, processes
from bench.fresh_stores import Place, Where, in_a_folder, on_a_server
from bench.goals import Goal
from bench.measurement import Options, Result, TooFewUnitsError, compare_with, long_enough, progress, rounds
from holdproof import sync
from holdproof.store.tenants.places import Parent, resolve

COUNT = 8
_ONE, _MANY = "holdproof, one log", "holdproof, a log for each"
RATE = "decisions of eight processes on {}"


def run(options: Options) -> list[Result]:
    """Every race that the options ask for."""
    results: list[Result] = []
    if options.wants("sqlite"):
        results += _race("SQLite", in_a_folder, options)
    if options.wants("postgres"):
        with peers_postgres.server() as running:
            results += _race("PostgreSQL", partial(on_a_server, running), options)
    return results


def goals(options: Options) -> list[Goal]:
    """Eight logs of tenants get five times as much done as one, where there are cores for it."""
    return [
        Goal(
            f"eight tenants' logs on {database} get five times as much done as one{options.disk}",
            RATE.format(database),
            f"{_MANY} @{COUNT}",
            f"{_ONE} @{COUNT}",
            5.0,
            aim=True,
        )
        for database in ("SQLite", "PostgreSQL")
    ]


def _race(database: str, place: Place, options: Options) -> list[Result]:
    title = RATE.format(database)
    if options.race not in title:
        return []
    rates: dict[str, list[float]] = {_ONE: [], _MANY: []}
    for turn in rounds(options):
        for name, values in rates.items():
            progress(f"{title}, round {turn + 1} of {options.repeats}: {name}")
            values.append(long_enough(partial(_sample, place, divided=name == _MANY), options.seconds))
    progress("")
    own = [Result(title, name, COUNT, tuple(values)) for name, values in rates.items()]
    return options.journal.add(compare_with(own, title, [f"{_ONE} @{COUNT}"]))


def _sample(place: Place, seconds: float, *, divided: bool) -> float:
    """Return how many decisions a second all processes made."""
    with place() as where, ExitStack() as stack:
        places = _tenants(where) if divided else [where] * COUNT
        for each in dict.fromkeys(places):
            with decision_unit.opened(*each):
                pass
        working = [
            stack.enter_context(processes.worker(home, url, seconds, number))
            for number, (home, url) in enumerate(places)
        ]
        for process in working:
            processes.tell(process)
        done = sum(done for done, _ in map(processes.answer, working))
        if not done:
            raise TooFewUnitsError("no decision became durable within the window: measure longer (--seconds)")
        return done / seconds


def _tenants(where: Where) -> list[Where]:
    """Create the tenants of a store; return where each is."""
    home, url = where
    names = [f"t{number}" for number in range(COUNT)]
    with sync.open(home, url) as store:
        for name in names:
            store.tenants.create(name)
        parent = Parent(store.context.paths, store.context.settings)
    found = [resolve(parent, name) for name in names]
    return [(str(each.home), each.url) for each in found]
