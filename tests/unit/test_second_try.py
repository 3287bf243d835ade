"""A test that fails beside others and passes alone is named and does not fail the run; one that fails twice does."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

CONFTEST = """
from tests import second_try

def pytest_configure(config):
    second_try.offer(config)
"""
FAILS_ONCE = """
from pathlib import Path

def test_once():
    mark = Path(__file__).with_name("mark")
    first = not mark.exists()
    mark.touch()
    assert not first
"""
FAILS_ALWAYS = "def test_always():\n    assert False\n"
MANY = "import pytest\n\n@pytest.mark.parametrize('number', range(13))\ndef test_many(number):\n    assert False\n"


def run(folder: Path, *files: str, asked: str = "1") -> subprocess.CompletedProcess[str]:
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "pytest.ini").write_text("[pytest]\naddopts = -p no:cacheprovider\n")
    for number, text in enumerate(files):
        (folder / f"test_{number}.py").write_text(text)
    root = Path(__file__).parents[2]
    environment = {**os.environ, "HOLDPROOF_SECOND_TRY": asked, "PYTHONPATH": f"{root / 'src'}{os.pathsep}{root}"}
    command = [sys.executable, "-m", "pytest", "-p", "no:xdist"]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_what_passes_alone_is_named_and_the_run_passes(tmp_path: Path) -> None:
    done = run(tmp_path, FAILS_ONCE)
    assert done.returncode == 0
    assert "PASSED ALONE: look at them\n  test_0.py::test_once" in done.stdout


def test_what_fails_again_fails_the_run(tmp_path: Path) -> None:
    done = run(tmp_path, FAILS_ONCE, FAILS_ALWAYS)
    assert done.returncode == 1
    assert "FAILED AGAIN" in done.stdout


def test_without_being_asked_nothing_is_tried_again(tmp_path: Path) -> None:
    done = run(tmp_path, FAILS_ONCE, asked="0")
    assert done.returncode == 1
    assert "ALONE" not in done.stdout


def test_many_failures_get_no_second_try(tmp_path: Path) -> None:
    done = run(tmp_path, MANY)
    assert done.returncode == 1
    assert "ALONE" not in done.stdout
    assert "AGAIN" not in done.stdout
