"""kill -9 at the calls of agents: no finished call is made again, and the run ends as if nothing had happened."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.agent_loops import FRAMEWORKS, MODULES
from harness.agent_loops.world import CALLS

THOROUGH = os.environ.get("HOLDPROOF_THOROUGH") == "1"


def killed(framework: str, folder: Path, places: str) -> dict[str, Any]:
    """What `killing` says about a framework whose runs die at these places, counted from one."""
    module = MODULES.get(framework, framework)
    if importlib.util.find_spec(module.partition(".")[0]) is None or importlib.util.find_spec(module) is None:
        pytest.skip(f"{module} is not installed: make adapters")
    command = [sys.executable, "-m", "tests.faults.agent_loop_killing", framework, str(folder / "runs"), places]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=7200)
    assert ended.returncode == 0, ended.stderr[-4000:]
    outcome: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return outcome


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_an_agent_that_is_killed_at_its_calls_repeats_none_that_finished(framework: str, tmp_path: Path) -> None:
    # A tool that may be repeated, one that may not, a model call, and the last answer.
    outcome = killed(framework, tmp_path, f"2,3,{len(CALLS) // 2},{len(CALLS)}")
    assert outcome["wrong"] == []
    assert outcome["kills"] == 8


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.skipif(not THOROUGH, reason="two hundred kills of each framework: HOLDPROOF_THOROUGH=1")
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_an_agent_may_be_killed_at_every_one_of_its_calls(framework: str, tmp_path: Path) -> None:
    outcome = killed(framework, tmp_path, "all")
    assert outcome["wrong"] == []
    assert outcome["kills"] == 2 * len(CALLS) == 200
