"""`holdproof watch`: one frame, a line for each change, a terminal that is drawn over; and Ctrl-C ends it."""

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from holdproof import sync
from holdproof.cli.app import app

HOLDPROOF = [sys.executable, "-m", "holdproof"]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A store with one flow that waits for an answer."""
    with sync.open(tmp_path / "home") as store:
        store.agents.register("trader", version="1.0.0")
        flow = store.flows.start("trader", flow_type="trade")
        store.flows.transition(flow.flow_id, "RUNNING")
        store.escalations.request(flow.flow_id, reason="may I \x1b[31m?")
    return tmp_path / "home"


def hears_ctrl_c() -> None:
    """A shell's background job, and so every child of one, would ignore it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def test_once_prints_one_frame_for_people_or_one_document(home: Path) -> None:
    shown = CliRunner().invoke(app, ["--home", str(home), "watch", "--once"])
    assert (shown.exit_code, "escalations: 1" in shown.stdout, "\x1b" in shown.stdout) == (0, True, False)
    facts = json.loads(CliRunner().invoke(app, ["--home", str(home), "watch", "--once", "--json"]).stdout)
    assert facts["counts"] == {"WAITING_ESCALATION": 1}
    assert facts["locked"] is None


def test_a_pipe_gets_one_line_of_json_for_each_change_until_ctrl_c(home: Path) -> None:
    words = [*HOLDPROOF, "--home", str(home), "watch", "--every", "0.1", "--json"]
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=hears_ctrl_c
    ) as child:
        assert child.stdout is not None
        first = json.loads(child.stdout.readline())
        with sync.open(home) as store:
            store.escalations.resolve(first["escalations"][0]["id"], "approve", by="ann")
        second = json.loads(child.stdout.readline())
        child.send_signal(signal.SIGINT)
        rest, errors = child.communicate(timeout=60)
    assert (first["counts"], second["counts"]) == ({"WAITING_ESCALATION": 1}, {"RUNNING": 1})
    assert (child.returncode, "Traceback" in errors) == (0, False)
    assert all(json.loads(line) for line in rest.splitlines())


def test_a_terminal_is_drawn_over_and_left_as_it_was(home: Path) -> None:
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [*HOLDPROOF, "--home", str(home), "watch", "--every", "0.1"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "120", "LINES": "40"},
        preexec_fn=hears_ctrl_c,
    ) as child:
        os.close(theirs)
        seen = _read(ours, b"log: ")
        assert b"escalations: 1" in seen
        assert b"\x1b[31m?" not in seen, "what others wrote does not colour our terminal"
        child.send_signal(signal.SIGINT)
        seen += _read(ours, None)
        assert child.wait(timeout=60) == 0
    os.close(ours)
    assert b"Traceback" not in seen
    assert seen.rindex(b"\x1b[?25h") > seen.rindex(b"\x1b[?25l"), "the cursor is back"


def _read(handle: int, until: bytes | None) -> bytes:
    """What comes until those words, or to the end."""
    data, deadline = b"", time.monotonic() + 60
    while time.monotonic() < deadline:
        if select.select([handle], [], [], 1.0)[0]:
            try:
                chunk = os.read(handle, 1 << 16)
            except OSError:  # Linux: nobody has the other end any more
                return data
            if not chunk:
                return data
            data += chunk
        if until is not None and until in data:
            return data
    raise AssertionError(f"nothing more came: {data!r}")
