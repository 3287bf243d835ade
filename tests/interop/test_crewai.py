"""The tests of flow states and human feedback in the sdist of `crewai`, on our persistence: SQLite and PostgreSQL."""

import importlib.util
import re
from pathlib import Path

import pytest

from tests.interop import sdists

# Found and not imported: that takes ten seconds of a processor, and the tests run in a process of their own.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("crewai") is None, reason="not installed: pip install crewai"),
]

FILES = ("tests/test_flow_persistence.py", "tests/test_async_human_feedback.py")


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sdists.sources("crewai", tmp_path_factory.mktemp("crewai"))


def test_their_tests_of_states_and_feedback_pass_on_ours(theirs: Path, postgres_url: str) -> None:
    stores = f":memory: {postgres_url}"
    plugins = ("-p", "no:asyncio", "-p", "no:schemathesis", "--noconftest")
    output = sdists.run_tests(theirs, "crewai_redirect", *plugins, *FILES, HOLDPROOF_TEST_STORES=stores)
    passed = re.search(r"(\d+) passed", output)
    assert passed is not None
    assert int(passed[1]) >= 60, output
    assert "failed" not in output
    assert "skipped" not in output
