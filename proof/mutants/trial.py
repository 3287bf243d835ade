"""One mutant against its tests, in a process of its own that is forked from one with the libraries in it.

The mutated source is given to Python's importer, so nothing on the disk changes. Tests that start other processes run
these without the change: they can let a mutant live, never kill one that should.
"""

import contextlib
import importlib
import importlib.abc
import importlib.util
import os
import signal
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from importlib.machinery import ModuleSpec
from types import CodeType, ModuleType
from typing import Any, Final

import pytest

from proof.mutants.mutate import Mutant
from proof.mutants.targets import ROOT, Target

_WARM: Final = ("hypothesis", "hypothesis.stateful", "cryptography.hazmat.primitives.asymmetric.ec", "apsw", "httpx")
_WARM_TOO: Final = ("yaml", "rich.console", "typer", "numpy", "psycopg", "fastapi", "uvicorn", "jinja2", "rfc8785")
_LEAST_S: Final = 20.0
_OPTIONS: Final = ("-x", "-q", "-p", "no:cacheprovider", "-p", "pytest_timeout")


class _Changed(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Gives one module another source."""

    def __init__(self, mutant: Mutant, target: Target) -> None:
        self._mutant, self._target = mutant, target

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        del path, target
        if fullname != self._target.module:
            return None
        return importlib.util.spec_from_file_location(fullname, str(ROOT / self._target.file), loader=self)

    def exec_module(self, module: ModuleType) -> None:
        code: CodeType = compile(self._mutant.source, str(ROOT / self._target.file), "exec")
        exec(code, module.__dict__)


class Court:
    """Tries mutants, several at a time; knows how long tests take without a change."""

    def __init__(self, workers: int = 1) -> None:
        for name in (*_WARM, *_WARM_TOO):
            with contextlib.suppress(ImportError):
                importlib.import_module(name)
        assert "holdfast" not in sys.modules, "a child has to import it anew, with the change in it"
        self._workers = workers
        self._usual_s: dict[tuple[str, ...], float] = {}

    def fates(self, crowd: Iterable[tuple[Target, Mutant]], ends: float) -> Iterator[tuple[Target, Mutant, str]]:
        """What became of each: killed, timed out, or survived every stage; none is begun after the end."""
        waiting, trials = iter(crowd), list[_Trial]()
        while True:
            while len(trials) < self._workers and time.monotonic() < ends:
                if (found := next(waiting, None)) is None:
                    break
                trials.append(self._began(*found, 0))
            if not trials:
                return
            time.sleep(0.02)
            for trial in [each for each in trials if each.over()]:
                trials.remove(trial)
                further = trial.number + 1
                if trial.fate == "survived" and further < len(trial.target.stages):
                    trials.append(self._began(trial.target, trial.mutant, further))
                else:
                    yield trial.target, trial.mutant, trial.fate

    def _began(self, target: Target, mutant: Mutant, number: int) -> "_Trial":
        stage = target.stages[number]
        return _Trial(target, mutant, number, _LEAST_S + 5 * self._usual(target, stage))

    def _usual(self, target: Target, stage: tuple[str, ...]) -> float:
        """How long these tests take without a change, in seconds; they must pass."""
        if stage not in self._usual_s:
            began = time.monotonic()
            trial = _Trial(target, None, target.stages.index(stage), 600.0)
            while not trial.over():
                time.sleep(0.02)
            if trial.fate != "survived":
                raise RuntimeError(f"tests fail without any change: {' '.join(stage)}")
            self._usual_s[stage] = time.monotonic() - began
        return self._usual_s[stage]


class _Trial:
    """A child that runs one stage of tests against one mutant, or against none."""

    def __init__(self, target: Target, mutant: Any, number: int, limit_s: float) -> None:
        self.target, self.mutant, self.number, self.fate = target, mutant, number, ""
        self._until = time.monotonic() + limit_s
        self._child = os.fork()
        if self._child == 0:
            _be_tried(mutant, target, target.stages[number])

    def over(self) -> bool:
        """Whether it has ended by now, by itself or by the time limit."""
        done, status = os.waitpid(self._child, os.WNOHANG)
        if done:
            self.fate = "survived" if os.waitstatus_to_exitcode(status) == 0 else "killed"
        elif time.monotonic() > self._until:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._child, signal.SIGKILL)
            os.waitpid(self._child, 0)
            self.fate = "timed out"
        return bool(self.fate)


def _be_tried(mutant: Mutant | None, target: Target, stage: Sequence[str]) -> None:
    """The child: never returns."""
    code = 3
    try:
        os.setsid()
        os.chdir(ROOT)
        silence = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(silence, stream)
        os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
        os.environ.pop("PYTEST_ADDOPTS", None)
        sys.path[:0] = [str(ROOT / "src"), str(ROOT)]
        if target.light:
            sys.modules["holdfast"] = package = ModuleType("holdfast")
            package.__path__ = [str(ROOT / "src" / "holdfast")]
        if mutant is not None:
            sys.meta_path.insert(0, _Changed(mutant, target))
        code = int(pytest.main([*_OPTIONS, f"--rootdir={ROOT}", *stage]))
    finally:
        os._exit(code)
