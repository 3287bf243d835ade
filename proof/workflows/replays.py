"""Recorded runs of programs made by chance, replayed: equal inputs, no step executed, no socket opened.

python -m proof replays --rounds 1000 --database postgres --seed 18
"""

import argparse
import random
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final
from unittest import mock

from holdproof import sync
from holdproof.db import Tx, sql
from holdproof.model import typed_json
from holdproof.runtime import recorded
from proof.report import Proof, Say
from proof.workflows import random_flows, sittings
from proof.workflows.random_flows import World
from proof.workflows.sittings import Counts, Place, Plan

_TRACES = sql(
    "SELECT (SELECT count(*) FROM flow_steps), (SELECT count(*) FROM flow_transitions),"
    " (SELECT count(*) FROM flow_values), (SELECT count(*) FROM decision_audit_events),"
    " (SELECT count(*) FROM decision_flows), (SELECT max(expires_at) FROM flow_leases)"
)
_FLOWS = sql("SELECT dfid FROM decision_flows ORDER BY created_at, dfid")


def sitting(place: Place, runs: int, chance: random.Random) -> Counts:
    """Record that many runs in a new store, and replay them."""
    with place.open() as store:
        store.agents.register("trader", version="1")
        return replay(store, runs, chance)


def replay(store: sync.Holdproof, runs: int, chance: random.Random) -> Counts:
    """Record that many runs, replay all of them as another program, and judge what that did."""
    recorded_world = World()
    random_flows.run(other(store), recorded_world, runs, chance)
    flow_ids = [flow_id for (flow_id,) in store.read(lambda tx: tx.all(_FLOWS))]
    assert len(flow_ids) == len(recorded_world.inputs) >= runs
    program = other(store)
    world = World()
    random_flows.register(program, world)
    before = store.read(traces)
    with no_sockets():
        replays = [program.flows.replay(flow_id) for flow_id in flow_ids]
    assert [each for each in replays if not each.equal or not each.inputs_equal] == []
    assert world.done == [], "steps were executed"
    assert store.read(traces) == before, "something was written"
    assert sorted(map(as_recorded, world.inputs)) == sorted(map(as_recorded, recorded_world.inputs))
    steps, transitions = before[:2]
    return {"flows replayed": len(replays), "steps on record": steps, "transitions on record": transitions}


def other(store: sync.Holdproof) -> sync.Holdproof:
    """Another program: the same store, with nothing registered."""
    return sync.Holdproof(store.core)


def traces(tx: Tx) -> Any:
    """What any write of a flow would change."""
    return tx.one(_TRACES)


def as_recorded(value: Any) -> str:
    """The bytes that are recorded of a value, as text."""
    return recorded.dump(typed_json.encode(value))


@contextmanager
def no_sockets() -> Iterator[None]:
    """Let Python open no socket."""

    def refuse(*args: Any, **kwargs: Any) -> None:  # noqa: ARG001 (called as sockets are)
        raise AssertionError("a socket was opened")

    with mock.patch.object(socket, "socket", refuse), mock.patch.object(socket, "create_connection", refuse):
        yield


PLAN: Final = Plan(
    "replays",
    "a recorded run that is replayed has the same inputs byte for byte, executes no step, opens no socket and writes"
    " nothing",
    sitting,
    rounds=1_000,
    rounds_a_sitting=100,
)


def arguments(parser: Any) -> None:
    """How many runs, on which database, for how long."""
    sittings.arguments(parser, PLAN)


def run(given: argparse.Namespace, say: Say) -> Proof:
    """Record and replay; the counts."""
    return sittings.run(given, say, PLAN)
