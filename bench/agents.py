"""Agents: bytes of the same run of 100 calls in the framework's own storage, and in ours.

The run is that of `harness/agent_loops`: 40 model calls, 60 tool calls, 12,600 characters of results. The first row of
a race is the framework's own storage, the second our adapter in its place: both hold what was said. In `durable run`
each call is a step: every request, tool offered, result and time is on record under the log. Results are runs in a
gigabyte, so that more is better; nothing is timed. A framework that is not installed has no race.
"""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from bench.goals import Goal
from bench.measurement import Options, Result, compare_with, progress
from harness.agent_loops import FRAMEWORKS, MODULES

_ROOT: Final = Path(__file__).parent.parent
DURABLE: Final = "durable run of holdproof"


def run(options: Options) -> list[Result]:
    """Each framework's agent runs once for each way to keep it; they store nothing on PostgreSQL."""
    if not options.wants("sqlite"):
        return []
    results: list[Result] = []
    for framework in FRAMEWORKS:
        race = _race(framework)
        if options.race not in race or not _installed(MODULES.get(framework, framework)):
            continue
        rows = [_result(race, framework, way) for way in ("own", "ours", "durable")]
        results += compare_with(rows, race, (rows[0].label,))
    return results


def goals(options: Options) -> list[Goal]:
    """What must be reached, where a framework stores a conversation more than once; the others store it once."""
    del options
    return [
        Goal(
            "LangGraph: a durable run in at most a third of the bytes of SqliteSaver",
            _race("langgraph"),
            f"{DURABLE} @1",
            "SqliteSaver @1",
            3.0,
        )
    ]


def _race(framework: str) -> str:
    return f"runs of 100 calls in a gigabyte: {framework}"


def _installed(module: str) -> bool:
    top = module.partition(".")[0]
    return importlib.util.find_spec(top) is not None and importlib.util.find_spec(module) is not None


def _result(race: str, framework: str, way: str) -> Result:
    progress(f"{race}: {way}")
    report = stored(framework, way)
    progress("")
    names = {"own": report["own"], "ours": report["ours"], "durable": DURABLE}
    return Result(race, names[way], 1, (1e9 / report["bytes"],))


def stored(framework: str, way: str) -> dict[str, Any]:
    """Return what a run of 100 calls adds in one way of keeping it; each in a process of its own."""
    path = os.pathsep.join([str(_ROOT), str(_ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    # The long form of the scripted run.
    env = {**os.environ, "PYTHONPATH": path, "HOLDPROOF_THOROUGH": "1"}
    command = [sys.executable, "-m", "harness.agent_loops.storing", framework, way]
    ended = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    if ended.returncode != 0:
        raise RuntimeError(f"{framework}, {way}: {ended.stderr[-2000:]}")
    report: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    assert report["calls"] == 100, "the long form of the run has a hundred calls"
    return report
