"""Small changes of a source file, each as a whole new source."""

import ast
import re
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

_FLIPS: Final[dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
_SUMS: Final[dict[type[ast.operator], type[ast.operator]]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
}
_SQL: Final = re.compile(r"\b(SELECT|INSERT|UPDATE|DELETE|WHERE|AND|SET|VALUES)\b")
_IN_SQL: Final = (
    (re.compile(r"<="), "<"),
    (re.compile(r">="), ">"),
    (re.compile(r"(?<![<>])<(?![=>])"), "<="),
    (re.compile(r"(?<![<>])>(?![=])"), ">="),
    (re.compile(r"<>"), "="),
    (re.compile(r"(?<=[a-z_']) = (?=[:'a-z(])"), " <> "),
    (re.compile(r"\bAND\b"), "OR"),
    (re.compile(r"\bOR\b(?! (REPLACE|IGNORE))"), "AND"),
    (re.compile(r"\bIS NULL\b"), "IS NOT NULL"),
    (re.compile(r"\bIS NOT NULL\b"), "IS NULL"),
    (re.compile(r"\bNOT EXISTS\b"), "EXISTS"),
    (re.compile(r" \+ "), " - "),
)
_ASIDE: Final = frozenset({"annotation", "returns", "decorator_list", "bases", "type_params"})
_QUIET: Final = ("_log.", "__", "typing", "warnings.")


_Found = tuple[str, tuple[ast.AST, ...], ast.AST]
"""The function a node is in, what it stands in, and the node."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change: where, and what it was and is."""

    file: str
    place: str
    line: int
    was: str
    now: str
    _made: Callable[[], str] = field(repr=False, compare=False)

    @property
    def name(self) -> str:
        """What it is called, however lines move: the file, the function, the change."""
        return f"{self.file} {self.place}: {self.was} -> {self.now}"

    @property
    def source(self) -> str:
        """The whole source with the change in it; made only now, since few of many are tried."""
        return self._made()


def mutants(file: str, source: str) -> list[Mutant]:
    """Every mutant of a source; equal ones once."""
    tree = ast.parse(source)
    found: dict[str, Mutant] = {}
    for place, parents, node in _nodes(tree):
        for changed in _changes(node, parents):
            made = partial(_with, tree, node, changed)
            mutant = Mutant(file, place, getattr(node, "lineno", 0), *_told(node, changed), made)
            while mutant.name in found:  # the same change twice in one function: told apart by a count
                mutant = Mutant(file, place, mutant.line, f"{mutant.was}'", mutant.now, made)
            found[mutant.name] = mutant
    return list(found.values())


def _nodes(tree: ast.Module) -> Iterator[_Found]:
    """Every node that may be changed, with the function it is in and what it stands in."""

    def walk(node: ast.AST, place: str, parents: tuple[ast.AST, ...]) -> Iterator[_Found]:
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
            if node.name in {"__repr__", "__str__"}:
                return
            place = f"{place}.{node.name}" if place else node.name
        yield place or "module", parents, node
        for name, value in ast.iter_fields(node):
            if name in _ASIDE or isinstance(node, ast.Raise | ast.Import | ast.ImportFrom) or _names_a_type(node):
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST) and not _docstring(child):
                    yield from walk(child, place, (*parents, node))

    yield from walk(tree, "", ())


def _docstring(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _changes(node: ast.AST, parents: tuple[ast.AST, ...]) -> Iterator[ast.AST]:
    """What a node can be changed into."""
    match node:
        case ast.Compare(ops=[op]):
            for other in _FLIPS.get(type(op), ()):
                yield _altered(node, ops=[other()])
        case ast.BoolOp(op=op):
            yield _altered(node, op=ast.Or() if isinstance(op, ast.And) else ast.And())
        case ast.UnaryOp(op=ast.Not()):
            yield node.operand
        case ast.BinOp(op=op) if type(op) in _SUMS and not _made_of_text(node) and not _of_types(parents):
            yield _altered(node, op=_SUMS[type(op)]())
        case ast.If() | ast.IfExp():
            yield from (_altered(node, test=ast.Constant(truth)) for truth in (True, False))
        case ast.Raise() | ast.Expr(value=ast.Call()) if not _unheard(node):
            yield ast.Pass()
        case ast.Constant():
            yield from _constants(node, parents)


def _altered(node: ast.AST, **parts: Any) -> ast.AST:
    """A copy with other parts."""
    changed = deepcopy(node)
    for name, part in parts.items():
        setattr(changed, name, part)
    return changed


def _constants(node: ast.Constant, parents: tuple[ast.AST, ...]) -> Iterator[ast.Constant]:
    value: Any = node.value
    if isinstance(value, bool):
        if not (isinstance(parents[-1], ast.keyword) and parents[-1].arg == "strict"):  # it says what cannot be
            yield ast.Constant(not value)
    elif isinstance(value, int):
        yield ast.Constant(value + 1)
    elif isinstance(value, str) and _SQL.search(value) and not any(isinstance(each, ast.Raise) for each in parents):
        for pattern, other in _IN_SQL:
            for found in pattern.finditer(value):
                yield ast.Constant(value[: found.start()] + other + value[found.end() :])


def _unheard(node: ast.AST) -> bool:
    """Whether leaving it out is nothing a test should have to see: a line in a log."""
    return any(word in ast.unparse(node).partition("(")[0] for word in _QUIET)


def _made_of_text(node: ast.BinOp) -> bool:
    sides = [each for each in (node.left, node.right) if isinstance(each, ast.Constant | ast.JoinedStr)]
    return any(not isinstance(getattr(each, "value", ""), int) for each in sides)


def _of_types(parents: tuple[ast.AST, ...]) -> bool:
    """A union of types looks like a sum of bits."""
    return any(isinstance(each, ast.Subscript | ast.AnnAssign) or _asks_for_type(each) for each in parents)


def _names_a_type(node: ast.AST) -> bool:
    """An alias of a type, which nothing that runs asks for."""
    return isinstance(node, ast.AnnAssign) and ast.unparse(node.annotation) == "TypeAlias"


def _asks_for_type(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "isinstance"


def _with(tree: ast.Module, node: ast.AST, changed: ast.AST) -> str:
    """The whole source with one node exchanged; the tree stays as it is."""

    def copy(at: ast.AST) -> ast.AST:
        if at is node:
            return changed
        made = type(at)()
        for name, value in ast.iter_fields(at):
            if isinstance(value, list):
                setattr(made, name, [copy(each) if isinstance(each, ast.AST) else each for each in value])
            else:
                setattr(made, name, copy(value) if isinstance(value, ast.AST) else value)
        return made

    return ast.unparse(ast.fix_missing_locations(copy(tree)))


def _told(node: ast.AST, changed: ast.AST) -> tuple[str, str]:
    """What it was and what it is; of a long text only what differs, with a little around it."""
    if isinstance(changed, ast.Pass):
        return _short(ast.unparse(node)), "nothing"
    was, now = ast.unparse(node), ast.unparse(changed)
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        same = _alike(was, now)
        rest = _alike(was[same:][::-1], now[same:][::-1])
        start = max(0, same - 40)
        was, now = was[start : len(was) - rest + 25], now[start : len(now) - rest + 25]
    return _short(was), _short(now)


def _alike(one: str, other: str) -> int:
    """How many characters two texts begin with alike."""
    differ = (at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b)
    return next(differ, min(len(one), len(other)))


def _short(text: str) -> str:
    """One line of bounded length."""
    line = " ".join(text.split())
    return line if len(line) <= 160 else f"{line[:110]} … {line[-45:]}"
