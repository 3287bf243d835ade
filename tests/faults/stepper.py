"""A worker that orders six things, one step each, and may be killed anywhere; if it is to fail, all is undone.

It works in a block that is resumed, or by a registered decision: begun by the first worker, recovered by the others.
It kills itself inside the deed that DIE names, or between two steps: "between 3".

python -m tests.faults.stepper HOW HOME URL DFID WORLD FAIL DIE
"""

import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress

from holdproof import errors, sync
from holdproof.api import OpenFlow
from holdproof.executors import SyncExecutor

STEPS = 6
LEASE_S = 0.5

Work = Callable[[OpenFlow[SyncExecutor], str], None]


def worker(world: str, die: str) -> Work:
    """What is done in the flow."""

    def perish(point: str) -> None:
        if point == die:
            os.kill(os.getpid(), signal.SIGKILL)

    def act(what: str) -> str:
        file = os.open(world, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(file, f"{what}\n".encode())
        os.close(file)
        perish(what)
        time.sleep(0.01)  # time to be killed in, with the deed done and not yet written down
        return what

    def work(flow: OpenFlow[SyncExecutor], fail: str) -> None:
        for number in range(STEPS):
            flow.step(f"order {number}", act, f"do {number}", compensate=lambda done: act(f"un{done}"))
            perish(f"between {number}")
        if fail:
            raise ZeroDivisionError

    return work


def block(store: sync.Holdproof, flow_id: str, work: Work, fail: str) -> None:
    while True:
        try:
            with store.flows.run(resume=flow_id, lease_s=LEASE_S) as flow:
                work(flow, fail)
            return
        except (ZeroDivisionError, errors.FlowEndedError):
            return
        except errors.ConflictError:  # the lease of the one before has not run out
            time.sleep(0.05)


def decision(store: sync.Holdproof, flow_id: str, work: Work, fail: str) -> None:
    order = store.flow(name="order", agent="trader", lease_s=LEASE_S)(work)
    # The first call opens the flow; a later one resumes it if its worker is gone, or waits for its result.
    with suppress(ZeroDivisionError, errors.LeaseLostError, errors.FlowFailedError, errors.ReplayedError):
        order.with_id(flow_id)(fail)


HOW = {"block": block, "decision": decision}


def main(how: str, home: str, url: str, flow_id: str, world: str, fail: str, die: str) -> None:
    with sync.open(home, url or None) as store:
        print("open", flush=True)
        HOW[how](store, flow_id, worker(world, die), fail)


if __name__ == "__main__":
    main(*sys.argv[1:])
