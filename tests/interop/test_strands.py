"""The repository and storage tests of the `strands-agents` source distribution, on ours: SQLite and PostgreSQL."""

import re
from pathlib import Path

import pytest

from tests.interop import sdists

pytest.importorskip("strands", reason="not installed: pip install strands-agents")

SESSION = "tests/strands/session"
FILES = (
    f"{SESSION}/test_repository_session_manager.py",
    f"{SESSION}/test_file_session_manager.py",
    "tests/strands/storage/test_in_memory_storage.py",
)


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sdists.sources("strands-agents", tmp_path_factory.mktemp("strands"))


@pytest.mark.slow
@pytest.mark.parametrize("place", ["memory", "postgres"])
def test_their_session_and_storage_tests_pass_on_ours(theirs: Path, place: str, request: pytest.FixtureRequest) -> None:
    url = request.getfixturevalue("postgres_url") if place == "postgres" else ""
    # Their conftest wants a fake of S3, which none of these tests uses.
    output = sdists.run_tests(theirs, "strands_redirect", "--noconftest", *FILES, HOLDPROOF_TEST_STORE=url)
    passed = re.search(r"(\d+) passed", output)
    assert passed is not None
    assert int(passed[1]) >= 75, output
    assert "failed" not in output
    assert "skipped" not in output
