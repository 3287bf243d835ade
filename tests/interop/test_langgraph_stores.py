"""The store tests of the `langgraph-checkpoint-sqlite` source distribution, on our store: SQLite and PostgreSQL."""

import re
from pathlib import Path
from typing import Any

import pytest

from tests.interop import sdists

pytest.importorskip("langgraph.store.sqlite", reason="not installed: pip install langgraph-checkpoint-sqlite")
redirect: Any = pytest.importorskip("tests.interop.store_redirect")

FILES = ("tests/test_store.py", "tests/test_async_store.py", "tests/test_ttl.py")


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sdists.sources("langgraph-checkpoint-sqlite", tmp_path_factory.mktemp("langgraph"))


@pytest.mark.slow
@pytest.mark.parametrize("place", ["sqlite", "postgres"])
def test_their_store_tests_pass_on_ours(theirs: Path, place: str, request: pytest.FixtureRequest) -> None:
    url = request.getfixturevalue("postgres_url") if place == "postgres" else ""
    said = sdists.run_tests(theirs, "store_redirect", *FILES, HOLDPROOF_TEST_STORE=url)
    passed, left_out = re.search(r"(\d+) passed", said), re.search(r"(\d+) deselected", said)
    assert passed is not None, said
    assert left_out is not None, said
    assert int(passed[1]) >= 140, said
    assert int(left_out[1]) >= len(redirect.LEFT_OUT), said  # one of them may have parameters
    assert "failed" not in said
    assert "skipped" not in said
