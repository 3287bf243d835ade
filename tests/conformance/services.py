"""The database of services with a clock that stands still, on every backend, for the services that live on it."""

import os
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from holdfast.faces import SyncFace
from holdfast.testing import FrozenClock
from tests.conformance.membranes import Place

WALKS = int(os.environ.get("HOLDFAST_WALKS", "1"))


class OnMembrane(Place):
    walks = 20

    @pytest.fixture
    def clock(self) -> FrozenClock:
        return FrozenClock()

    @pytest.fixture
    def face(self, clock: FrozenClock) -> Iterator[SyncFace]:
        database = self.database("membrane", clock=clock)
        try:
            yield SyncFace(database)
            assert database.backend.check() == []
        finally:
            database.close()

    def walk(self, machine: type[RuleBasedStateMachine]) -> None:
        """Walk a model at random beside the database."""
        limits: dict[str, Any] = {"max_examples": self.walks * WALKS, "stateful_step_count": 25, "deadline": None}
        limits |= {"database": None, "suppress_health_check": list(HealthCheck)}
        run_state_machine_as_test(machine, settings=settings(**limits))
