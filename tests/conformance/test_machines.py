"""Random walks of plain Python models beside every backend (see machines.py); HOLDPROOF_WALKS for longer ones."""

import os

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from holdproof import sync
from holdproof.testing import FrozenClock
from tests.conformance.access_machine import TokenMachine
from tests.conformance.decisions import InMemory, OnPostgres, OnSqlite, OnStore
from tests.conformance.machines import MACHINES, Machine
from tests.conformance.memory_machines import ObjectMachine
from tests.conformance.note_machine import NoteMachine
from tests.conformance.thread_machines import ThreadMachine
from tests.conformance.transcript_machines import TranscriptMachine

WALKS = int(os.environ.get("HOLDPROOF_WALKS", "1"))


class Models(OnStore):
    walks = 20

    @pytest.mark.parametrize(
        "machine",
        [*MACHINES, NoteMachine, ObjectMachine, ThreadMachine, TokenMachine, TranscriptMachine],
        ids=lambda machine: machine.__name__,
    )
    def test_a_random_walk_ends_where_the_model_does(
        self, store: sync.Holdproof, clock: FrozenClock, machine: type[Machine]
    ) -> None:
        machine.store, machine.clock = store, clock
        limits = settings(
            max_examples=self.walks * WALKS,
            stateful_step_count=25,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        )
        run_state_machine_as_test(machine, settings=limits)


class TestSqlite(OnSqlite, Models):
    walks = 5


class TestMemory(InMemory, Models):
    pass


class TestPostgres(OnPostgres, Models):
    walks = 3
