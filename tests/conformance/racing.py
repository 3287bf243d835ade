"""Real processes, and threads, that start at the same moment."""

import contextlib
import json
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

_START = """
import json, sys
print("ready", flush=True)
sys.stdin.readline()

def answer(value):
    print(json.dumps(value), flush=True)

TARGET, NUMBER = sys.argv[1], int(sys.argv[2])
"""


def race(script: str, target: object, count: int, *, imports: str = "") -> list[Any]:
    """Run the script in that many processes, let go together; it finds TARGET and NUMBER and gives `answer(…)` once.

    `imports` run before the start, so that the slow part of a process is over when the race begins.
    """
    with contextlib.ExitStack() as stack:
        runners = [
            stack.enter_context(_started(imports + _START + script, str(target), number)) for number in range(count)
        ]
        for runner in runners:
            assert runner.stdout is not None
            assert runner.stdout.readline() == "ready\n", runner.communicate()[1]
        for runner in runners:
            assert runner.stdin is not None
            runner.stdin.write("\n")
            runner.stdin.flush()
        return [_outcome(runner) for runner in runners]


@contextlib.contextmanager
def _started(script: str, target: str, number: int) -> Any:
    runner = subprocess.Popen(
        [sys.executable, "-c", script, target, str(number)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield runner
    finally:
        runner.kill()
        runner.communicate()


def _outcome(runner: "subprocess.Popen[str]") -> Any:
    out, err = runner.communicate(timeout=90)
    assert runner.returncode == 0, err
    return json.loads(out)


def together(count: int, work: Callable[[int], Any]) -> Counter[Any]:
    """What that many threads, let go together, are answered."""
    start = threading.Barrier(count)

    def one(number: int) -> Any:
        start.wait(30)
        return work(number)

    with ThreadPoolExecutor(count) as pool:
        return Counter(pool.map(one, range(count)))
