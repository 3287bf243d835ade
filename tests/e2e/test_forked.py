"""Runs of `holdproof` that are forked (harness/forked.py): to whoever starts one, it is the program."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from harness import forked
from holdproof import sync

PROGRAM = [sys.executable, "-m", "holdproof"]


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDPROOF_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    sync.open(tmp_path / "home").close()


def _run(command: list[str], *words: str, content: bytes = b"") -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run([*command, *words], input=content, capture_output=True, check=False, timeout=120)


@pytest.mark.parametrize("words", [["agents", "list"], ["nothing"], ["flows", "get", "unknown"], ["status", "--bad"]])
def test_it_prints_and_ends_as_the_program_does(words: list[str]) -> None:
    real, copy = _run(PROGRAM, *words), _run(forked.command(), *words)
    assert (copy.returncode, copy.stdout) == (real.returncode, real.stdout)
    # click names a program that runs as a module by its module.
    assert copy.stderr == real.stderr.replace(b"python -m holdproof", b"holdproof")


def test_bytes_pass_its_pipes_and_its_folder_and_environment_are_those_of_the_caller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = os.urandom(300_000)
    assert _run(forked.command(), "blobs", "put", "a", "-", content=content).returncode == 0
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert _run(forked.command(), "blobs", "get", "a", "copy").returncode == 0
    assert (tmp_path / "elsewhere" / "copy").read_bytes() == content
    monkeypatch.setenv("HOLDPROOF_HOME", str(tmp_path / "none"))
    assert _run(forked.command(), "blobs", "get", "a").returncode != 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_it_ends_with_what_started_it(number: signal.Signals) -> None:
    words = [*forked.command(), "watch", "--every", "0.1", "--json"]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as running:
        assert running.stdout is not None
        running.stdout.readline()
        running.send_signal(number)
        running.stdout.read()  # until nobody holds its output any more
