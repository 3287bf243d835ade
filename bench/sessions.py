"""Sessions of agent frameworks: a turn added to short and to long ones, many at once, read back, and their bytes.

A turn is two messages of 500 characters. `SQLiteSession` is that of `openai-agents`, `SqliteSessionService` that of
`google-adk`; each takes part where its package is installed. Every contestant syncs each turn before it goes on. With
64 sessions at once SqliteSessionService fails ("database is locked"), so it has no part in that race.
"""

import asyncio
import importlib.util
import itertools
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import holdproof
from bench.goals import Goal
from bench.measurement import Contestant, Meter, Options, Race, Result, run_race

TURNS = (10, 200, 1000)
CROWD, READ = "a turn, many sessions", "read a session of 200 turns"
OURS, PEER, ADK, ADK_PEER = "holdproof", "SQLiteSession", "holdproof for ADK", "SqliteSessionService"
_TEXT = "so it was said, and so it was heard. " * 14

Add = Callable[[int, int], Awaitable[Any]]
Get = Callable[[int], Awaitable[int]]
Opened = Callable[[Path, int], AbstractAsyncContextManager[tuple[Add, Get]]]


def run(options: Options) -> list[Result]:
    """Every race of those who are installed; PostgreSQL has no part in them."""
    sides = _sides()
    if not options.wants("sqlite") or not sides:
        return []
    references = tuple(f"{name} @1" for name in (PEER, ADK_PEER) if name in sides)
    results: list[Result] = []
    for turns in TURNS:
        results += run_race(Race(_turn(turns), [_adding(*side, turns) for side in sides.items()], references), options)
    crowd = [_crowd(name, opened, options.crowd) for name, opened in sides.items() if name != ADK_PEER]
    results += run_race(Race(CROWD, crowd, (f"{PEER} @{options.crowd}",)), options)
    results += run_race(Race(READ, [_reading(*side) for side in sides.items()], references), options)
    for turns in [each for each in TURNS[1:] if options.race in _room(each)]:
        sizes = {name: _bytes(opened, turns) for name, opened in sides.items()}
        rates = {name: turns * 1e6 / size for name, size in sizes.items()}
        results += options.journal.add([Result(_room(turns), name, 1, (each,)) for name, each in rates.items()])
    return results


def goals(options: Options) -> list[Goal]:
    """What must be reached, and what is aimed at."""
    crowd, disk = f" @{options.crowd}", options.disk
    return [
        Goal(f"a turn at 1,000 turns: the rate of SQLiteSession{disk}", _turn(1000), f"{OURS} @1", f"{PEER} @1", 1.0,
             aim=True),
        Goal(f"{options.crowd} sessions at once: 5 x SQLiteSession{disk}", CROWD, OURS + crowd, PEER + crowd, 5.0),
        Goal("bytes of 1,000 turns: at most 1.2 x SQLiteSession", _room(1000), f"{OURS} @1", f"{PEER} @1", 1 / 1.2),
        Goal("reading 200 turns: the rate of SQLiteSession", READ, f"{OURS} @1", f"{PEER} @1", 1.0),
        Goal(f"a turn at 1,000 turns: the rate of SqliteSessionService{disk}", _turn(1000), f"{ADK} @1",
             f"{ADK_PEER} @1", 1.0, aim=True),
    ]  # fmt: skip


def _turn(turns: int) -> str:
    return f"a turn after {turns:,}, durable"


def _room(turns: int) -> str:
    return f"turns in a megabyte, of {turns:,}"


def _items(turn: int) -> list[dict[str, Any]]:
    said = f"{turn} {_TEXT}"[:500]
    return [{"role": role, "content": said} for role in ("user", "assistant")]


# --- contestants -------------------------------------------------------------------------------------------------


def _sides() -> dict[str, Opened]:
    found: dict[str, Opened] = {}
    if importlib.util.find_spec("agents") is not None:
        found |= {PEER: _sqlite_session, OURS: _ours}
    if importlib.util.find_spec("google") is not None and importlib.util.find_spec("google.adk") is not None:
        found |= {ADK_PEER: _adk_peer, ADK: _adk}
    return found


