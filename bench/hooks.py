"""What a hook of a coding agent costs: the time that passes until the agent goes on, beside a Python that does nothing.

The recorder runs, as it does from the second event on, and every event is committed before its hook ends.
"""

import contextlib
import json
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from bench.goals import Goal
from bench.measurement import Contestant, Meter, Options, Race, Result, run_race
from holdproof.adapters.hooks import client
from holdproof.cli.hooks import hook_program

RACE = "an event of a coding agent"
NOTHING = "python -c pass @1"
_START_S = 300.0
_EVENT = {
    "session_id": "bench",
    "cwd": "/",
    "hook_event_name": "PostToolUse",
    "tool_name": "Read",
    "tool_use_id": "call",
    "tool_input": {"file_path": "/notes"},
    "tool_response": {"content": "a line of a file\n" * 40},
}


def run(options: Options) -> list[Result]:
    """The race, on SQLite: what differs on a server is its commit."""
    if not options.wants("sqlite") or options.race not in RACE:
        return []
    with tempfile.TemporaryDirectory(prefix="bench-") as home, _recorder(Path(home)) as words:
        contestants = [
            _process("python -c pass", [sys.executable, "-c", "pass"]),
            _process("installed hook", [*shlex.split(hook_program()), *words]),
            _process("holdproof hook", [sys.executable, "-m", "holdproof", *words]),
        ]
        return run_race(Race(RACE, contestants, (NOTHING,)), options)


def goals(options: Options) -> list[Goal]:
    """An agent waits for its hook at most as long as for three empty Pythons, which are about 50 ms."""
    text = f"an event, committed: 0.33 x an empty Python{options.disk}"
    return [Goal(text, RACE, "installed hook @1", NOTHING, 0.33)]


@contextlib.contextmanager
def _recorder(home: Path) -> Iterator[list[str]]:
    """Run a recorder; yield the words of a hook that finds it."""
    state = home / "state" / "hooks"
    words = ["--state", str(state), "--home", str(home)]
    recorder = subprocess.Popen([sys.executable, "-m", "holdproof.adapters.hooks.service", *words])
    try:
        until = time.monotonic() + _START_S
        while not (state / client.SOCKET).exists():
            if recorder.poll() is not None or time.monotonic() > until:
                raise RuntimeError("the recorder did not start")
            time.sleep(0.05)
        yield ["hook", "claude-code", *words]
    finally:
        recorder.terminate()
        recorder.wait()


def _process(name: str, command: list[str]) -> Contestant:
    event = json.dumps(_EVENT)

    def once() -> None:
        done = subprocess.run(command, input=event, text=True, capture_output=True, check=True)
        # A hook that could not record says so, and is fast.
        assert not done.stderr, done.stderr

    def sample(meter: Meter) -> None:
        once()
        meter.start()
        while True:
            once()
            if not meter.done():
                return

    return Contestant(name, 1, sample)
