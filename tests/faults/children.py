"""The programs of this folder, as processes that are there to be killed."""

from contextlib import AbstractContextManager
from pathlib import Path

from harness import children
from harness.children import FORKS, Child, kill_after

_HERE = Path(__file__).parent
_PROGRAMS = sorted(file.stem for file in _HERE.glob("*.py") if '__name__ == "__main__"' in file.read_text())
children.preload(*(f"{__package__}.{program}" for program in _PROGRAMS), "tests.conformance.racer")


def child(program: str, *words: str) -> AbstractContextManager[Child]:
    """A program of this folder, running; what it acknowledges comes out of its pipe. Dead when we leave."""
    return children.child(f"{__package__}.{program}", *words)


__all__ = ["FORKS", "Child", "child", "kill_after"]