@asynccontextmanager
async def _ours(folder: Path, count: int) -> AsyncIterator[tuple[Add, Get]]:
    from holdproof.adapters.openai_agents import HoldproofSession  # noqa: PLC0415 (an optional extra)

    async with holdproof.open(folder) as store:
        sessions = [HoldproofSession(f"s{number}", store) for number in range(count)]
        yield _verbs(sessions)


@asynccontextmanager
async def _sqlite_session(folder: Path, count: int) -> AsyncIterator[tuple[Add, Get]]:
    from agents import SQLiteSession  # noqa: PLC0415 (an optional extra)

    sessions = [SQLiteSession(f"s{number}", folder / "chats.db") for number in range(count)]
    try:
        yield _verbs(sessions)
    finally:
        for session in sessions:
            session.close()


def _verbs(sessions: list[Any]) -> tuple[Add, Get]:
    async def get(number: int) -> int:
        return len(await sessions[number].get_items())

    return lambda number, turn: sessions[number].add_items(_items(turn)), get


@asynccontextmanager
async def _adk(folder: Path, count: int) -> AsyncIterator[tuple[Add, Get]]:
    from holdproof.adapters.google_adk import HoldproofSessionService  # noqa: PLC0415 (an optional extra)

    async with holdproof.open(folder) as store:
        yield await _service(HoldproofSessionService(store), count)


@asynccontextmanager
async def _adk_peer(folder: Path, count: int) -> AsyncIterator[tuple[Add, Get]]:
    from google.adk.sessions.sqlite_session_service import SqliteSessionService  # noqa: PLC0415 (an optional extra)

    yield await _service(SqliteSessionService(str(folder / "sessions.db")), count)


async def _service(service: Any, count: int) -> tuple[Add, Get]:
    from google.adk.events import Event  # noqa: PLC0415 (an optional extra)
    from google.genai import types  # noqa: PLC0415 (an optional extra)

    about = {"app_name": "bench", "user_id": "ada"}
    made = [await service.create_session(**about, session_id=f"s{number}") for number in range(count)]

    async def add(number: int, turn: int) -> None:
        for item in _items(turn):
            content = types.Content(role=item["role"], parts=[types.Part(text=item["content"])])
            await service.append_event(made[number], Event(author=item["role"], content=content))

    async def get(number: int) -> int:
        return len((await service.get_session(**about, session_id=f"s{number}")).events)

    return add, get


# --- samples -----------------------------------------------------------------------------------------------------


def _adding(name: str, opened: Opened, turns: int) -> Contestant:
    async def work(folder: Path, meter: Meter) -> None:
        async with opened(folder, 1) as (add, _):
            for turn in range(turns):
                await add(0, turn)
            meter.start()
            for turn in itertools.count(turns):
                await add(0, turn)
                if not meter.done():
                    return

    return Contestant(name, 1, _sampled(work))


def _crowd(name: str, opened: Opened, callers: int) -> Contestant:
    async def work(folder: Path, meter: Meter) -> None:
        async with opened(folder, callers) as (add, _):

            async def one(number: int) -> None:
                for turn in itertools.count():
                    await add(number, turn)
                    if not meter.done():
                        return

            meter.start()
            await asyncio.gather(*(one(number) for number in range(callers)))

    return Contestant(name, callers, _sampled(work))


def _reading(name: str, opened: Opened) -> Contestant:
    async def work(folder: Path, meter: Meter) -> None:
        async with opened(folder, 1) as (add, get):
            for turn in range(200):
                await add(0, turn)
            meter.start()
            assert await get(0) == 400
            while meter.done():
                await get(0)

    return Contestant(name, 1, _sampled(work))


def _sampled(work: Callable[[Path, Meter], Any]) -> Callable[[Meter], None]:
    def sample(meter: Meter) -> None:
        with tempfile.TemporaryDirectory(prefix="bench-") as folder:
            asyncio.run(work(Path(folder), meter))

    return sample


def _bytes(opened: Opened, turns: int) -> int:
    """The bytes on disk that turns add to an empty session."""

    async def work(folder: Path, count: int) -> int:
        async with opened(folder, 1) as (add, _):
            for turn in range(count):
                await add(0, turn)
        return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())

    sizes = []
    for count in (1, turns + 1):
        with tempfile.TemporaryDirectory(prefix="bench-") as folder:
            sizes.append(asyncio.run(work(Path(folder), count)))
    return sizes[1] - sizes[0]
