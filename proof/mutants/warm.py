"""Which modules of the package may be loaded before a mutant is: those that import none of the files in question."""

import ast
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from proof.mutants.targets import ROOT

_SOURCE: Final = ROOT / "src"
_TOP: Final = "holdproof"
_CLIENTS: Final = ("holdproof.client", "holdproof.sync")


def independent(modules: Iterable[str]) -> list[str]:
    """What importing the package imports, without these modules and all that import them, even inside a function."""
    trees = {_name(path.relative_to(_SOURCE).parts): ast.parse(path.read_text()) for path in _SOURCE.rglob("*.py")}
    known = trees.keys() - {_TOP}
    anywhere = {name: set(_named(ast.walk(tree))) & known for name, tree in trees.items()}
    at_once = {name: set(_named(tree.body)) & known for name, tree in trees.items()}
    tainted = _reached(modules, _turned(anywhere)) | {_TOP}
    # The package itself loads its names lazily; the two clients import what a program uses.
    return sorted(_reached(_CLIENTS, at_once) - tainted)


def _name(parts: tuple[str, ...]) -> str:
    return ".".join(parts).removesuffix(".py").removesuffix(".__init__")


def _named(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """The modules that import statements may mean, with the packages they lie in."""
    for node in nodes:
        names = [each.name for each in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
        if isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{name}" for name in names]
        for name in names:
            parts = name.split(".")
            yield from (".".join(parts[:count]) for count in range(1, len(parts) + 1))


def _turned(graph: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """Who imports whom, from the other side; a package is imported by all that lies in it."""
    turned: dict[str, set[str]] = {name: set() for name in graph}
    for name, others in graph.items():
        package = name.rpartition(".")[0]
        for other in others | ({package} & graph.keys() - {_TOP}):
            turned[other].add(name)
    return turned


def _reached(start: Iterable[str], graph: Mapping[str, set[str]]) -> set[str]:
    found, left = set[str](), [*start]
    while left:
        if (name := left.pop()) not in found:
            found.add(name)
            left.extend(graph[name])
    return found
