"""Processes that are there to be killed."""

import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def child(module: str, *words: str) -> Iterator["subprocess.Popen[bytes]"]:
    """A module of this folder, running; what it acknowledges comes out of its pipe. Dead when we leave."""
    command = [sys.executable, "-m", f"tests.faults.{module}", *words]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, bufsize=0)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def kill_after(
    process: "subprocess.Popen[bytes]", delay_s: float, meanwhile: Callable[[], None] = lambda: None
) -> list[str]:
    """Let it write for that long after its first answer, kill it, and give back what it acknowledged."""
    assert process.stdout is not None
    pipe = process.stdout.fileno()
    data = b""
    deadline: float | None = None
    while deadline is None or time.monotonic() < deadline:
        timeout = 60 if deadline is None else max(0.0, deadline - time.monotonic())
        if not select.select([pipe], [], [], timeout)[0]:
            assert deadline is not None, "the writer said nothing for a minute"
            break
        chunk = os.read(pipe, 1 << 16)
        assert chunk, "the writer stopped by itself"
        data += chunk
        deadline = deadline or time.monotonic() + delay_s
        meanwhile()
    process.kill()
    while chunk := os.read(pipe, 1 << 16):
        data += chunk
    return data.decode().split("\n")[:-1]
