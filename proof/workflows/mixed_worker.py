"""A worker of a mixed load that may be killed anywhere: it runs flows of every kind, and enqueues more of them.

What a flow does to the world is a line of a file, told from others by a token of its own, so that a judge knows what
ran when, by whom, and what was recorded of it. What is printed was acknowledged by the store.

python -m proof.workflows.mixed_worker HOME URL WORLD SEED
"""

import os
import random
import sys
import time
import uuid
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

from holdproof import errors, sync
from holdproof.api import FlowFunction, OpenFlow
from holdproof.executors import SyncExecutor

LEASE_S = 4.0
SHARED = "shared"
EACH = "each"
RATED = "rated"
SIGNALS = 2
_MOST_DUE = 16
_CONCURRENCY = 4

Flow = OpenFlow[SyncExecutor]
Functions = dict[str, FlowFunction[Any, Any]]
Result = tuple[Any, dict[str, str]]
"""What a flow of this load returns: what it was asked for, and the tokens of its steps."""


class World:
    """The world outside, as a file to which every process appends."""

    def __init__(self, folder: Path) -> None:
        self._log = folder / "log"
        self._stop = folder / "stop"
        self._end = folder / "end"

    def note(self, flow_id: str, what: str, *words: str) -> None:
        """Append a line with the time and the process; one write of a short line is not torn."""
        line = " ".join((f"{time.monotonic():.6f}", str(os.getpid()), flow_id, what, *words))
        file = os.open(self._log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(file, f"{line}\n".encode())
        os.close(file)

    def step(self, flow: Flow, key: str, **options: Any) -> str:
        """Run a step that changes the world, and note that it is confirmed; return its token."""

        def act() -> str:
            token = uuid.uuid4().hex
            self.note(flow.flow_id, "ran", key, token)
            time.sleep(0.01)  # time to be killed in, with the deed done and not yet recorded
            return token

        token: str = flow.step(key, act, **options)
        self.note(flow.flow_id, "confirmed", key, token)
        return token

    def is_stopped(self) -> bool:
        """Return whether no more flows are wanted."""
        return self._stop.exists()

    def is_over(self) -> bool:
        """Return whether the worker is to end."""
        return self._end.exists()

    def stop(self) -> None:
        """Ask for no more flows."""
        self._stop.touch()

    def end(self) -> None:
        """Ask the workers to end."""
        self._end.touch()


def register(store: sync.Holdproof, world: World) -> Functions:
    """Register every kind of flow of the load."""
    functions: Functions = {}

    def flow(fn: Callable[..., Result]) -> FlowFunction[Any, Any]:
        functions[fn.__name__] = store.flow(agent="trader", lease_s=LEASE_S)(fn)
        return functions[fn.__name__]

    def within_limits(flow: Flow, n: Any) -> Result:
        # Never suspended, so that it begins and ends while its worker has the lease.
        world.note(flow.flow_id, "begins")
        try:
            tokens = {key: world.step(flow, key, on_unknown="retry") for key in ("first", "second")}
            flow.heartbeat()
        except errors.LeaseLostError:
            # A process that was not run for longer than a lease, as on a machine with too much to do.
            world.note(flow.flow_id, "lost")
            raise
        world.note(flow.flow_id, "ends")
        return n, tokens

    @flow
    def pay(flow: Flow, n: int) -> Result:
        return within_limits(flow, n)

    @flow
    def crawl(flow: Flow, n: int) -> Result:
        return within_limits(flow, n)

    @flow
    def mail(flow: Flow, n: int) -> Result:
        return within_limits(flow, n)

    @flow
    def nap(flow: Flow, n: int) -> Result:
        before = world.step(flow, "before")  # in doubt after a kill, and then answered by a person
        flow.sleep(1.2)
        return n, {"before": before, "after": world.step(flow, "after")}

    @flow
    def listen(flow: Flow, n: int) -> Result:
        values = [flow.receive("go") for _ in range(SIGNALS)]
        return [n, *values], {"heard": world.step(flow, "heard", on_unknown="retry")}

    @flow
    def family(flow: Flow, n: int) -> Result:
        handles = [flow.start(pay, f"{n} {child}", queue=SHARED) for child in range(2)]
        here = flow.run(crawl, f"{n} here")
        return [n, here[0], *(flow.result(handle)[0] for handle in handles)], {}

    @flow
    def tick(flow: Flow, at: str) -> Result:
        return at, {"tick": world.step(flow, "tick", on_unknown="retry")}

    return functions


_QUEUES: dict[str, dict[str, Any]] = {
    "pay": {"queue": SHARED},
    "crawl": {"queue": EACH},
    "mail": {"queue": RATED},
    "nap": {},
    "listen": {"priority": 1},
    "family": {},
}


def submit(store: sync.Holdproof, functions: Functions, world: World, chance: random.Random) -> None:
    """Enqueue flows until no more are wanted, and say what was acknowledged."""
    for turn in count():
        while not world.is_stopped() and _due_flows(store) >= _MOST_DUE:
            time.sleep(0.02)
        if world.is_stopped():
            return
        kind = chance.choice(sorted(_QUEUES))
        handle = functions[kind].enqueue(turn, **_QUEUES[kind])
        print("flow", handle.flow_id, kind, turn, flush=True)
        if kind == "listen":
            for number in range(SIGNALS):
                signal(store, handle.flow_id, number)
                print("signal", handle.flow_id, number, flush=True)


def signal(store: sync.Holdproof, flow_id: str, number: int) -> None:
    """Send a signal of a flow; once more changes nothing."""
    try:
        store.flows.signal(flow_id, "go", f"{flow_id} {number}", idempotency_key=f"{flow_id} {number}")
    except errors.FlowEndedError:
        return


def _due_flows(store: sync.Holdproof) -> int:
    """Count what is to be run; flows that wait for a submitter which is gone keep nobody from submitting."""
    return sum(length.due + length.running for length in store.queues.lengths())


def main(home: str, url: str, folder: str, seed: str) -> None:
    """Work and submit until the world is over."""
    world = World(Path(folder))
    with sync.open(home, url or None) as store:
        functions = register(store, world)
        worker = store.worker(concurrency=_CONCURRENCY).start()
        submit(store, functions, world, random.Random(seed))
        while not world.is_over():
            time.sleep(0.05)
        worker.stop(30)


if __name__ == "__main__":
    main(*sys.argv[1:])
