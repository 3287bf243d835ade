"""The program `holdproof` without its start: each run is forked from one process that has everything imported.

A start of `holdproof mcp` takes three seconds of CPU time, nearly all of it for imports, and tests start it by the
dozen. `command()` returns the words of a launcher that takes its place: it hands its arguments, folder, environment and
standard streams to the forking process, and ends as the forked one does. Each run is a process of its own, whose pipes,
files and locks are real. What a start does by itself (imports, exit codes, signals) is tested on the program.

This file is the launcher too, so it imports nothing at the top that a launcher does not need.
"""

import array
import json
import os
import signal
import socket
import sys

_HEADER = 8
_STREAMS = (0, 1, 2)


def command() -> list[str]:
    """Return the words before the arguments of `holdproof`; the first call starts the process that forks."""
    return [sys.executable, "-I", "-S", __file__, _address()]


def _address() -> str:
    """Return where the forking process of this process listens."""
    from harness import forking  # noqa: PLC0415 (a launcher has no use for it)

    return forking.address()


def launch(address: str, words: list[str]) -> int:
    """Run `holdproof` with these words in a forked process, on our standard streams; return its exit code."""
    run = {"words": words, "folder": os.getcwd(), "environment": dict(os.environ)}
    body = json.dumps(run).encode()
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(address)
        streams = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", _STREAMS))]
        line.sendmsg([len(body).to_bytes(_HEADER, "big")], streams)
        line.sendall(body)
        pid = _number(line)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda received, _: os.kill(pid, received))
        for stream in _STREAMS:
            os.close(stream)  # whoever waits for the end of the output waits for the forked process alone
        code = _number(line)
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code


def _number(line: socket.socket) -> int:
    """Receive the next number: the id of the run, then its exit code."""
    answer = line.recv(_HEADER)
    if not answer:
        sys.exit("the process that forks runs of holdproof has ended")
    return int.from_bytes(answer, "big", signed=True)


if __name__ == "__main__":
    sys.exit(launch(sys.argv[1], sys.argv[2:]))
