"""The command line with `--server`: the suites of the resources, each command sent to a server."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from holdproof import sync
from tests.cli_parity import CommandStore
from tests.conformance.decisions import OnSqlite
from tests.conformance.test_agents import Agents
from tests.conformance.test_cli_parity import RESOURCES
from tests.conformance.test_escalations import Escalations
from tests.conformance.test_flows import Flows
from tests.conformance.test_locks import Locks
from tests.conformance.test_objects import Objects
from tests.conformance.test_records import Records
from tests.conformance.test_sagas import Sagas
from tests.conformance.test_schedules import Schedules
from tests.conformance.test_search import Search
from tests.conformance.test_snapshots import Snapshots
from tests.conformance.test_timelines import Timelines
from tests.served import Stage, staged


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with staged() as found:
        yield found


class _Shown(CommandStore):
    """A store that a server shows for as long as it is open."""

    def __init__(self, near: sync.Holdproof, folder: Path, through: list[str], ending: ExitStack) -> None:
        super().__init__(near, folder, RESOURCES, through)
        self._ending = ending

    def close(self) -> None:
        self._ending.close()

    def __exit__(self, *_: object) -> None:
        self.close()


class ThroughServer(OnSqlite):
    @pytest.fixture(autouse=True)
    def _stage(self, tmp_path: Path, stage: Stage) -> None:
        self.folder = tmp_path
        self.stage = stage

    def open(self, **options: Any) -> sync.Holdproof:
        with ExitStack() as entering:
            near = entering.enter_context(sync.open(**self.target(), **options))
            token = entering.enter_context(self.stage.showing(near.core, options.get("ns")))
            through = ["--server", self.stage.url, "--token", token]
            store: Any = _Shown(near, self.folder, through, entering.pop_all())
            return store  # type: ignore[no-any-return]


class TestAgents(ThroughServer, Agents):
    pass


class TestEscalations(ThroughServer, Escalations):
    pass


class TestFlows(ThroughServer, Flows):
    pass


class TestLocks(ThroughServer, Locks):
    pass


class TestRecords(ThroughServer, Records):
    pass


class TestSagas(ThroughServer, Sagas):
    pass


class TestSchedules(ThroughServer, Schedules):
    pass


class TestTimelines(ThroughServer, Timelines):
    pass


class TestObjects(ThroughServer, Objects):
    pass


class TestSearch(ThroughServer, Search):
    pass


class TestSnapshots(ThroughServer, Snapshots):
    pass
