"""Every example runs, without a network and without a model, and without a warning."""

import ast
import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted(ROOT.glob("examples/*.py"))


def missing(example: Path) -> list[str]:
    """What an example imports and is not installed."""
    tree = ast.parse(example.read_text(encoding="utf-8"))
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    return sorted(name for name in names if not name.startswith("holdproof") and not _found(name))


def _found(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_runs(example: Path, tmp_path: Path) -> None:
    if lacks := missing(example):
        pytest.skip(f"not installed: {', '.join(lacks)}")
    done = subprocess.run(
        [sys.executable, "-W", "error::DeprecationWarning:holdproof", str(example), str(tmp_path / "store")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout
