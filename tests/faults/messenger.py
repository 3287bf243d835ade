"""Processes that may be killed anywhere: some run a flow, others send it messages and resolve its promise.

python -m tests.faults.messenger ROLE HOME URL NAME

`work` runs flows until its input ends; `send` sends every message, in an order of its own, each under its key, and
between two of them resolves the promise with its name, and tells whether it was the one that did.
"""

import random
import sys

from holdproof import errors, sync
from holdproof.api import FlowFunction, OpenFlow
from holdproof.executors import SyncExecutor

FLOW = "collect"
MESSAGES = 12


def register(store: sync.Holdproof) -> FlowFunction[[], object]:
    @store.flow(name="collect", agent="trader", lease_s=0.7)
    def collect(flow: OpenFlow[SyncExecutor]) -> object:
        promise = flow.promise("done")
        flow.publish("token", promise.token)
        received = []
        for _ in range(MESSAGES):
            received.append(flow.receive("m"))
            flow.stream("received").write(received[-1])
        flow.stream("received").close()
        return [received, promise.wait()]

    return collect


def work(store: sync.Holdproof, name: str) -> None:
    register(store)
    with store.worker(concurrency=2, name=name):
        print("ready", flush=True)
        sys.stdin.readline()


def send(store: sync.Holdproof, name: str) -> None:
    deeds: list[int | None] = [*range(MESSAGES), None]
    random.Random(name).shuffle(deeds)
    for deed in deeds:
        if deed is None:
            print(resolve(store, name), flush=True)
            continue
        try:
            store.flows.signal(FLOW, "m", deed, idempotency_key=f"message {deed}")
        except errors.FlowEndedError:  # it has them all, and the promise is resolved
            continue
        print(f"sent {deed}", flush=True)


def resolve(store: sync.Holdproof, name: str) -> str:
    token = store.flows.published(FLOW, "token", wait=True, timeout_s=60).value
    try:
        store.promises.resolve(token, name)
    except (errors.ConflictError, errors.FlowEndedError):
        return "lost"
    return "won"


def main(role: str, home: str, url: str, name: str) -> None:
    with sync.open(url=url or None, home=home) as store:
        {"work": work, "send": send}[role](store, name)


if __name__ == "__main__":
    main(*sys.argv[1:])
