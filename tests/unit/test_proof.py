"""How proofs are told and kept; the proofs themselves run in tests/faults."""

import json
import random
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from pathlib import Path

import pytest

from proof import PROOFS, __main__, page, report
from proof.workflows import sittings
from proof.workflows.sittings import Place, Plan

FOUND = report.Proof("faults", "nothing is lost", 7, {"faults": 12_000, "lost": 0}, rows=({"kind": "a|b", "n": 1_000},))


def test_what_a_proof_found_is_kept_and_told(tmp_path: Path) -> None:
    kept = json.loads(report.save(FOUND, 61.4, tmp_path).read_text())
    assert (kept["seed"], kept["took_s"], kept["counts"]) == (7, 61, {"faults": 12_000, "lost": 0})
    assert "12,000  faults" in report.told(FOUND)
    assert FOUND.holds
    broken = report.Proof("faults", "nothing is lost", 7, {"lost": 1}, ("row 3 of flows: --seed 7 --at 3",))
    assert not broken.holds
    assert "BROKEN: row 3" in report.told(broken)


def test_figures_are_written_between_their_marks_and_nowhere_else(tmp_path: Path) -> None:
    report.save(FOUND, 200, tmp_path)
    text = "words\n<!-- faults -->\nold\n<!-- /faults -->\nmore words\n"
    filled = page.filled(text, tmp_path)
    assert filled.startswith("words\n<!-- faults -->\nSeed 7, 3 minutes.\n")
    assert "| faults | 12,000 |" in filled
    assert "| a\\|b | 1,000 |" in filled
    assert "old" not in filled
    assert page.filled(filled, tmp_path) == filled


def test_the_page_of_reliability_is_what_the_kept_figures_say() -> None:
    assert page.PAGE.read_text() == page.filled(page.PAGE.read_text()), "python -m proof.page writes it anew"


# --- proofs of many rounds -------------------------------------------------------------------------------------------


def plan_of(sitting: Callable[[Place, int, random.Random], sittings.Counts]) -> Plan:
    return Plan("walks", "nobody falls", sitting, rounds=5, rounds_a_sitting=2)


def given(*words: str, plan: Plan) -> Namespace:
    parser = ArgumentParser()
    parser.add_argument("--seed", type=int, default=1)
    sittings.arguments(parser, plan)
    return parser.parse_args(["--database", "sqlite", *words])


def walk(place: Place, rounds: int, chance: random.Random) -> sittings.Counts:
    assert place.folder.is_dir()
    assert not place.home.exists()
    assert chance.random() != 0
    return {"steps": 10 * rounds, "largest step": rounds}


def test_a_run_has_as_many_rounds_as_it_is_asked_for_some_in_each_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sittings, "FIGURES", tmp_path)
    plan = plan_of(walk)
    found = sittings.run(given(plan=plan), lambda _: None, plan)
    assert found.holds
    assert found.counts == {"rounds": 5, "sittings": 3, "steps": 50}
    assert [(row["database"], row["seed"], row["largest step"]) for row in found.rows] == [("sqlite", 1, 2)]
    assert sittings.run(given("--minutes", "0", plan=plan), lambda _: None, plan).counts["rounds"] == 0


def test_a_run_on_one_database_keeps_what_is_known_of_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sittings, "FIGURES", tmp_path)
    row = {"database": "postgres", "seed": 7, "minutes": 3, "rounds": 9, "sittings": 5, "steps": 90, "largest step": 3}
    report.save(report.Proof("walks", "nobody falls", 7, {}, ("postgres, sitting 4: fell",), (row,)), 180, tmp_path)
    plan = plan_of(walk)
    found = sittings.run(given(plan=plan), lambda _: None, plan)
    assert found.counts == {"rounds": 14, "sittings": 8, "steps": 140}
    assert [row["database"] for row in found.rows] == ["sqlite", "postgres"]
    assert (found.broken, found.before_s) == (("postgres, sitting 4: fell",), 180)


def test_a_sitting_that_fails_breaks_the_claim_and_the_others_are_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sittings, "FIGURES", tmp_path)

    def stumble(place: Place, rounds: int, chance: random.Random) -> sittings.Counts:
        assert place.folder.name != "sitting1", "fell"
        return walk(place, rounds, chance)

    plan = plan_of(stumble)
    found = sittings.run(given(plan=plan), lambda _: None, plan)
    assert found.counts == {"rounds": 5, "sittings": 3, "steps": 30}
    [line] = found.broken
    assert line.startswith("sqlite, sitting 1: AssertionError: fell")


def test_every_proof_has_a_command_line_of_its_own() -> None:
    for name in PROOFS:
        assert __main__.parser(name).parse_args([name, "--seed", "7"]).seed == 7
    with pytest.raises(SystemExit):
        __main__.main(["--rounds", "7"])  # an option of one proof, without its name
