"""A simulated runtime: a thin sample of `python -m proof simulation`, and proof that its rules can fail."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from holdproof.db import MEMORY, Tx, sql
from proof.simulation import ending
from proof.simulation.acts import Scene
from proof.simulation.rules import Rules
from proof.simulation.simulated_store import opening
from proof.simulation.stage import Outcome, Size, begin, simulate
from proof.simulation.world import World

SMALL = Size(agents=40, steps=2_000, days=16)


def run(home: Path, url: str | None, *, seed: int = 5, size: Size = SMALL) -> Outcome:
    return simulate("test", *opening(seed, home, url), seed, size, lambda _: None)


def test_simulated_weeks_break_no_rule_in_a_file(tmp_path: Path) -> None:
    outcome = run(tmp_path / "home", None)
    assert outcome.broken == []
    assert outcome.counts["crashes"] > 2
    assert outcome.counts["flows"] > 10
    assert outcome.counts["checks"] > 500


def test_simulated_weeks_break_no_rule_on_a_server(tmp_path: Path, postgres_url: str) -> None:
    outcome = run(tmp_path / "home", postgres_url, size=Size(agents=6, steps=800, days=9))
    assert outcome.broken == []
    assert outcome.counts["flows"] > 2


def test_one_seed_gives_one_log(tmp_path: Path) -> None:
    roots = [
        run(tmp_path / str(number), MEMORY, seed=seed, size=Size(15, 800, 9)).root
        for number, seed in enumerate((5, 5, 6))
    ]
    assert roots[0] == roots[1] != roots[2]


# --- rules that can fail -----------------------------------------------------------------------------------------

_BROKEN: dict[str, tuple[str, str]] = {
    "capacity": (
        "INSERT INTO resource_locks (resource_id, dfid, amount, acquired_at, capacity, fence, ns)"
        " SELECT 'pool 0', dfid, 6, created_at, 10, row_number() OVER (ORDER BY dfid), 'main' FROM decision_flows"
        " LIMIT 3",
        "a resource is out beyond its capacity",
    ),
    "exclusive": (
        "INSERT INTO resource_locks (resource_id, dfid, amount, acquired_at, fence, ns)"
        " SELECT 'room 0', dfid, 1, created_at, row_number() OVER (ORDER BY dfid), 'main' FROM decision_flows LIMIT 2",
        "a resource is out beyond its capacity",
    ),
    "ended": (
        "INSERT INTO resource_locks (resource_id, dfid, amount, acquired_at, fence, ns)"
        " SELECT 'room 9', dfid, 1, created_at, 1, 'main' FROM decision_flows WHERE status = 'COMPLETED' LIMIT 1",
        "a flow that has ended holds a lock",
    ),
    "edge": (
        "INSERT INTO flow_transitions (dfid, root_dfid, from_status, to_status, created_at, ns, leaf_id, leaf_ver,"
        " leaf_salt) SELECT dfid, root_dfid, 'COMPLETED', 'RUNNING', created_at, ns, leaf_id, leaf_ver, leaf_salt"
        " FROM flow_transitions WHERE to_status = 'COMPLETED' LIMIT 1",
        "a flow moved along no legal edge",
    ),
    "decided once": (
        "UPDATE escalation_requests SET status = 'PENDING' WHERE id ="
        " (SELECT min(id) FROM escalation_requests WHERE status <> 'PENDING')",
        "a question was settled and is open again",
    ),
    "lost": ("DELETE FROM decision_flows WHERE dfid = (SELECT max(dfid) FROM decision_flows)", "a flow is lost"),
    "stuck": (
        "UPDATE decision_flows SET status = 'CANCELLED' WHERE status = 'COMPLETED'",
        "without having moved there",
    ),
    "budget": (
        "INSERT INTO escalation_budget (agent_id, created_at, ns) SELECT agent_id, registered_at, ns"
        " FROM agent_registry LIMIT 1",
        "budgets do not say what was spent",
    ),
    "purse": ("UPDATE agent_state SET version = version + 1", "a purse is overdrawn, or lost an update"),
    "log": ("UPDATE log_state SET size = size + 1", "the head of the log is not the root of its leaves"),
    "step": (
        "UPDATE flow_steps SET state = 'STARTED', leaf_ver = leaf_ver + 1 WHERE state = 'DONE'",
        "a step went a way that there is not",
    ),
    "fence": (
        "INSERT INTO resource_locks (resource_id, dfid, amount, acquired_at, fence, ns)"
        " SELECT resource_id, (SELECT dfid FROM decision_flows WHERE status = 'FAILED' LIMIT 1), 1, 'now', 1, ns"
        " FROM lock_fences WHERE fence > 1 LIMIT 1",
        "a fencing token did not grow",
    ),
}


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Scene, Rules]]:
    """A run that has gone on for some weeks."""
    scene, rules = begin(*opening(5, tmp_path_factory.mktemp("run"), MEMORY), 5, SMALL)
    while scene.engine.counts["steps"] < SMALL.steps:
        scene.engine.step()
    assert scene.engine.broken == []
    yield scene, rules
    scene.engine.store.close()


class _UndoneError(Exception):
    """Rolls back what was done behind the runtime's back."""


@pytest.mark.parametrize("rule", _BROKEN)
def test_a_rule_that_is_broken_behind_the_back_is_reported(rule: str, played: tuple[Scene, Rules]) -> None:
    statement, told = _BROKEN[rule]
    scene, rules = played
    done = [flow_id for (flow_id, _, _), (state, _) in rules.steps.items() if state == "DONE"]
    own = replace(rules, status=dict(rules.status), steps=dict(rules.steps), fences=rules.fences.copy())

    def meddle(tx: Tx) -> None:
        assert tx.count(sql(statement)) > 0
        own.look(tx, done[0])
        own.lost(tx)
        scene.engine.broken += ending.findings(tx, own)
        raise _UndoneError

    with pytest.raises(_UndoneError):
        scene.engine.store.write(meddle)
    assert any(told in line for line in scene.engine.broken), scene.engine.broken
    scene.engine.broken.clear()
    scene.engine.store.read(lambda tx: rules.look(tx, done[0]))
    assert scene.engine.broken == []


def test_an_effect_that_happens_once_too_often_is_reported() -> None:
    told: list[str] = []
    world = World(lambda rule, *_: told.append(rule), lambda: 0)
    world.begun["flow", "pay", 1] = 1
    world.act("flow", "pay", 1)
    world.call("key", ttl_s=60)
    assert told == []
    world.act("flow", "pay", 1)
    world.call("key", ttl_s=60)
    assert told == ["a step was executed more often than it was begun", "a key was executed more often than allowed"]
