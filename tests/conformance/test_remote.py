"""A store on a server: the suites of the nouns, their verbs called over HTTP.

What a test does past the verbs (functions of a transaction, the store's own files) it does to the store itself.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from types import TracebackType
from typing import Any

import pytest

from holdproof import errors, sync
from holdproof.remote import SyncRemote, connect_sync
from tests.conformance.decisions import OnSqlite
from tests.conformance.test_agents import Agents
from tests.conformance.test_escalations import Escalations
from tests.conformance.test_flows import Flows
from tests.conformance.test_idempotency import Idempotency
from tests.conformance.test_locks import Locks
from tests.conformance.test_messages import Messages
from tests.conformance.test_objects import Objects
from tests.conformance.test_records import Records
from tests.conformance.test_recovery import Recovery
from tests.conformance.test_retries import Retries
from tests.conformance.test_sagas import Sagas
from tests.conformance.test_schedules import Schedules
from tests.conformance.test_search import Search
from tests.conformance.test_snapshots import Snapshots
from tests.conformance.test_steps import Steps
from tests.conformance.test_timelines import Timelines
from tests.conformance.test_values import Values
from tests.served import Stage, staged


class Nearest:
    """A noun over HTTP; what has to be done where the store is (a file, a function in a transaction) is done there."""

    def __init__(self, far: Any, near: Any) -> None:
        self._far, self._near = far, near

    def __getattr__(self, verb: str) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            try:
                return getattr(self._far, verb)(*args, **kwargs)
            except errors.RemoteError:
                return getattr(self._near, verb)(*args, **kwargs)

        return call


class Distant(SyncRemote):
    """A store whose verbs are called over HTTP, and all else on the store itself."""

    def __init__(self, far: SyncRemote, near: sync.Holdproof, ending: ExitStack) -> None:
        super().__init__(far._wire)
        self.near, self._ending = near, ending
        for name in ("write", "read", "run", "scan", "core", "context", "check", "database", "status"):
            setattr(self, name, getattr(near, name))
        for name in ("archive", "keys", "objects", "snapshots"):
            setattr(self, name, Nearest(getattr(self, name), getattr(near, name)))

    def close(self) -> None:
        super().close()
        self._ending.close()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with staged() as found:
        yield found


class OnServer(OnSqlite):
    @pytest.fixture(autouse=True)
    def _stage(self, stage: Stage) -> None:
        self.stage = stage

    def open(self, **options: Any) -> sync.Holdproof:
        with ExitStack() as entering:
            near = entering.enter_context(sync.open(**self.target(), **options))
            token = entering.enter_context(self.stage.showing(near.core, options.get("ns")))
            far: Any = Distant(connect_sync(self.stage.url, token), near, entering.pop_all())
            return far  # type: ignore[no-any-return]


class TestAgents(OnServer, Agents):
    pass


class TestRecovery(OnServer, Recovery):
    pass


class TestEscalations(OnServer, Escalations):
    pass


class TestFlows(OnServer, Flows):
    pass


class TestIdempotency(OnServer, Idempotency):
    pass


class TestLocks(OnServer, Locks):
    pass


class TestMessages(OnServer, Messages):
    pass


class TestRecords(OnServer, Records):
    pass


class TestRetries(OnServer, Retries):
    pass


class TestSagas(OnServer, Sagas):
    pass


class TestSchedules(OnServer, Schedules):
    pass


class TestSteps(OnServer, Steps):
    pass


class TestTimelines(OnServer, Timelines):
    pass


class TestObjects(OnServer, Objects):
    pass


class TestSearch(OnServer, Search):
    pass


class TestSnapshots(OnServer, Snapshots):
    pass


class TestValues(OnServer, Values):
    @pytest.mark.parametrize("wrong", [{1: 2}, float("nan"), 2**64, object(), "\ud800", {"a": "x" * 2**21}])
    def test_what_dag_cbor_has_no_word_for_is_refused_and_nothing_is_written(
        self, store: sync.Holdproof, wrong: Any
    ) -> None:
        """A tuple is told as a list over the wire; everything else as on the store itself."""
        super().test_what_dag_cbor_has_no_word_for_is_refused_and_nothing_is_written(store, wrong)
