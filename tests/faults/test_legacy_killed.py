"""Taking over legacy data, killed at every step: the next run goes on, nothing is lost and nothing comes twice."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

EVERY = 1 if int(os.environ.get("HOLDPROOF_KILLS", "100")) > 100 else 15


@pytest.mark.timeout(600)
def test_a_migration_that_is_killed_at_any_step_is_finished_by_the_next_run(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.faults.legacy_killer", str(tmp_path / "user"), str(EVERY)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 60 // EVERY


_LARGE = """
import resource, sys
from holdproof import sync

def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

assert sync.migrate_legacy(sys.argv[1] + "/small", sys.argv[1] + "/home").exit_code == 0
before = peak()
assert sync.migrate_legacy(sys.argv[1] + "/large", sys.argv[1] + "/home").exit_code == 0
print(peak() - before)
"""


@pytest.mark.slow
def test_a_large_file_is_taken_over_in_bounded_memory(tmp_path: Path) -> None:
    for name, size in (("small", 100_000), ("large", 400 << 20)):
        (tmp_path / name / "ghost").mkdir(parents=True)
        with (tmp_path / name / "ghost" / name).open("wb") as file:
            file.truncate(size)
    done = subprocess.run([sys.executable, "-c", _LARGE, str(tmp_path)], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 64 << 10, f"{int(done.stdout) >> 10} MiB more than for a small one"
