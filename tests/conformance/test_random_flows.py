"""Flows made by chance, replayed and forked at every step; on every backend.

HOLDPROOF_REPLAYS and HOLDPROOF_FORKS say how many; by default there are few.
"""

import os
import random
import socket
from typing import Any

import pytest

from holdproof import sync
from holdproof.db import Tx, sql
from holdproof.model import typed_json
from holdproof.runtime import recorded
from tests.conformance import random_flows
from tests.conformance.decisions import InMemory, OnPostgres, OnSqlite, OnStore
from tests.conformance.random_flows import FatalError, World

REPLAYS = int(os.environ.get("HOLDPROOF_REPLAYS", "15"))
FORKS = int(os.environ.get("HOLDPROOF_FORKS", "3"))
SEED = 1890
_MODEL_CALLS = 40
_ANSWER = 8_000

_TRACES = sql(
    "SELECT (SELECT count(*) FROM flow_steps), (SELECT count(*) FROM flow_transitions),"
    " (SELECT count(*) FROM flow_values), (SELECT count(*) FROM decision_audit_events),"
    " (SELECT count(*) FROM decision_flows), (SELECT max(expires_at) FROM flow_leases)"
)
_FLOWS = sql("SELECT f.dfid, c.arguments FROM decision_flows f JOIN flow_calls c ON c.dfid = f.dfid AND c.ns = f.ns")
_ROWS = [
    *(
        sql(f"SELECT * FROM {table}")
        for table in ("decision_flows", "flow_calls", "flow_steps", "flow_transitions", "flow_leases", "objects")
    ),
    sql(
        "SELECT id, ver, leaf FROM log_leaves",
        postgres="SELECT id, ver, leaf FROM log_leaves UNION ALL SELECT id, ver, leaf FROM log_pending",
    ),
]


def traces(tx: Tx) -> Any:
    return tx.one(_TRACES)


def stored_bytes(tx: Tx) -> int:
    """How much the rows of flows and their entries in the log hold."""
    return sum(len(str(row)) for query in _ROWS for row in tx.all(query))


def other(store: sync.Holdproof) -> sync.Holdproof:
    """Another program: the same store, with nothing registered."""
    return sync.Holdproof(store.core)


def run_programs(store: sync.Holdproof, number: int) -> World:
    """Run that many programs, as a program of their own; some of them fail."""
    chance = random.Random(SEED)
    world = World()
    perform = random_flows.register(other(store), world)
    for _ in range(number):
        try:
            perform(random_flows.program(chance))
        except FatalError:
            continue
    return world


def long_agent(store: sync.Holdproof) -> Any:
    """Register an agent that asks a model again and again, until it says to stop; each answer is long."""

    @store.flow(agent="trader")
    def converse(flow: random_flows.Flow) -> str:
        for n in range(_MODEL_CALLS):
            if flow.step("ask", _answer, n) == "STOP":
                break
        return flow.flow_id

    return converse


def _answer(n: int) -> str:
    return random.Random(n).randbytes(_ANSWER // 2).hex()


def as_recorded(value: Any) -> str:
    return recorded.dump(typed_json.encode(value))


class RandomFlows(OnStore):
    def test_replays_have_equal_inputs_run_no_step_and_open_no_socket(
        self, live: sync.Holdproof, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        recorded_world = run_programs(live, REPLAYS)
        flow_ids = [flow_id for flow_id, _ in live.read(lambda tx: tx.all(_FLOWS))]
        assert len(flow_ids) == len(recorded_world.inputs) >= REPLAYS
        program = other(live)
        world = World()
        random_flows.register(program, world)
        before = live.read(traces)

        def refuse(*args: Any, **kwargs: Any) -> None:
            raise AssertionError("a socket was opened")

        monkeypatch.setattr(socket, "socket", refuse)
        monkeypatch.setattr(socket, "create_connection", refuse)
        replays = [program.flows.replay(flow_id) for flow_id in flow_ids]
        assert [replay for replay in replays if not replay.equal or not replay.inputs_equal] == []
        assert world.done == []
        assert live.read(traces) == before
        assert sorted(map(as_recorded, world.inputs)) == sorted(map(as_recorded, recorded_world.inputs))

    def test_forks_at_every_step_leave_the_world_as_it_is(self, live: sync.Holdproof) -> None:
        run_programs(live, FORKS)
        world = World()
        program = other(live)
        random_flows.register(program, world)
        for flow_id, _ in live.read(lambda tx: tx.all(_FLOWS)):
            origin = live.flows.get(flow_id)
            for step in live.flows.steps(flow_id):
                if step.compensates is not None:
                    continue
                at = f"{step.name} {step.n}"
                denied = program.flows.fork(flow_id, at=at)
                simulated = program.flows.fork(flow_id, at=at, effects="simulate")
                assert len(program.flows.recover().reruns) == 2
                assert live.flows.get(denied.flow_id).ended
                if origin.status == "COMPLETED":
                    assert program.flows.result(simulated.flow_id) == program.flows.result(flow_id)
                assert live.flows.get(flow_id) == origin
        assert world.done == []

    def test_a_fork_of_a_long_agent_is_a_fiftieth_of_it_at_any_step(self, store: sync.Holdproof) -> None:
        empty = store.read(stored_bytes)
        origin = long_agent(other(store))()
        whole = store.read(stored_bytes) - empty
        program = other(store)
        long_agent(program)
        shares: list[float] = []
        for n in range(1, _MODEL_CALLS + 1):
            before = store.read(stored_bytes)
            fork = program.flows.fork(origin, at=f"ask {n}", effects="real", answers={f"ask {n}": "STOP"})
            program.flows.recover()
            assert program.flows.result(fork.flow_id) == fork.flow_id
            shares.append((store.read(stored_bytes) - before) / whole)
        assert max(shares) < 0.02


class TestSqlite(OnSqlite, RandomFlows): ...


class TestMemory(InMemory, RandomFlows): ...


class TestPostgres(OnPostgres, RandomFlows): ...
