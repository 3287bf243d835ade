"""One mutant against its tests, in a process of its own that is forked from one with the libraries in it.

Modules of the package that do not depend on a mutated file are in it too: they are most of what a child would import.

The mutated source is given to Python's importer, so nothing on the disk changes. Tests that start other processes run
these without the change: they can let a mutant live, never kill one that should.
"""

import contextlib
import gc
import importlib
import importlib.abc
import importlib.util
import math
import os
import resource
import signal
import sys
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from importlib.machinery import ModuleSpec
from types import CodeType, ModuleType
from typing import Any, Final, NamedTuple

import pytest
from hypothesis import HealthCheck, Phase, settings

from proof.mutants import warm
from proof.mutants.source_mutations import Mutant
from proof.mutants.targets import ROOT, Target

_WARM: Final = ("hypothesis", "hypothesis.stateful", "cryptography.hazmat.primitives.asymmetric.ec", "apsw", "httpx")
_WARM_TOO: Final = ("yaml", "rich.console", "click", "numpy", "psycopg", "fastapi", "uvicorn", "jinja2", "rfc8785")
_OPTIONS: Final = ("-x", "-q", "--tb=no", "-p", "no:cacheprovider", "-p", "pytest_timeout")


class _Spent(NamedTuple):
    """Time: by the clock, which does not stop for other work, and of the processor, which tells a loop without end."""

    wall_s: float
    cpu_s: float


_LEAST: Final = _Spent(20.0, 3.0)


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

    def __init__(self, workers: int = 1, targets: Collection[Target] = ()) -> None:
        for name in (*_WARM, *_WARM_TOO):
            with contextlib.suppress(ImportError):
                importlib.import_module(name)
        # The same examples for every mutant, however busy the machine; nobody reads one that fails, so it may be large.
        steady = {"derandomize": True, "database": None, "deadline": None, "suppress_health_check": list(HealthCheck)}
        settings.register_profile("mutants", phases=(Phase.explicit, Phase.generate), **steady)  # type: ignore[arg-type]
        settings.load_profile("mutants")
        if targets and not any(target.light for target in targets):
            _load({target.module for target in targets})
        assert "holdproof" not in sys.modules, "a child has to import it anew, with the change in it"
        self._workers = workers
        self._usual: dict[tuple[str, ...], _Spent] = {}
        gc.freeze()  # what is here already no child has to look at again

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
        usual = self._unchanged(target, number)
        return _Trial(target, mutant, number, _Spent(_LEAST.wall_s + 5 * usual.wall_s, _LEAST.cpu_s + 3 * usual.cpu_s))

    def _unchanged(self, target: Target, number: int) -> "_Spent":
        """What these tests take without a change; they must pass."""
        stage = target.stages[number]
        if stage not in self._usual:
            trial = _Trial(target, None, number, _Spent(600.0, 600.0))
            while not trial.over():
                time.sleep(0.02)
            if trial.fate != "survived":
                raise RuntimeError(f"tests fail without any change: {' '.join(stage)}")
            self._usual[stage] = trial.spent
        return self._usual[stage]


class _Trial:
    """A child that runs one stage of tests against one mutant, or against none."""

    def __init__(self, target: Target, mutant: Any, number: int, limit: _Spent) -> None:
        self.target, self.mutant, self.number, self.fate, self.spent = target, mutant, number, "", _Spent(0.0, 0.0)
        self._began = time.monotonic()
        self._until = self._began + limit.wall_s
        self._child = os.fork()
        if self._child == 0:
            _be_tried(mutant, target, target.stages[number], math.ceil(limit.cpu_s))

    def over(self) -> bool:
        """Whether it has ended by now, by itself or by a limit."""
        done, status, usage = os.wait4(self._child, os.WNOHANG)
        if done:
            code = os.waitstatus_to_exitcode(status)
            self.fate = "survived" if code == 0 else "timed out" if code == -signal.SIGXCPU else "killed"
            self.spent = _Spent(time.monotonic() - self._began, usage.ru_utime + usage.ru_stime)
        elif time.monotonic() > self._until:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._child, signal.SIGKILL)
            os.waitpid(self._child, 0)
            self.fate = "timed out"
        return bool(self.fate)


def _bare_package() -> None:
    """The package without what its `__init__` imports."""
    sys.modules["holdproof"] = package = ModuleType("holdproof")
    package.__path__ = [str(ROOT / "src" / "holdproof")]


def _whole_package() -> None:
    """The package around those of its modules that are loaded."""
    package = importlib.import_module("holdproof")
    for name, module in [*sys.modules.items()]:
        if name.startswith("holdproof.") and name.count(".") == 1:
            setattr(package, name.removeprefix("holdproof."), module)


def _load(changed: Collection[str]) -> None:
    """Import what does not depend on these modules; the package itself is left to the children."""
    sys.path[:0] = [str(ROOT / "src")]
    _bare_package()
    for name in warm.independent(changed):
        importlib.import_module(name)
    assert not set(changed) & sys.modules.keys(), "what is changed has to be imported anew"
    del sys.modules["holdproof"]


def _be_tried(mutant: Mutant | None, target: Target, stage: Sequence[str], cpu_s: int) -> None:
    """The child: never returns."""
    code = 3
    try:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, resource.RLIM_INFINITY))
        os.chdir(ROOT)
        silence = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(silence, stream)
        os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
        os.environ.pop("PYTEST_ADDOPTS", None)
        sys.path[:0] = [str(ROOT / "src"), str(ROOT)]
        if mutant is not None:
            sys.meta_path.insert(0, _Changed(mutant, target))
        if target.light:
            _bare_package()
        elif "holdproof.errors" in sys.modules:
            _whole_package()
        code = int(pytest.main([*_OPTIONS, f"--rootdir={ROOT}", *stage]))
    finally:
        os._exit(code)
