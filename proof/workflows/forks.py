"""Recorded runs of programs made by chance, forked at every step: the world outside does not change, a fork is small.

python -m proof forks --rounds 100 --database postgres --seed 18

Each run is forked at each of its steps twice, with side effects denied and simulated. What a fork stores is measured
on an agent that asks a model again and again, forked at each of its calls: the share of what the agent itself stores.
"""

import argparse
import random
from typing import Any, Final

from holdproof import sync
from holdproof.api import FlowFunction
from holdproof.db import Tx, sql
from proof.report import Proof, Say
from proof.workflows import random_flows, sittings
from proof.workflows.random_flows import World
from proof.workflows.replays import other
from proof.workflows.sittings import Counts, Place, Plan

MODEL_CALLS: Final = 40
MOST_PERCENT: Final = 2
_ANSWER_CHARS: Final = 8_000

_FLOWS = sql("SELECT dfid FROM decision_flows ORDER BY created_at, dfid")
_STORED = [
    *(
        sql(f"SELECT * FROM {table}")
        for table in ("decision_flows", "flow_calls", "flow_steps", "flow_transitions", "flow_leases", "objects")
    ),
    sql(
        "SELECT id, ver, leaf FROM log_leaves",
        postgres="SELECT id, ver, leaf FROM log_leaves UNION ALL SELECT id, ver, leaf FROM log_pending",
    ),
]


def sitting(place: Place, runs: int, chance: random.Random) -> Counts:
    """Fork that many runs at every step, and then an agent at every call of its model."""
    with place.open() as store:
        store.agents.register("trader", version="1")
        # First, while the store is small: what is stored is found by reading all of it.
        shares = shares_of_a_long_agent(store)
        assert max(shares) < MOST_PERCENT / 100, f"a fork stored {max(shares):.1%} of what it was forked from"
        counts = fork_everywhere(store, runs, chance)
    return {**counts, "forks measured": len(shares), "largest fork in %": round(100 * max(shares), 2)}


def fork_everywhere(store: sync.Holdproof, runs: int, chance: random.Random) -> Counts:
    """Record that many runs and fork each at every step; nothing changes but that there are forks."""
    earlier = set(store.read(lambda tx: tx.all(_FLOWS)))
    random_flows.run(other(store), World(), runs, chance)
    world = World()
    program = other(store)
    random_flows.register(program, world)
    flow_ids = [row[0] for row in store.read(lambda tx: tx.all(_FLOWS)) if row not in earlier]
    forks = sum(_fork_at_every_step(store, program, flow_id) for flow_id in flow_ids)
    assert world.done == [], "a fork changed the world outside"
    return {"flows": len(flow_ids), "forks": forks}


def _fork_at_every_step(store: sync.Holdproof, program: sync.Holdproof, flow_id: str) -> int:
    origin = store.flows.get(flow_id)
    forks = 0
    for step in store.flows.steps(flow_id):
        if step.compensates is not None:
            continue
        at = f"{step.name} {step.n}"
        denied = program.flows.fork(flow_id, at=at)
        simulated = program.flows.fork(flow_id, at=at, effects="simulate")
        assert len(program.flows.recover().reruns) == 2
        assert store.flows.get(denied.flow_id).ended
        if origin.status == "COMPLETED":
            assert program.flows.result(simulated.flow_id) == program.flows.result(flow_id)
        assert store.flows.get(flow_id) == origin
        forks += 2
    return forks


# --- what a fork stores ----------------------------------------------------------------------------------------------


def shares_of_a_long_agent(store: sync.Holdproof) -> list[float]:
    """Fork a long agent at every call of its model; what each fork stores, as a share of what the agent stored."""
    empty = store.read(stored_bytes)
    origin = long_agent(other(store))()
    whole = store.read(stored_bytes) - empty
    program = other(store)
    long_agent(program)
    shares: list[float] = []
    for n in range(1, MODEL_CALLS + 1):
        before = store.read(stored_bytes)
        fork = program.flows.fork(origin, at=f"ask {n}", effects="real", answers={f"ask {n}": "STOP"})
        program.flows.recover()
        assert program.flows.result(fork.flow_id) == fork.flow_id
        shares.append((store.read(stored_bytes) - before) / whole)
    return shares


def stored_bytes(tx: Tx) -> int:
    """How much the rows of flows and their entries in the log hold."""
    return sum(len(str(row)) for query in _STORED for row in tx.all(query))


def long_agent(store: sync.Holdproof) -> FlowFunction[Any, str]:
    """Register an agent that asks a model again and again, until it says to stop; each answer is long."""

    @store.flow(agent="trader")
    def converse(flow: random_flows.Flow) -> str:
        for n in range(MODEL_CALLS):
            if flow.step("ask", _answer, n) == "STOP":
                break
        return flow.flow_id

    return converse


def _answer(n: int) -> str:
    return random.Random(n).randbytes(_ANSWER_CHARS // 2).hex()


PLAN: Final = Plan(
    "forks",
    "a run that is forked at any of its steps, with side effects denied or simulated, leaves the world outside and"
    f" itself as they are, and a fork of a long agent stores less than {MOST_PERCENT} % of it",
    sitting,
    rounds=100,
    rounds_a_sitting=10,
)


def arguments(parser: Any) -> None:
    """How many runs, on which database, for how long."""
    sittings.arguments(parser, PLAN)


def run(given: argparse.Namespace, say: Say) -> Proof:
    """Record and fork; the counts."""
    return sittings.run(given, say, PLAN)
