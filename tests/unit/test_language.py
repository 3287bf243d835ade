"""The language of the product: the field's words, one statement a line, comments where a reader would stop.

Rules:
- No variable or parameter is named by a bare participle (`found`, `kept`): a name says what a thing is.
- No identifier, and no summary of a docstring, uses a word of the private vocabulary (docs/glossary.md has the words).
- Values are assigned one a line; rows are read by name, not by number.
- Comments are at least 30 per 1,000 lines of code.
- A public class has a name of its own.
"""

import ast
import io
import re
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import holdproof

ROOT = Path(holdproof.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))

LEAST_COMMENTS = 30
"""Comment lines per 1,000 lines of code."""
MOST_TUPLE_ASSIGNMENTS = 2
"""`a, b = x, y` per 1,000 statements."""

PARTICIPLES = frozenset(
    [
        "answered",
        "asked",
        "begun",
        "brought",
        "carried",
        "drawn",
        "found",
        "given",
        "gone",
        "heard",
        "held",
        "kept",
        "known",
        "left",
        "lost",
        "made",
        "meant",
        "met",
        "owed",
        "said",
        "seen",
        "settled",
        "shown",
        "sought",
        "spelled",
        "spoken",
        "taken",
        "thought",
        "told",
        "wanted",
    ]
)

PRIVATE_WORDS = frozenset(
    [
        "battle",
        "battles",
        "boldly",
        "carefully",
        "ceremony",
        "colour",
        "courier",
        "dfid",
        "dialing",
        "doings",
        "doorbook",
        "duties",
        "face",
        "faces",
        "lazily",
        "noun",
        "nouns",
        "patiently",
        "pulse",
        "shelf",
        "stranger",
        "strangers",
        "verb",
        "verbs",
        "vouched",
        "witnessing",
    ]
)
"""Words that had a meaning only here."""
# Foreign schemas keep their own words where they are read and written: DIR's dfid, the Green Agent's battles.
FOREIGN_WORDS = ("adapters/dir/", "importers/", "model/value.py")

PRIVATE_PHRASES = re.compile(
    r"\b(whoever|bit by bit|in hand|taken? over|the door|an?other face|both faces|nouns?|verbs?|faces?|strangers?)\b",
    re.IGNORECASE,
)

UNNUMBERED = re.compile(r"^_?(row|rows|record|columns|values)$")

SAME_NAME = frozenset({"Holdproof", "HoldproofApprovals", "HoldproofAgent"})
"""The async and the sync client are the same store; each framework has agents and approvals of its own."""


def _place(file: Path) -> str:
    return file.relative_to(ROOT).as_posix()


@cache
def _tree(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"), str(file))


def _bindings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield line and name of every variable and parameter that a module binds."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
                yield node.lineno, name
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                yield node.lineno, name


def _definitions(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield line and name of everything that a module defines: functions, classes, attributes, bindings."""
    yield from _bindings(tree)
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield node.lineno, name
            case ast.Attribute(attr=name, ctx=ast.Store()):
                yield node.lineno, name


def _classes(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield line and name of every class."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            yield node.lineno, node.name


def _words(identifier: str) -> set[str]:
    """Return the words of an identifier: `HighWater_mark` has high, water and mark."""
    return {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", identifier)}


def _documented(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield line and summary of every docstring."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text:
                yield node.body[0].lineno, text.split("\n\n")[0]


def _code_and_comments(file: Path) -> tuple[int, int]:
    """Return how many lines of a file hold code, and how many a comment that is not for a tool."""
    source = file.read_text(encoding="utf-8")
    code: set[int] = set()
    comments: set[int] = set()
    silent = {tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            if not re.match(r"#\s*(noqa|type:|pragma)", token.string):
                comments.add(token.start[0])
        elif token.type not in silent:
            code.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(_tree(file)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and first.end_lineno:
                code -= set(range(first.lineno, first.end_lineno + 1))
    return len(code), len(comments)


def _tuple_assignments(tree: ast.Module) -> Iterator[int]:
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple)):
            continue
        if any(isinstance(target, ast.Tuple) for target in node.targets):
            yield node.lineno


def test_no_binding_is_a_bare_participle() -> None:
    places = [
        f"{_place(file)}:{line} {name}"
        for file in FILES
        for line, name in _bindings(_tree(file))
        if name.strip("_") in PARTICIPLES
    ]
    assert not places


def test_no_identifier_has_a_private_word() -> None:
    places = [
        f"{_place(file)}:{line} {name}"
        for file in FILES
        if not _place(file).startswith(FOREIGN_WORDS)
        for line, name in _definitions(_tree(file))
        if _words(name) & PRIVATE_WORDS
    ]
    assert not places


def test_no_summary_has_a_private_phrase() -> None:
    places = [
        f"{_place(file)}:{line} {match.group()}"
        for file in FILES
        for line, summary in _documented(_tree(file))
        if (match := PRIVATE_PHRASES.search(summary))
    ]
    assert not places


def test_no_summary_begins_with_a_class_where_a_verb_belongs() -> None:
    # What a codemod leaves that renames a class in prose, too: "FlowReplay the newest flows".
    classes = {name for file in FILES for _, name in _classes(_tree(file))}
    places = [
        f"{_place(file)}:{line} {match.group()}"
        for file in FILES
        for line, summary in _documented(_tree(file))
        if (match := re.match(r"((?:[A-Z][a-z]+){2,}) [a-z`]", summary)) and match[1] in classes
    ]
    assert not places


def test_comments_stand_where_a_reader_would_stop() -> None:
    counts = [_code_and_comments(file) for file in FILES]
    code = sum(lines for lines, _ in counts)
    comments = sum(lines for _, lines in counts)
    assert comments * 1_000 >= LEAST_COMMENTS * code, f"{comments} comments in {code} lines of code"


def test_values_are_assigned_one_a_line() -> None:
    statements = sum(isinstance(node, ast.stmt) for file in FILES for node in ast.walk(_tree(file)))
    places = [f"{_place(file)}:{line}" for file in FILES for line in _tuple_assignments(_tree(file))]
    assert len(places) * 1_000 <= MOST_TUPLE_ASSIGNMENTS * statements, places


def test_rows_are_read_by_name() -> None:
    places = [
        f"{_place(file)}:{node.lineno} {node.value.id}"
        for file in FILES
        for node in ast.walk(_tree(file))
        if isinstance(node, ast.Subscript)
        and isinstance(node.value, ast.Name)
        and UNNUMBERED.match(node.value.id)
        and isinstance(node.slice, ast.Constant)
        and isinstance(node.slice.value, int)
    ]
    assert not places


def test_a_public_class_has_a_name_of_its_own() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for file in FILES:
        for node in _tree(file).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(_place(file))
    doubled = {name: files for name, files in places.items() if len(files) > 1 and name not in SAME_NAME}
    assert not doubled


@pytest.mark.parametrize(
    ("identifier", "words"),
    [
        ("flow_id", {"flow", "id"}),
        ("AsyncFace", {"async", "face"}),
        ("_boldly", {"boldly"}),
        ("MOST_VERBS", {"most", "verbs"}),
    ],
)
def test_the_words_of_an_identifier_are_told_apart(identifier: str, words: set[str]) -> None:
    assert _words(identifier) == words
