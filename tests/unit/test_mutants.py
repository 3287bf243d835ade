"""The mutants themselves: which changes are made, what they are called, and that they are tried for real."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from proof import mutants as proof
from proof.mutants import targets, warm
from proof.mutants.sheet import Sheet
from proof.mutants.source_mutations import Mutant, mutants
from proof.report import Proof, save

SOURCE = '''
"""A module."""
Kind: TypeAlias = Literal[7]
_TAKE = sql("UPDATE t SET n = n - 1 WHERE id = :id AND n > 0")

def guard(n: int | None, most: int = 3) -> int:
    """Not more than so many."""
    if n is None or not n < most:
        raise ValueError(f"{n} > {most}")
    _log.info("all is well")
    check(n)
    return n + 1
'''


def changes() -> list[str]:
    return [each.name.removeprefix("f.py ") for each in mutants("f.py", SOURCE)]


@pytest.mark.parametrize(
    "change",
    [
        "guard: n is None -> n is not None",
        "guard: n is None or not n < most -> n is None and (not n < most)",
        "guard: not n < most -> n < most",
        "guard: n < most -> n <= most",
        "guard: n < most -> n >= most",
        "guard: check(n) -> nothing",
        "guard: n + 1 -> n - 1",
        "guard: 1 -> 2",
        "guard: 3 -> 4",
        "guard: raise ValueError(f'{n} > {most}') -> nothing",
        "module: 'UPDATE t SET n = n - 1 WHERE id = :id AND n > 0' -> 'UPDATE t SET n = n - 1 WHERE id = :id OR n > 0'",
    ],
)
def test_a_guard_is_weakened_in_every_way_that_counts(change: str) -> None:
    assert change in changes()


def test_operators_of_queries_are_exchanged_one_at_a_time() -> None:
    told = [each for each in changes() if each.startswith("module:")]
    assert any("n >= 0" in each for each in told)
    assert any("id <> :id" in each for each in told)
    assert all(each.count("->") == 1 for each in told)


def test_what_is_only_said_is_left_alone() -> None:
    assert not [each for each in changes() if "_log" in each.partition(" -> ")[0] or "A module" in each]
    assert not [each for each in changes() if "int & None" in each or "7" in each]


def test_every_mutant_differs_and_can_be_compiled() -> None:
    found = mutants("f.py", SOURCE)
    assert len({each.name for each in found}) == len(found)
    assert len({each.source for each in found}) == len(found)
    for each in found:
        compile(each.source, each.file, "exec")


def test_every_target_and_its_tests_are_there() -> None:
    for target in targets.TARGETS:
        assert mutants(target.file, target.source())
        for stage in target.stages:
            assert all((targets.ROOT / word).is_file() for word in stage if word.startswith("tests/"))


def test_only_what_does_not_depend_on_a_changed_file_is_loaded_beforehand() -> None:
    beside = warm.independent(["holdproof.evidence.tree"])
    assert {"holdproof.errors", "holdproof.crypto.merkle", "holdproof.evidence.leaves", "holdproof.db"} <= {*beside}
    assert not {"holdproof", "holdproof.sync", "holdproof.evidence.tree", "holdproof.evidence.log"} & {*beside}
    assert "holdproof.db.sql" not in warm.independent(["holdproof.db"]), "what lies in a package imports it"


def test_what_is_explained_says_why_and_still_exists() -> None:
    lines = (targets.ROOT / "proof" / "mutants" / "explained.txt").read_text().splitlines()
    assert all("  # " in line for line in lines if line and not line.startswith("#"))
    there = {each.name for target in targets.TARGETS for each in mutants(target.file, target.source())}
    assert proof.explained() <= there


BEFORE: dict[str, Any] = {
    "rows": [
        {"file": "a.py", "mutants": 3, "tried": 3, "killed": 1, "timed out": 0, "explained": 0, "survived": 2},
        {"file": "b.py", "mutants": 2, "tried": 1, "killed": 0, "timed out": 0, "explained": 0, "survived": 1},
        {"file": "gone.py", "mutants": 1, "tried": 1, "killed": 0, "timed out": 0, "explained": 0, "survived": 1},
    ],
    "broken": [
        "a.py f: x < 1 -> x <= 1 (line 7) fails no test",
        "a.py f: x < 1 -> x >= 1 (line 7) fails no test",
        "b.py g: 1 -> 2 (line 1) fails no test",
        "gone.py h: 1 -> 2 (line 1) fails no test",
    ],
    "took_s": 60,
}
THERE = {
    "a.py": ["a.py f: x < 1 -> x <= 1", "a.py f: x < 1 -> x >= 1", "a.py f: x < 2 -> x <= 2", "a.py f: 1 -> 2"],
    "b.py": ["b.py g: 1 -> 2", "b.py g: 3 -> 4"],
    "c.py": [f"c.py h: {number} -> {number + 1}" for number in range(5)],
}


def mutant(name: str) -> Mutant:
    file, _, rest = name.partition(" ")
    place, _, change = rest.partition(": ")
    was, _, now = change.partition(" -> ")
    return Mutant(file, place, 9, was, now, str)


def test_what_a_run_finds_about_a_file_takes_the_place_of_what_was_known_and_other_files_keep_their_rows() -> None:
    sheet = Sheet(THERE, BEFORE, again=False)
    sheet.note(mutant("a.py f: x < 1 -> x <= 1"), "killed")
    sheet.note(mutant("a.py f: x < 2 -> x <= 2"), "survived")
    assert [(row["file"], row["mutants"], row["tried"], row["survived"]) for row in sheet.rows()] == [
        ("a.py", 4, 2, 1),
        ("b.py", 2, 1, 1),
        ("c.py", 5, 0, 0),
    ]
    assert sheet.broken() == ("a.py f: x < 2 -> x <= 2 (line 9) fails no test", BEFORE["broken"][2])
    assert sheet.counts() == {
        "files": 3,
        "files tried whole": 0,
        "mutants": 11,
        "tried": 3,
        "killed": 1,
        "of these by a time limit": 0,
        "explained": 0,
        "survived": 2,
    }
    assert sheet.before_s() == 60


def test_a_run_of_all_files_owes_nothing_to_earlier_ones() -> None:
    sheet = Sheet({"a.py": ["a.py f: 1 -> 2"], "b.py": ["b.py g: 1 -> 2"]}, BEFORE, again=False)
    sheet.note(mutant("a.py f: 1 -> 2"), "killed")
    sheet.note(mutant("b.py g: 1 -> 2"), "timed out")
    assert sheet.counts()["files tried whole"] == sheet.counts()["killed"] == 2
    assert (sheet.broken(), sheet.before_s()) == ((), 0)


def test_a_run_again_exchanges_survivors_only_and_keeps_those_it_did_not_come_to() -> None:
    sheet = Sheet(THERE, BEFORE, again=True)
    assert sheet.survivors == {"a.py f: x < 1 -> x <= 1", "a.py f: x < 1 -> x >= 1", "b.py g: 1 -> 2"}
    sheet.note(mutant("a.py f: x < 1 -> x <= 1"), "killed")
    sheet.note(mutant("b.py g: 1 -> 2"), "survived")
    rows = {row["file"]: row for row in sheet.rows()}
    assert (rows["a.py"]["killed"], rows["a.py"]["survived"], rows["b.py"]["survived"]) == (2, 1, 1)
    assert sheet.survivors == {"a.py f: x < 1 -> x >= 1", "b.py g: 1 -> 2"}


def test_a_survivor_whose_line_is_gone_is_forgotten() -> None:
    sheet = Sheet({**THERE, "a.py": ["a.py f: x < 1 -> x <= 1"]}, BEFORE, again=True)
    assert sheet.survivors == {"a.py f: x < 1 -> x <= 1", "b.py g: 1 -> 2"}
    assert [(row["tried"], row["survived"]) for row in sheet.rows()] == [(2, 1), (1, 1), (0, 0)]


def test_how_long_it_took_is_told_of_all_runs_that_count(tmp_path: Path) -> None:
    kept = json.loads(save(Proof("mutants", "…", 1, {}, before_s=60.0), 5.2, tmp_path).read_text())
    assert kept["took_s"] == 65
    assert "before_s" not in kept


@pytest.mark.slow
def test_a_mutant_is_killed_and_the_unchanged_source_is_not() -> None:
    program = (
        "import time\n"
        "from proof.mutants import trial, targets\n"
        "from proof.mutants.source_mutations import mutants\n"
        "[target] = [each for each in targets.TARGETS if each.file.endswith('/varint.py')]\n"
        "found = [each for each in mutants(target.file, target.source()) if 'raise' in each.was][:2]\n"
        "fates = trial.Court().fates([(target, each) for each in found], time.monotonic() + 60)\n"
        "print(sorted({fate for _, _, fate in fates}))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=targets.ROOT, capture_output=True, text=True, timeout=200, check=False
    )
    assert done.stdout.strip() == "['killed']", done.stderr
