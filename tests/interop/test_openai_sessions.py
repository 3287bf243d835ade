"""The session tests of the `openai-agents` source distribution, on our sessions: SQLite and PostgreSQL."""

import os
import re
from pathlib import Path

import pytest

from tests.interop import sdists

pytest.importorskip("agents.memory", reason="not installed: pip install openai-agents")

FILES = ("tests/memory/test_session.py", "tests/memory/test_session_limit.py", "tests/memory/test_compaction_suffix.py")
# What a compaction may replace: many runs each, so not for every `make test`.
LONG = (
    "tests/memory/test_compaction_model_visibility.py",
    "tests/memory/test_openai_responses_compaction_session.py",
    "tests/memory/test_session_persistence_sanitize.py",
)
THOROUGH = bool(os.environ.get("HOLDPROOF_THOROUGH"))
LEAST = 240 if THOROUGH else 45


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sdists.sources("openai-agents", tmp_path_factory.mktemp("openai"))


@pytest.mark.slow
@pytest.mark.parametrize("place", ["sqlite", "postgres"])
def test_their_session_tests_pass_on_ours(theirs: Path, place: str, request: pytest.FixtureRequest) -> None:
    url = request.getfixturevalue("postgres_url") if place == "postgres" else ""
    # Their other class of sessions is no part of this.
    words = ("-k", "not async-sqlite", *FILES, *(LONG if THOROUGH else ()))
    said = sdists.run_tests(theirs, "openai_redirect", *words, HOLDPROOF_TEST_STORE=url)
    passed = re.search(r"(\d+) passed", said)
    assert passed is not None
    assert int(passed[1]) >= LEAST, said
    assert "failed" not in said
    assert "skipped" not in said
