"""HTTP: durable decisions a second through the server, beside the same store embedded and beside a server that does
nothing.

A decision is `flows.start`: one request, one durable transaction with its leaf. `embedded` calls the verb in this
process; `bare POST` is the same framework answering the same bytes without a store, which no server built on it can
beat; `over HTTP` is a whole server (tokens, limits, audit) in a process of its own. Its clients here are plain sockets,
so that the cost of a client library is not counted; `holdproof.connect` is our own client, where it is. `waiting` is
what the slowest of a hundred waits: the rate is 1 / p99. `first page` is the time from starting `holdproof up` to its
first page, as a rate, beside a Python that only imports FastAPI and uvicorn and listens.
"""

import asyncio
import itertools
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import holdproof
from bench.goals import Goal
from bench.measurement import Contestant, Meter, Options, Race, Result, progress, rounds, run_race
from holdproof import sync

DECISIONS, WAITING, PAGE = "durable decisions over HTTP", "waiting: 1 / p99", "first page"
EMBEDDED, BARE, SERVED, CLIENT = "embedded", "bare POST", "over HTTP", "holdproof.connect"
_CALLERS = (1, 8, 64)
_ANSWER = json.dumps({"flow_id": "0" * 36, "padding": "x" * 350})

Unit = Callable[[int], Awaitable[Any]]


def run(options: Options) -> list[Result]:
    """Every race that the options ask for."""
    if not options.wants("sqlite"):
        return []
    results: list[Result] = []
    if options.race in DECISIONS or options.race in WAITING:
        with tempfile.TemporaryDirectory() as folder, _served(Path(folder)) as (url, token), _bare() as bare:
            calls = [_embedded, lambda: _posting(bare, ""), lambda: _posting(url, token), lambda: _client(url, token)]
            named = list(zip((EMBEDDED, BARE, SERVED, CLIENT), calls, strict=True))
            contestants = [_contestant(name, count, call) for name, call in named for count in _CALLERS]
            results += run_race(Race(DECISIONS, contestants, (f"{EMBEDDED} @64", f"{BARE} @64")), options)
            if options.race in WAITING:
                results += _waits(named[:3], options)
    if options.race in PAGE:
        results += _pages(options)
    return results


def goals(options: Options) -> list[Goal]:
    """What must be reached."""
    del options
    return [
        Goal(
            "64 clients: half of what a server does that does nothing", DECISIONS, f"{SERVED} @64", f"{BARE} @64", 0.5
        ),
        Goal("64 clients: a tenth of the embedded rate", DECISIONS, f"{SERVED} @64", f"{EMBEDDED} @64", 0.1),
        Goal("first page: a third of the rate of a bare server", PAGE, "holdproof up @1", "bare server @1", 1 / 3),
    ]


def _contestant(name: str, callers: int, opening: Callable[[], Any]) -> Contestant:
    def sample(meter: Meter) -> None:
        asyncio.run(_crowd(meter, callers, opening))

    return Contestant(name, callers, sample)


async def _crowd(meter: Meter, callers: int, opening: Callable[[], Any]) -> None:
    async with opening() as unit:
        numbers = itertools.count()

        async def work() -> None:
            while True:
                await unit(next(numbers))
                if not meter.done():
                    return

        meter.start()
        await asyncio.gather(*(work() for _ in range(callers)))


# --- the ways to call --------------------------------------------------------------------------------------------


class _embedded:
    """The store in this process."""

    async def __aenter__(self) -> Unit:
        self._folder = tempfile.TemporaryDirectory()
        self._store = await holdproof.open(self._folder.name)
        await self._store.agents.register("bench", version="1.0")
        return lambda _: self._store.flows.start("bench")

    async def __aexit__(self, *_: object) -> None:
        await self._store.close()
        self._folder.cleanup()


class _posting:
    """Plain sockets, one for each that waits."""

    def __init__(self, url: str, token: str) -> None:
        self._host, _, port = url.removeprefix("http://").partition(":")
        self._port, body = int(port), json.dumps({"agent_id": "bench"})
        head = f"POST /v1/flows/start HTTP/1.1\r\nHost: {self._host}\r\nContent-Type: application/json\r\n"
        self._request = f"{head}Authorization: Bearer {token}\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()
        self._free: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def __aenter__(self) -> Unit:
        return self._post

    async def _post(self, _: int) -> None:
        reader, writer = self._free.pop() if self._free else await asyncio.open_connection(self._host, self._port)
        writer.write(self._request)
        head = await reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(head.decode())
        await reader.readexactly(int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0]))
        self._free.append((reader, writer))

    async def __aexit__(self, *_: object) -> None:
        for _reader, writer in self._free:
            writer.close()


