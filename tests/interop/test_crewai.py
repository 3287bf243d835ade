"""The tests of flow states and human feedback in the sdist of `crewai`, on our persistence: SQLite and PostgreSQL."""

import re
from pathlib import Path

import pytest

from tests.interop import sdists

pytest.importorskip("crewai", reason="not installed: pip install crewai")

FILES = ("tests/test_flow_persistence.py", "tests/test_async_human_feedback.py")
QUIET = {"CREWAI_DISABLE_TELEMETRY": "true", "OTEL_SDK_DISABLED": "true", "CREWAI_TRACING_ENABLED": "false"}


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sdists.sources("crewai", tmp_path_factory.mktemp("crewai"))


@pytest.mark.slow
@pytest.mark.parametrize("place", ["memory", "postgres"])
def test_their_tests_of_states_and_feedback_pass_on_ours(
    theirs: Path, place: str, request: pytest.FixtureRequest
) -> None:
    url = request.getfixturevalue("postgres_url") if place == "postgres" else ""
    output = sdists.run_tests(theirs, "crewai_redirect", "--noconftest", *FILES, HOLDPROOF_TEST_STORE=url, **QUIET)
    passed = re.search(r"(\d+) passed", output)
    assert passed is not None
    assert int(passed[1]) >= 30, output
    assert "failed" not in output
    assert "skipped" not in output
