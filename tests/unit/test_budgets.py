"""The size budgets and habits of the product: what must stay small stays small, what is banned stays out."""

import ast
import statistics
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import holdproof

ROOT = Path(holdproof.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))

MOST_LINES, MEDIAN_LINES, MOST_FUNCTION_LINES, MOST_NAMES = 500, 180, 60, 30
MAY_PRINT = ("cli/",)
STORAGE_RIM = ("storage/executors.py", "storage/lifecycle.py", "storage/provider.py")
CLI_RIM = ("cli/serve.py", "cli/worker.py")
MAY_ASYNCIO = ("executors/", "api/", "client.py", "remote/", "server/", "adapters/", "testing/", *STORAGE_RIM, *CLI_RIM)
# A hook says when it saw an event: no transaction is open there.
MAY_TELL_TIME = ("db/clock.py", "server/ids.py", "adapters/hooks/client.py")

# Clocks and randomness that no test can hold still. Waiting and jitter (monotonic, perf_counter, uniform) are not here.
BANNED_CALLS = {
    "time.time",
    "time.time_ns",
    "datetime.now",
    "datetime.utcnow",
    "datetime.today",
    "date.today",
    "os.urandom",
    "uuid.uuid1",
    "random.random",
    "random.randint",
    "random.randrange",
    "random.choice",
    "random.choices",
    "random.shuffle",
    "random.sample",
    "random.getrandbits",
    "random.randbytes",
    "random.Random",
    "random.SystemRandom",
    "secrets.token_bytes",
    "secrets.token_hex",
    "secrets.token_urlsafe",
    "secrets.randbits",
    "secrets.choice",
}
JITTER = "random.uniform"


def _named(file: Path) -> str:
    return file.relative_to(ROOT).as_posix()


def _allowed(file: Path, places: tuple[str, ...]) -> bool:
    return _named(file).startswith(places)


def _lines(file: Path) -> list[str]:
    return file.read_text(encoding="utf-8").splitlines()


def _tree(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"), str(file))


def _dotted(node: ast.expr) -> str:
    """`a.b.c` of an attribute chain; a call or an index in it counts as nothing."""
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}".lstrip(".")
    return node.id if isinstance(node, ast.Name) else ""


def _calls(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield node.lineno, _dotted(node.func)


def _names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Every dotted name, called or handed on."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute | ast.Name):
            yield node.lineno, _dotted(node)


def _imports(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def _functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def _banned(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Uses of a clock or a randomness that no test can hold still."""
    for line, name in _names(tree):
        if any(name == banned or name.endswith(f".{banned}") for banned in BANNED_CALLS):
            yield line, name
    for line, name in _imports(tree):
        if name in BANNED_CALLS:
            yield line, name


def _hidden_imports(file: Path, tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield imports inside functions that are neither an optional extra nor the HTTP client of a remote store."""
    lines = _lines(file)
    for function in _functions(tree):
        for line, name in _imports(function):
            excused = ("optional extra", "only for those who connect")
            if not ("noqa: PLC0415" in lines[line - 1] and any(reason in lines[line - 1] for reason in excused)):
                yield line, name


def _found(look: Callable[[Path], Iterator[tuple[int, str]]], except_in: tuple[str, ...] = ()) -> list[str]:
    """What a look at every file finds, as place and name."""
    return [f"{_named(file)}:{at} {what}" for file in FILES if not _allowed(file, except_in) for at, what in look(file)]


# --- sizes -----------------------------------------------------------------------------------------------------------


def test_no_file_is_over_500_lines() -> None:
    assert [f"{_named(file)} {len(_lines(file))}" for file in FILES if len(_lines(file)) > MOST_LINES] == []


def test_the_median_file_is_under_180_lines() -> None:
    assert statistics.median(len(_lines(file)) for file in FILES) < MEDIAN_LINES


def test_no_function_is_over_60_lines() -> None:
    def long(file: Path) -> Iterator[tuple[int, str]]:
        for function in _functions(_tree(file)):
            assert function.end_lineno is not None
            if function.end_lineno - function.body[0].lineno + 1 > MOST_FUNCTION_LINES:
                yield function.lineno, function.name

    assert _found(long) == []


def test_at_most_30_names_are_public_and_they_are_sorted() -> None:
    names = holdproof.__all__
    assert len(names) <= MOST_NAMES
    assert names == sorted(set(names))
    assert all(hasattr(holdproof, name) for name in names)


# --- habits ----------------------------------------------------------------------------------------------------------


def test_nothing_is_left_to_do() -> None:
    def open_ends(file: Path) -> Iterator[tuple[int, str]]:
        for at, line in enumerate(_lines(file), 1):
            yield from ((at, word) for word in ("TODO", "FIXME", "XXX", "NotImplementedError") if word in line)

    assert _found(open_ends) == []


def test_only_the_command_line_prints() -> None:
    def prints(file: Path) -> Iterator[tuple[int, str]]:
        return ((at, name) for at, name in _calls(_tree(file)) if name == "print")

    assert _found(prints, MAY_PRINT) == []


def test_asyncio_is_imported_only_at_the_rim() -> None:
    def coloured(file: Path) -> Iterator[tuple[int, str]]:
        return ((at, name) for at, name in _imports(_tree(file)) if name.split(".")[0] == "asyncio")

    assert _found(coloured, MAY_ASYNCIO) == []


def test_functions_import_nothing_but_optional_extras() -> None:
    assert _found(lambda file: _hidden_imports(file, _tree(file))) == []


def test_time_and_randomness_come_from_one_place() -> None:
    assert _found(lambda file: _banned(_tree(file)), MAY_TELL_TIME) == []


def test_jitter_says_that_it_is_no_secret() -> None:
    def silent(file: Path) -> Iterator[tuple[int, str]]:
        lines = _lines(file)
        return ((at, name) for at, name in _calls(_tree(file)) if name == JITTER and "noqa: S311" not in lines[at - 1])

    assert _found(silent) == []


# --- the looks themselves can fail -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "import time\ntime.time()",
        "from time import time_ns",
        "import datetime\ndatetime.datetime.now(UTC)",
        "from random import choice",
        "import os\nf = os.urandom",
        "clock = time.time",
    ],
)
def test_a_forbidden_clock_or_die_is_found(text: str) -> None:
    assert list(_banned(ast.parse(text)))


@pytest.mark.parametrize(
    "text", ["time.monotonic()", "time.perf_counter()", "random.uniform(0, 1)", "tx.random(16)", "self._random(8)"]
)
def test_waiting_jitter_and_the_transaction_are_not_mistaken_for_them(text: str) -> None:
    assert list(_banned(ast.parse(text))) == []


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("import json", 1),
        ("import json  # noqa: PLC0415", 1),
        ("import psycopg  # noqa: PLC0415 (an optional extra)", 0),
    ],
)
def test_an_import_inside_a_function_is_found_unless_it_says_why(tmp_path: Path, line: str, found: int) -> None:
    file = tmp_path / "some.py"
    file.write_text(f"def f():\n    {line}\n")
    assert len(list(_hidden_imports(file, ast.parse(file.read_text())))) == found