class _client:
    """Our own client."""

    def __init__(self, url: str, token: str) -> None:
        self._url, self._token = url, token

    async def __aenter__(self) -> Unit:
        self._store = await holdproof.connect(self._url, self._token)
        return lambda _: self._store.flows.start("bench")

    async def __aexit__(self, *_: object) -> None:
        await self._store.close()


# --- the servers -------------------------------------------------------------------------------------------------

_BARE = f"""
import sys, uvicorn
from fastapi import FastAPI, Request, Response
app = FastAPI()
@app.post("/v1/flows/start")
async def start(request: Request) -> Response:
    await request.body()
    return Response({_ANSWER!r}, media_type="application/json")
@app.get("/")
async def page() -> Response:
    return Response("ready")
uvicorn.run(app, port=int(sys.argv[1]), log_level="error", access_log=False)
"""


@contextmanager
def _process(*command: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


def _port() -> int:
    async def free() -> int:
        server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
        port: int = server.sockets[0].getsockname()[1]
        server.close()
        return port

    return asyncio.run(free())


def _await_page(process: "subprocess.Popen[str]", port: int, path: str) -> None:
    """Ask for a page until it is there; RuntimeError if its server ends before that."""

    async def ask() -> bool:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            return False
        writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n".encode())
        answer = await reader.read()
        writer.close()
        return answer.startswith(b"HTTP/1.1 200")

    while not asyncio.run(ask()):
        if process.poll() is not None:
            raise RuntimeError(f"a server ended with exit code {process.returncode} before it answered")
        time.sleep(0.005)


@contextmanager
def _bare() -> Iterator[str]:
    port = _port()
    with _process(sys.executable, "-c", _BARE, str(port)) as process:
        _await_page(process, port, "/")
        yield f"http://127.0.0.1:{port}"


@contextmanager
def _served(home: Path) -> Iterator[tuple[str, str]]:
    with sync.open(home) as store:
        store.agents.register("bench", version="1.0")
        token = store.tokens.create("bench", role="operator").secret
    port = _port()
    with _process(*_up(home, port), "--rate", "0") as process:
        _await_page(process, port, "/healthz")
        yield f"http://127.0.0.1:{port}", token


def _up(home: Path, port: int) -> list[str]:
    return [sys.executable, "-m", "holdproof", "--home", str(home), "up", "--port", str(port)]


# --- waiting, and the first page ---------------------------------------------------------------------------------


def _waits(named: list[tuple[str, Callable[[], Any]]], options: Options) -> list[Result]:
    rates: dict[str, list[float]] = {name: [] for name, _ in named}
    for turn in rounds(options):
        for name, opening in named:
            progress(f"{WAITING}, round {turn + 1} of {options.repeats}: {name}")
            rates[name].append(1 / asyncio.run(_slowest(opening, 8)))
    progress("")
    return options.journal.add([Result(WAITING, name, 8, tuple(each)) for name, each in rates.items()])


async def _slowest(opening: Callable[[], Any], callers: int, count: int = 150) -> float:
    """What all but one in a hundred wait less than."""
    waits: list[float] = []
    async with opening() as unit:

        async def work() -> None:
            for number in range(count):
                began = time.perf_counter()
                await unit(number)
                waits.append(time.perf_counter() - began)

        await asyncio.gather(*(work() for _ in range(callers)))
    return sorted(waits[callers * 5 :])[int(len(waits[callers * 5 :]) * 0.99)]


def _pages(options: Options) -> list[Result]:
    taken: dict[str, list[float]] = {"bare server": [], "holdproof up": []}
    with tempfile.TemporaryDirectory() as folder:
        for turn in (0, *(turn + 1 for turn in rounds(options))):  # the first one is not counted
            for name, times in taken.items():
                progress(f"{PAGE}, round {turn} of {options.repeats}: {name}")
                port = _port()
                served = name == "holdproof up"
                command = _up(Path(folder), port) if served else [sys.executable, "-c", _BARE, str(port)]
                began = time.perf_counter()
                with _process(*command) as process:
                    _await_page(process, port, "/login" if served else "/")
                    times.append(time.perf_counter() - began)
    progress("")
    rates = {name: tuple(1 / each for each in times[1:]) for name, times in taken.items()}
    return options.journal.add([Result(PAGE, name, 1, each) for name, each in rates.items()])
