"""The scripted run of each framework in its own storage and in ours: the same calls, and bytes that can be compared."""

import asyncio
import importlib.util
from pathlib import Path

import pytest

from harness.agent_loops import FRAMEWORKS, MODULES
from harness.agent_loops.storing import stored


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_run_is_kept_in_the_frameworks_own_storage_and_in_ours(framework: str, tmp_path: Path) -> None:
    module = MODULES.get(framework, framework)
    if importlib.util.find_spec(module.partition(".")[0]) is None or importlib.util.find_spec(module) is None:
        pytest.skip(f"{module} is not installed: make adapters")
    sizes = {}
    for way in ("own", "ours", "durable"):
        folder = tmp_path / way
        folder.mkdir()
        # It asserts that the run made each call once.
        sizes[way] = asyncio.run(stored(framework, way, folder))
    assert sizes["own"] > 0
    # A durable run holds what was said, and every request besides.
    assert 0 < sizes["ours"] < sizes["durable"]
    if framework == "langgraph":
        assert sizes["durable"] < sizes["own"], "their saver stores a conversation once for each checkpoint"
