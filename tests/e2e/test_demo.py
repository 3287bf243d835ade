"""The demonstration: everything in it is real, and what it tells the reader to run works."""

import json
import shlex
from itertools import dropwhile
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from holdproof import sync
from holdproof.cli.app import app
from holdproof.demo import ACTS, Scene, StoryEvent


def run(*words: str) -> Result:
    return CliRunner().invoke(app, words)


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The story, told once."""
    home = tmp_path_factory.mktemp("demo") / "a store"
    result = run("--home", str(home), "demo", "--json")
    assert result.exit_code == 0, result.output
    return dict(json.loads(result.stdout))


def facts(played: dict[str, Any], act: str) -> dict[str, Any]:
    return {name: value for told in played["events"] if told["act"] == act for name, value in told["facts"].items()}


def test_every_act_is_played_in_order(played: dict[str, Any]) -> None:
    assert list(dict.fromkeys(told["act"] for told in played["events"])) == [act.__name__ for act in ACTS]


def test_the_facts_are_those_the_store_has(played: dict[str, Any]) -> None:
    assert facts(played, "deciding")["placed"] == 1
    assert facts(played, "asking")["order"]["amount"] == 400
    assert facts(played, "killed")["booked"] == 1
    assert facts(played, "tampered")["verdict"] == "TAMPERED"
    assert facts(played, "proven")["verdict"] == "VALID"
    with sync.open(played["home"]) as store:
        assert store.flows.get(facts(played, "killed")["flow_id"]).status == "COMPLETED"
        assert store.escalations.get(facts(played, "asking")["escalation"]).resolved_by == "ann"
        assert store.verify.run(full=True).verdict.sound


def test_what_the_reader_is_told_to_run_works_as_it_stands(played: dict[str, Any]) -> None:
    assert len(played["checks"]) == 7
    for what, line in played["checks"].items():
        words = shlex.split(line)
        result = run(*dropwhile(lambda word: word not in {"--home", "verify"}, words))
        assert result.exit_code == (20 if "exits with 20" in what else 0), (line, result.output)
    assert Path(played["bundle"]).exists()


def test_the_terminal_is_told_the_same_and_a_place_that_is_taken_is_refused(
    played: dict[str, Any], tmp_path: Path
) -> None:
    shown = run("--home", str(tmp_path / "home"), "demo")
    assert shown.exit_code == 0
    for act in ACTS:
        assert act.__name__.capitalize() in shown.stdout
    assert "verify --full" in shown.stdout
    assert "LOCKED" not in shown.stderr
    assert run("--home", played["home"], "demo").exit_code == 4


@pytest.mark.parametrize("words", [["demo"], ["up", "--demo", "--once", "--port", "0"]])
def test_the_database_that_the_environment_names_is_not_told_the_story(
    words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDPROOF_DATABASE_URL", "postgresql://production.invalid/agents")
    refused = run(*words)
    assert refused.exit_code == 7
    assert "store of its own" in refused.output
    assert "env -u HOLDPROOF_DATABASE_URL" in refused.output


def test_a_database_that_is_named_is_not_told_the_story() -> None:
    refused = run("--url", "postgresql://localhost/production", "demo")
    assert refused.exit_code == 7
    assert "without --url" in refused.output


def test_a_file_is_no_place_for_the_story(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    refused = run("--home", str(tmp_path / "file"), "demo")
    assert refused.exit_code == 7
    assert "is a file, not a folder" in refused.output


def test_a_living_store_on_a_server_hears_the_story_and_lives_on(postgres_store: tuple[str, Path]) -> None:
    url, home = postgres_store
    told: list[StoryEvent] = []
    with sync.open(home, url) as store:
        scene = Scene(store, told.append)
        for act in ACTS:
            act(scene)
        deciding, *_ = ACTS
        deciding(scene)  # as often as one likes
        store.agents.register("somebody", version="1.0.0")
        assert store.verify.run(full=True).verdict.sound
    assert [each.facts["verdict"] for each in told if "verdict" in each.facts] == ["VALID"]
