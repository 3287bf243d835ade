"""Who may import whom: the harness serves tests, proofs and benchmarks and imports none; these two import no tests."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FORBIDDEN = {"harness": {"tests", "proof", "bench"}, "proof": {"tests", "bench"}, "bench": {"tests", "proof"}}


def imports(file: Path) -> Iterator[str]:
    """The name of every module that a file imports, in functions too."""
    for node in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module


@pytest.mark.parametrize("package", FORBIDDEN)
def test_a_package_imports_none_that_builds_on_it(package: str) -> None:
    violations = [
        f"{file.relative_to(ROOT)} imports {module}"
        for file in sorted((ROOT / package).rglob("*.py"))
        for module in imports(file)
        if module.split(".")[0] in FORBIDDEN[package]
    ]
    assert violations == []
