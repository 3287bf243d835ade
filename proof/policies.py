"""`python -m proof.policies [--count N] [--seed N]`: recorded decisions decided again, compared with cedarpy's answers.

Fails unless `policies.reevaluate` agrees with cedarpy on every decision under every draft.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from statistics import quantiles

from harness import policy_oracle
from holdproof import sync
from holdproof.db import Tx
from holdproof.policy.requests import PolicyRequest, record_of
from holdproof.runtime import policy_gate


def main(arguments: Sequence[str]) -> int:
    """Record, decide again, compare; the exit code."""
    parser = argparse.ArgumentParser("python -m proof.policies")
    parser.add_argument("--count", type=int, default=100_000, metavar="N", help="recorded decisions")
    parser.add_argument("--seed", type=int, default=1, metavar="N")
    given = parser.parse_args(arguments)
    differing = 0
    with tempfile.TemporaryDirectory(prefix="proof-") as home, sync.open(home) as store:
        began = time.monotonic()
        policy_oracle.record(store, given.seed, given.count)
        print(f"{given.count} decisions recorded in {time.monotonic() - began:.1f} s", flush=True)
        for draft in policy_oracle.DRAFTS:
            began = time.monotonic()
            ours = [*policy_oracle.redecided(store, draft)]
            took = time.monotonic() - began
            theirs = policy_oracle.answers(given.seed, given.count, draft)
            wrong = sum(one != other for one, other in zip(ours, theirs, strict=True))
            differing += wrong
            counts = ", ".join(f"{word} {ours.count(word)}" for word in ("allow", "deny", "ask"))
            print(f"draft {draft}: {counts}; {wrong} differ from cedarpy; {took:.1f} s", flush=True)
        print(_gate_latency(store), flush=True)
        print(_latency(store), flush=True)
    return 1 if differing else 0


def _gate_latency(store: sync.Holdproof, count: int = 20_000) -> str:
    """How long a warm decision takes by itself: policies and agent read and compared with the log, then Cedar."""
    samples: list[float] = []
    used: list[float] = []

    def many(tx: Tx) -> None:
        for number in range(count // 20):
            context = record_of({"amount": number % 900, "region": "eu"})
            request = PolicyRequest("buyer", "tool.call", "search", context=context)
            began = time.perf_counter()
            began_used = time.thread_time()
            policy_gate.decide(tx, request, ns="main")
            used.append(time.thread_time() - began_used)
            samples.append(time.perf_counter() - began)

    # In several transactions: one would find everything in its own cache.
    for _ in range(20):
        store.read_on_reader(many)
    cuts = quantiles(samples, n=100)
    # On a machine that others use too, the clock says how long they were served in between.
    cpu = quantiles(used, n=100)
    return (
        f"decision: median {cuts[49] * 1e3:.2f} ms, p99 {cuts[98] * 1e3:.2f} ms;"
        f" CPU time: median {cpu[49] * 1e3:.2f} ms, p99 {cpu[98] * 1e3:.2f} ms"
    )


def _latency(store: sync.Holdproof, count: int = 2000) -> str:
    """How long a warm decision takes, with its record and its commit."""
    samples = []
    for number in range(count):
        began = time.perf_counter()
        store.policies.decide("buyer", "tool.call", "search", context={"amount": number % 900, "region": "eu"})
        samples.append(time.perf_counter() - began)
    cuts = quantiles(samples, n=100)
    return f"decision with record and durable commit: median {cuts[49] * 1e3:.2f} ms, p99 {cuts[98] * 1e3:.2f} ms"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
