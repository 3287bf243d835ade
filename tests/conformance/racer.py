"""A process that races others for the same thing, a round for each turn it is given; see test_races.py."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection

from holdproof import errors, sync
from holdproof.api import OpenFlow
from holdproof.executors import SyncExecutor

_SCRATCH = "HOLDPROOF_RACER_SCRATCH"


def locks(store: sync.Holdproof, turn: str, mine: str) -> str:
    try:
        store.locks.try_acquire(mine, {f"r{turn}": 400}, capacity=1000)
    except errors.ContentionTimeoutError:
        return "0"
    return "1"


def waits(store: sync.Holdproof, turn: str, mine: str) -> str:
    """Everybody gets the lock in the end; the fences say that nobody had it at the same time."""
    [lock] = store.locks.acquire(mine, {f"r{turn}": 1}, timeout_s=60)
    store.locks.release(mine, f"r{turn}")
    return str(lock.fence)


def once(store: sync.Holdproof, turn: str, _: str) -> str:
    def execute() -> str:
        _write(turn)
        return f"result {turn}"

    return str(store.idempotency.once(f"k{turn}", turn, execute))


def budget(store: sync.Holdproof, _: str, mine: str) -> str:
    granted = 0
    for flow_id in mine.split(","):
        try:
            store.escalations.request(flow_id, reason="?")
            granted += 1
        except errors.BudgetExhaustedError:
            pass
    return str(granted)


def rejections(store: sync.Holdproof, _: str, mine: str) -> str:
    return str([store.retries.reject(mine, max_retries=1000).rejection_count for _ in range(10)])


def resolvers(store: sync.Holdproof, _: str, mine: str) -> str:
    try:
        store.escalations.resolve(int(mine), "approve", by=str(os.getpid()))
    except errors.AlreadyResolvedError:
        return "0"
    return "1"


def recoveries(store: sync.Holdproof, turn: str, mine: str) -> str:
    if "raced" not in store.flows.held:

        @store.flow(name="raced")
        def raced(flow: OpenFlow[SyncExecutor], turn: int) -> None:
            flow.step("run", _write, f"{turn} {flow.flow_id}")

    return str(len(store.flows.recover(mine).reruns))


def _write(line: str) -> None:
    file = os.open(os.environ[_SCRATCH], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, f"{line}\n".encode())
    os.close(file)


MODES: dict[str, Callable[[sync.Holdproof, str, str], str]] = {
    mode.__name__: mode for mode in (locks, waits, once, budget, rejections, resolvers, recoveries)
}


@dataclass(frozen=True, slots=True)
class Start:
    """What a racer is told once: which race, the store, and the file in which it writes down what it executes."""

    mode: str
    home: str
    url: str
    scratch: str


def run(start: Start, pipe: Connection) -> None:
    """Open the store and answer each turn, until the other end is closed."""
    os.environ[_SCRATCH] = start.scratch
    race = MODES[start.mode]
    with sync.open(start.home or None, start.url or None) as store:
        pipe.send("ready")
        while True:
            try:
                turn, mine = pipe.recv()
            except EOFError:
                return
            pipe.send(race(store, turn, mine))
