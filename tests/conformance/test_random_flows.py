"""Flows made by chance, replayed and forked at every step: a thin sample of `python -m proof replays` and `forks`."""

import random
import socket

import pytest

from holdproof import sync
from proof.workflows import forks
from proof.workflows.replays import no_sockets, replay
from tests.conformance.decisions import InMemory, OnPostgres, OnSqlite, OnStore

RUNS = 15
FORKED_RUNS = 3
SEED = 1890


class RandomFlows(OnStore):
    def test_replays_have_equal_inputs_run_no_step_and_open_no_socket(self, live: sync.Holdproof) -> None:
        counts = replay(live, RUNS, random.Random(SEED))
        assert counts["flows replayed"] >= RUNS
        assert counts["steps on record"] > RUNS

    def test_forks_at_every_step_leave_the_world_as_it_is(self, live: sync.Holdproof) -> None:
        counts = forks.fork_everywhere(live, FORKED_RUNS, random.Random(SEED))
        assert counts["forks"] > FORKED_RUNS

    def test_a_fork_of_a_long_agent_is_a_fiftieth_of_it_at_any_step(self, store: sync.Holdproof) -> None:
        shares = forks.shares_of_a_long_agent(store)
        assert len(shares) == forks.MODEL_CALLS
        assert 0 < max(shares) < forks.MOST_PERCENT / 100


class TestSqlite(OnSqlite, RandomFlows): ...


class TestMemory(InMemory, RandomFlows): ...


class TestPostgres(OnPostgres, RandomFlows): ...


# --- the judge can fail ----------------------------------------------------------------------------------------------


def test_a_socket_that_a_replay_opens_is_noticed() -> None:
    with no_sockets(), pytest.raises(AssertionError, match="a socket was opened"):
        socket.socket()
