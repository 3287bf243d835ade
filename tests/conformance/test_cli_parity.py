"""The command line: the suites of the nouns, their verbs said as commands wherever there is one."""

from pathlib import Path
from typing import Any

import pytest

from holdproof import sync
from holdproof.api.catalogue import entries
from tests.cli_parity import SAID, UNSAID, Spoken
from tests.conformance.decisions import OnSqlite
from tests.conformance.test_agents import Agents
from tests.conformance.test_escalations import Escalations
from tests.conformance.test_flows import Flows
from tests.conformance.test_locks import Locks
from tests.conformance.test_objects import Objects
from tests.conformance.test_records import Records
from tests.conformance.test_sagas import Sagas
from tests.conformance.test_search import Search
from tests.conformance.test_snapshots import Snapshots
from tests.conformance.test_timelines import Timelines

NOT_SAID = {
    "idempotency": "a function that runs once is a program's",
    "retries": "counted by the program that tries again",
    "steps": "functions of a program",
}
"""Suites of nouns that have no command at all."""


class OnCommandLine(OnSqlite):
    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.folder = tmp_path

    def open(self, **options: Any) -> sync.Holdproof:
        spoken: Any = Spoken(super().open(**options), self.folder)
        return spoken  # type: ignore[no-any-return]


def test_every_verb_of_these_nouns_has_a_command_or_a_reason() -> None:
    nouns = {noun for noun, _ in SAID}
    verbs = {each for each in entries() if each[0] in nouns}
    assert verbs - SAID.keys() - UNSAID.keys() == set()
    assert (SAID.keys() | UNSAID.keys()) - verbs == set()
    assert not nouns & NOT_SAID.keys()


class TestAgents(OnCommandLine, Agents):
    pass


class TestEscalations(OnCommandLine, Escalations):
    pass


class TestFlows(OnCommandLine, Flows):
    pass


class TestLocks(OnCommandLine, Locks):
    pass


class TestRecords(OnCommandLine, Records):
    pass


class TestSagas(OnCommandLine, Sagas):
    pass


class TestTimelines(OnCommandLine, Timelines):
    pass


class TestObjects(OnCommandLine, Objects):
    pass


class TestSearch(OnCommandLine, Search):
    pass


class TestSnapshots(OnCommandLine, Snapshots):
    pass
