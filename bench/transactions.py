"""How fast work becomes durable: a small transaction, the decision unit, and point reads beside them."""

from functools import partial

from bench import own_contestants, peers_postgres, peers_read, peers_sqlite
from bench.goals import Goal
from bench.measurement import Options, Race, Result, run_race

RAW, CEILING = "raw sqlite3 commit-each @1", "ceiling @1"
RAW_EIGHT = "raw sqlite3 8 commits @1"
READERS = 8
SYNC_CALLERS = (1, 8, 64)
POSTGRES_MOST = 64


def run(options: Options) -> list[Result]:
    """Every race that the options ask for."""
    results = []
    if options.wants("sqlite"):
        for work in ("txn", "unit"):
            results += run_race(_sqlite(work, options), options)
        results += run_race(_reads(), options)
    if options.wants("postgres"):
        with peers_postgres.server() as running:
            for work in ("txn", "unit"):
                results += run_race(_postgres(running, work, options), options)
    return results


def _sqlite(work: str, options: Options) -> Race:
    most = options.crowd  # for the peer that shares one connection: its rate does not depend on them
    contestants = [peers_sqlite.raw(work), peers_sqlite.aio(work, most), peers_sqlite.ceiling(work)]
    if work == "unit":
        contestants += [peers_sqlite.raw_each(work), peers_sqlite.aio_each(work, most)]
    contestants += [
        own_contestants.asynchronous(work, callers, own_contestants.on_sqlite) for callers in options.callers
    ]
    threaded = [callers for callers in SYNC_CALLERS if callers in options.callers]
    contestants += [own_contestants.synchronous(work, callers, own_contestants.on_sqlite) for callers in threaded]
    return Race(f"sqlite {work}", contestants, (RAW, f"aiosqlite @{most}", CEILING))


def _reads() -> Race:
    contestants = [
        peers_read.inline(),
        peers_read.aio(READERS),
        peers_read.aio_fetchall(READERS),
        own_contestants.asynchronous("read", READERS, own_contestants.on_sqlite),
    ]
    return Race("sqlite point reads", contestants, (f"aiosqlite @{READERS}", CEILING))


def _postgres(running: peers_postgres.Server, work: str, options: Options) -> Race:
    counts = [callers for callers in options.callers if callers <= POSTGRES_MOST]
    opener = partial(own_contestants.on_postgres, running)
    contestants = [peers_postgres.naive(running, work, callers) for callers in counts]
    contestants += [own_contestants.asynchronous(work, callers, opener) for callers in counts]
    return Race(f"postgres {work}", contestants, [f"naive @{callers}" for callers in counts])


def goals(options: Options) -> list[Goal]:
    """What must be reached, and what spec/performance.md aims at."""
    unit, reads, read = "sqlite unit", "sqlite point reads", ("holdproof @8", "aiosqlite @8")
    fast, eight = "holdproof @64", "aiosqlite 8 transactions @64"
    disk = options.disk
    return [
        Goal(f"unit, 64 callers: 0.75 x ceiling{disk}", unit, fast, CEILING, 0.75),
        Goal(f"unit, 64 callers: 10 x raw, a commit per statement{disk}", unit, fast, RAW_EIGHT, 10),
        Goal(f"unit, 1 caller: 0.60 x raw, a commit per unit{disk}", unit, "holdproof @1", RAW, 0.60),
        Goal(f"point reads, 8 callers: 6 x aiosqlite{disk}", reads, *read, 6),
        Goal(f"PostgreSQL unit, 64 callers: 4 x naive{disk}", "postgres unit", fast, "naive @64", 4),
        # On a fast disk the ceiling itself is about 6 x raw; on a slow one this can be reached.
        Goal(f"unit, 64 callers: 10 x raw, a commit per unit{disk}", unit, fast, RAW, 10, aim=True),
        Goal(f"txn, 1 caller: 0.60 x raw, a commit per unit{disk}", "sqlite txn", "holdproof @1", RAW, 0.60, aim=True),
        Goal(f"unit, 64 callers: 0.85 x ceiling{disk}", unit, fast, CEILING, 0.85, aim=True),
        Goal(f"unit, 64 callers: 35 x eight transactions{disk}", unit, fast, eight, 35, aim=True),
        Goal(f"point reads, 8 callers: 15 x aiosqlite{disk}", reads, *read, 15, aim=True),
    ]
