"""The step store tests of `pydantic-ai-harness`, on ours. Its distributions have no tests, so a checkout is named:

git clone --branch v0.62.0 https://github.com/pydantic/pydantic-ai-harness /tmp/harness
HOLDPROOF_TEST_HARNESS=/tmp/harness make adapters
"""

import os
import re
from pathlib import Path

import pytest

from tests.interop import sdists

pytest.importorskip("pydantic_ai_harness", reason="not installed: pip install pydantic-ai-harness")

CHECKOUT = os.environ.get("HOLDPROOF_TEST_HARNESS")
FOLDER = "tests/step_persistence"
FILES = (f"{FOLDER}/test_step_persistence.py", f"{FOLDER}/test_sqlite_and_media.py")
LEAST = 70
RUN_S = 900


def outcome(place: str, **env: str) -> tuple[int, set[str]]:
    """Run their tests; return how many passed, and the names of those that did not."""
    plugins = ("-p", "no:anyio", "-p", "no:asyncio", "-p", "no:schemathesis", "--noconftest", "--tb=line", "-rfE")
    output = sdists.outcome(Path(place), "harness_redirect", (*plugins, *FILES), env, RUN_S).stdout
    passed = re.search(r"(\d+) passed", output)
    assert passed is not None, output
    return int(passed[1]), set(re.findall(r"^(?:FAILED|ERROR) (\S+)", output, re.MULTILINE))


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.skipif(CHECKOUT is None, reason="HOLDPROOF_TEST_HARNESS names no checkout of pydantic-ai-harness")
@pytest.mark.parametrize("place", ["sqlite", "postgres"])
def test_what_passes_on_their_step_stores_passes_on_ours(place: str, request: pytest.FixtureRequest) -> None:
    """Tests of another version than the one that is installed may fail on theirs: those, and no others, on ours."""
    assert CHECKOUT is not None
    url = request.getfixturevalue("postgres_url") if place == "postgres" else ""
    passed, failed = outcome(CHECKOUT, HOLDPROOF_TEST_STORE=url)
    _, failed_on_theirs = outcome(CHECKOUT, HOLDPROOF_TEST_THEIRS="1")
    assert failed <= failed_on_theirs
    assert passed >= LEAST
