"""A second try, alone, for the few tests that failed beside thousands of others (`make test`, not single runs).

Three workers on two cores delay anything by seconds, and a test that meets such a delay wrongly would fail a whole run.
What fails again fails the run. What passes alone is listed at its end: it is a defect of the test, or a race of the
product that shows seldom, and wants looking at either way. More than a few failures are no accident and get no second
try.
"""

import os
import subprocess
import sys

import pytest

FEW = 12
_ASKED = "HOLDPROOF_SECOND_TRY"


class SecondTry:
    """Runs what failed once more when the run has ended, in one process, one test after the other."""

    def __init__(self) -> None:
        self._failed: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note what failed, once: a test may fail in itself and at its end."""
        if report.failed and report.nodeid not in self._failed:
            self._failed.append(report.nodeid)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Let a run pass whose failures all pass alone."""
        if exitstatus == pytest.ExitCode.TESTS_FAILED and 0 < len(self._failed) <= FEW and self._pass_alone():
            session.exitstatus = pytest.ExitCode.OK

    def _pass_alone(self) -> bool:
        environment = {name: value for name, value in os.environ.items() if name != _ASKED}
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-p", "no:xdist", *self._failed], env=environment, check=False
        )
        verdict = "PASSED ALONE: look at them" if done.returncode == 0 else "FAILED AGAIN"
        print(f"\nfailed beside others, then {verdict}", *self._failed, sep="\n  ")
        return done.returncode == 0


def offer(config: pytest.Config) -> None:
    """Register the second try where it is asked for, in the process that leads the run."""
    if os.environ.get(_ASKED) == "1" and not hasattr(config, "workerinput"):
        config.pluginmanager.register(SecondTry())
