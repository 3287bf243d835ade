"""A run of several benchmarks, each in a process of its own.

Rules:
- A benchmark that fails, hangs or dies is named at the end; the others run all the same.
- Where the run has an end, each gets a share of the time that is left by its weight. What one leaves over goes to those
  after it. One that is still at work after several shares is interrupted, and killed if it does not end then: what it
  has kept by then stays kept.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

_ROOT: Final = Path(__file__).resolve().parents[1]
_WEIGHTS: Final = {
    "blobs": 2,
    "checkpoints": 4,
    "decisions": 4,
    "durable": 3,
    "http": 2,
    "log": 2,
    "memory": 4,
    "vectors": 3,
    "workflows": 7,
}
"""How much longer than the smallest benchmarks these take."""
_PATIENCE: Final = 2.5
"""After how many shares one is interrupted: stores have to be filled before anything is measured."""
_LEAST_S: Final = 120.0
"""What each may take, however short its share."""
_ENDING_S: Final = 30.0
"""How long one that was interrupted may take to end its servers."""


@dataclass
class WholeRun:
    """What was measured, and what failed."""

    documents: list[dict[str, Any]] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)


def run(names: Sequence[str], arguments: Sequence[str], until: float | None) -> WholeRun:
    """Run benchmarks one after the other, with the options of this run."""
    whole = WholeRun()
    for at, name in enumerate(names):
        command = [sys.executable, "-m", "bench", name, *_without_minutes(arguments)]
        limit_s = None
        if until is not None:
            share_s = share(names[at:], max(0.0, until - time.monotonic()))
            command += ["--minutes", f"{max(share_s, 1.0) / 60:.3f}"]
            limit_s = max(_LEAST_S, _PATIENCE * share_s)
        output = _run_one(name, command, limit_s, whole)
        if "--json" in arguments and output:
            whole.documents += json.loads(output)["benchmarks"]
    return whole


def share(names: Sequence[str], left_s: float) -> float:
    """Return how many seconds of those that are left the first of some benchmarks may take."""
    first, *_ = weights = [_WEIGHTS.get(name, 1) for name in names]
    return left_s * first / sum(weights)


def _without_minutes(arguments: Sequence[str]) -> list[str]:
    """Return the options of this run but `--minutes`, of which each benchmark has its share."""
    rest: list[str] = []
    skipped = False
    for argument in arguments:
        if skipped:
            skipped = False
        elif argument == "--minutes":
            skipped = True
        elif not argument.startswith("--minutes="):
            rest.append(argument)
    return rest


def _run_one(name: str, command: Sequence[str], limit_s: float | None, whole: WholeRun) -> str:
    """Run one benchmark, and return what it printed as JSON; empty where it printed tables, or failed before."""
    captured = subprocess.PIPE if "--json" in command else None
    # A session of its own: an interrupt reaches the benchmark alone, which then ends its servers itself.
    with subprocess.Popen(command, stdout=captured, text=True, cwd=_ROOT, start_new_session=True) as process:
        try:
            output, _ = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            whole.failures.append(f"{name}: it was stopped after {limit_s:,.0f} s")
            return _stopped(process)
        except BaseException:
            _stopped(process)
            raise
    if process.returncode:
        whole.failures.append(f"{name}: it ended with exit code {process.returncode}, see above")
    return output or ""


def _stopped(process: "subprocess.Popen[str]") -> str:
    """Interrupt a benchmark, and kill it if it does not end; return what it printed."""
    process.send_signal(signal.SIGINT)
    try:
        output, _ = process.communicate(timeout=_ENDING_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
    return output or ""
