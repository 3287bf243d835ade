"""The mutants themselves: which changes are made, what they are called, and that they are tried for real."""

import subprocess
import sys

import pytest

from proof import mutants as proof
from proof.mutants import targets
from proof.mutants.mutate import mutants

SOURCE = '''
"""A module."""
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
    assert not [each for each in changes() if "int & None" in each]


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


def test_what_is_explained_says_why_and_still_exists() -> None:
    lines = (targets.ROOT / "proof" / "mutants" / "explained.txt").read_text().splitlines()
    assert all("  # " in line for line in lines if line and not line.startswith("#"))
    there = {each.name for target in targets.TARGETS for each in mutants(target.file, target.source())}
    assert proof.explained() <= there


@pytest.mark.slow
def test_a_mutant_is_killed_and_the_unchanged_source_is_not() -> None:
    program = (
        "import time\n"
        "from proof.mutants import trial, targets\n"
        "from proof.mutants.mutate import mutants\n"
        "[target] = [each for each in targets.TARGETS if each.file.endswith('/varint.py')]\n"
        "found = [each for each in mutants(target.file, target.source()) if 'raise' in each.was][:2]\n"
        "fates = trial.Court().fates([(target, each) for each in found], time.monotonic() + 60)\n"
        "print(sorted({fate for _, _, fate in fates}))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=targets.ROOT, capture_output=True, text=True, timeout=200, check=False
    )
    assert done.stdout.strip() == "['killed']", done.stderr
