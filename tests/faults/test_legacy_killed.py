"""Taking over legacy data, killed at every step: the next run goes on, nothing is lost and nothing comes twice."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

EVERY = 1 if int(os.environ.get("HOLDFAST_KILLS", "100")) > 100 else 7


@pytest.mark.timeout(600)
def test_a_migration_that_is_killed_at_any_step_is_finished_by_the_next_run(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.faults.legacy_killer", str(tmp_path / "user"), str(EVERY)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 60 // EVERY
