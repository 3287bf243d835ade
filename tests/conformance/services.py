"""The database of services with a clock that stands still, on every backend, for the services that live on it."""

import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from holdproof.db import Tx
from holdproof.executors import SyncExecutor
from holdproof.testing import FrozenClock
from tests.conformance.membranes import Place

T = TypeVar("T")

WALKS = int(os.environ.get("HOLDPROOF_WALKS", "1"))


class OnMembrane(Place):
    walks = 20

    @pytest.fixture
    def clock(self) -> FrozenClock:
        return FrozenClock()

    @pytest.fixture
    def face(self, clock: FrozenClock) -> Iterator[SyncExecutor]:
        database = self.database("membrane", clock=clock)
        try:
            yield SyncExecutor(database)
            assert database.backend.check() == []
        finally:
            database.close()

    def walk(self, machine: type[RuleBasedStateMachine]) -> None:
        """Walk a model at random beside the database."""
        limits: dict[str, Any] = {"max_examples": self.walks * WALKS, "stateful_step_count": 25, "deadline": None}
        limits |= {"database": None, "suppress_health_check": list(HealthCheck)}
        run_state_machine_as_test(machine, settings=settings(**limits))


def behind(face: SyncExecutor, first: Callable[[Tx], Any], second: Callable[[], T]) -> T:
    """What `second` is answered if it begins while `first` has written and is not committed yet."""
    written, begun = threading.Event(), threading.Event()

    def held(tx: Tx) -> None:
        first(tx)
        written.set()
        begun.wait(30)
        time.sleep(0.2)  # for the other to get as far as it can

    def late() -> T:
        written.wait(30)
        begun.set()
        return second()

    with ThreadPoolExecutor(2) as pool:
        holding, answer = pool.submit(face.write, held), pool.submit(late)
        holding.result(60)
        return answer.result(60)
