"""The command line: the suites of the resources, their methods called as commands."""

from pathlib import Path
from typing import Any

import click
import pytest

from holdproof import sync
from holdproof.api.catalogue import entries, methods
from holdproof.cli import generate, index
from holdproof.cli.app import app
from tests.cli_parity import CommandStore, has_command
from tests.conformance.decisions import OnSqlite
from tests.conformance.test_agents import Agents
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

RESOURCES = frozenset(
    {"agents", "audit", "contexts", "escalations", "feedback", "flows", "image", "locks", "objects", "sagas"}
    | {"schedules", "snapshots", "state"}
)
"""Those whose suites run here."""
SHARED = {f"shared_{name}" for name in ("home", "url", "tenant", "server", "token", "json")}


class OnCommandLine(OnSqlite):
    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.folder = tmp_path

    def open(self, **options: Any) -> sync.Holdproof:
        store: Any = CommandStore(super().open(**options), self.folder, RESOURCES)
        return store  # type: ignore[no-any-return]


def test_the_index_of_commands_is_the_one_that_the_catalogue_makes() -> None:
    assert index.commands() == index.build(), "run: python -m holdproof.cli.index"


def test_every_method_has_a_command_of_its_name_unless_only_the_server_calls_it() -> None:
    for (resource, method), spec in methods().items():
        commands = index.commands().get(resource.replace("_", "-"), {}).get("commands", {})
        assert (method.replace("_", "-") in commands) == (not spec.exposure.internal), f"{resource} {method}"


def test_a_generated_command_takes_what_its_method_takes_and_nothing_else() -> None:
    for spec in methods().values():
        if spec.exposure.internal:
            continue
        command = generate.command(spec.resource, spec.method)
        names = {str(each.name).removeprefix("named_") for each in command.params}
        assert names - {*SHARED, "out_file", "assume_yes"} == {
            each.name for each in spec.parameters if each.name != "progress"
        }
        for parameter in spec.parameters:
            taken = [each for each in command.params if each.name == parameter.name]
            assert all(isinstance(each, click.Option) or parameter.positional for each in taken)
            assert all(each.required == parameter.required for each in taken), spec.name


def test_a_second_name_of_a_command_is_the_command_of_its_method() -> None:
    aliases = {spec.exposure.alias: spec for spec in methods().values() if spec.exposure.alias}
    assert {"export car", "import dir", "backup", "unlock"} <= aliases.keys()
    for words, spec in aliases.items():
        first, _, second = words.partition(" ")
        entry = index.commands()[first]
        assert (entry["commands"][second] if second else entry)["method"] == f"{spec.resource} {spec.method}"
        named = generate.command(spec.resource, spec.method, words=words)
        plain = generate.command(spec.resource, spec.method)
        assert [each.to_info_dict() for each in named.params] == [each.to_info_dict() for each in plain.params]
        assert (named.name, named.help) == (words.rpartition(" ")[2], plain.help)


# What runs beside other programs is no method of a store.
_BESIDE = {"hook", "mcp-proxy", "run"}


def test_about_twenty_five_commands_are_written_by_hand() -> None:
    """All others are their methods, so that `holdproof X` cannot contradict `store.X`."""
    written = [
        f"{name} {command}".strip()
        for name, entry in index.commands().items()
        for command, facts in {"": entry, **entry.get("commands", {})}.items()
        if "module" in facts and name not in _BESIDE
    ]
    assert len(written) <= 36, written


def test_every_parameter_has_a_description() -> None:
    silent = {
        f"{spec.name}.{each.name}" for spec in methods().values() for each in spec.parameters if not each.description
    }
    assert silent == set()


def test_most_methods_of_these_resources_are_called_as_commands() -> None:
    specs = [spec for (resource, _), spec in entries().items() if resource in RESOURCES]
    assert len([spec for spec in specs if has_command(spec)]) > 0.8 * len(specs)
    assert all(name in app.entries for name in RESOURCES)


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


class TestSchedules(OnCommandLine, Schedules):
    pass


class TestTimelines(OnCommandLine, Timelines):
    pass


class TestObjects(OnCommandLine, Objects):
    pass


class TestSearch(OnCommandLine, Search):
    pass


class TestSnapshots(OnCommandLine, Snapshots):
    pass
