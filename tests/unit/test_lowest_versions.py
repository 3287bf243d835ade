"""The lowest versions of frameworks: which are tested, and what counts as wrong."""

import tomllib

import pytest

from harness import lowest_versions
from harness.lowest_versions import CASES, ROOT, Case

OTHERS = {"all", "audit", "bench", "dev", "hnsw", "ipld", "policies", "postgres", "s3", "server", "site"}
OTHERS |= {"vectors", "vectors-fast"}
"""Extras that are no framework's."""


def test_every_extra_of_a_framework_is_run_at_its_bound() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert {case.extra for case in CASES} == set(project["optional-dependencies"]) - OTHERS
    for case in CASES:
        assert all("==" in pin for pin in lowest_versions.pinned(case))
        assert all((ROOT / file).is_file() for file in case.tests)


@pytest.mark.parametrize(
    ("output", "wrong"),
    [
        ("12 passed, 3 deselected in 4.56s", []),
        ("9 passed in 4.56s", ["9 passed, and there should be 10"]),
        ("FAILED tests/a.py::test_b - no\n11 passed, 1 failed", ["FAILED tests/a.py::test_b - no"]),
        ("SKIPPED [1] tests/a.py:3: too old\n11 passed, 1 skipped", ["SKIPPED [1] tests/a.py:3: too old"]),
        ("SKIPPED [1] a.py:3: no PostgreSQL package for this platform\n11 passed, 1 skipped", []),
        ("INTERNALERROR> Traceback", ["INTERNALERROR> Traceback", "0 passed, and there should be 10"]),
    ],
)
def test_a_skip_a_failure_and_too_few_tests_are_wrong(output: str, wrong: list[str]) -> None:
    assert lowest_versions.judge(Case("x", (), 10), output) == wrong
