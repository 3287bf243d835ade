"""What `make test` leaves out because another test of the same run holds the same rule; `make thorough` runs all.

Rules, each of which leaves a test out only where its twin (the same function, with the same case) was collected:
- SQLite runs a suite once: with every transaction in vain where tests/conformance/test_rerun.py has the suite, else on
  a file. The twins in memory, and on a file beside one in vain, say nothing new: one engine, and the same SQL. Tests
  that ask where they run (`self.disk`, `self.shared`) run in each place.
- What a database does by itself (transactions, migrations, SQL of applications, searches) runs on all of them.
- What lies above the clients (server, console, commands, adapters) imports no driver of a database, which import-linter
  holds. On PostgreSQL the first test of each suite runs, so that it is known to open there.
- Whether an argument is refused is decided before a database is asked: on PostgreSQL such a test runs its first case.
- The command line through a server is two clients in a row, whose suites run each: the first test of each runs.
"""

import os
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from types import CodeType, FunctionType
from typing import Any

import pytest

from tests.rerun import Rerun

_BACKENDS = frozenset({"sqlite", "memory", "postgres"})
_BACKEND_IN_ID = re.compile(r"(^|-)(sqlite|memory|postgres)(?=-|$)")

# Where everything is above the clients. Lists and logins of the console have statements that no other suite runs, and
# what a plan costs shows with many flows only.
_ABOVE_THE_CLIENTS = re.compile(
    r"tests/e2e/test_(?!list_pages|sorted_lists|many_flows|passkey|proxy_login)|tests/interop/test_(langgraph|openai|crewai|strands)"
    r"|tests/conformance/test_(a2a|agent_framework|agent_loops|claude_agent|crewai|google_adk|google_adk_services|hooks"
    r"|http|instrument|langgraph_cache|langgraph_store|openai_agents|openai_compaction|openai_tracing|pydantic_ai"
    r"|pydantic_conversations|pydantic_steps|strands)\.py"
)
# What a database does by itself: each of them has code of its own for it, and each runs all of these.
_THE_DATABASES = re.compile(
    r"tests/conformance/test_(database|executions|faces|lifecycle|machines|migrations|model|races|relational"
    r"|row_security|search)\.py"
)
# By backend, those where the same test asks more.
_HARDER = {"memory": {"file", "in vain"}, "file": {"in vain"}}
_HARDER_IN_VAIN = {"memory": {"in vain"}}
_REFUSES = re.compile(r"_(is|are)_refused|_typed_error")
_CLI_REMOTE = "tests.conformance.test_cli_remote"
_ITS_PARTS = ("tests.conformance.test_cli_parity", "tests.conformance.test_remote")

_Twin = tuple[str, object, str]
"""The module of a suite, a function of it, and a case: the same in every class that runs the suite."""


def is_thorough() -> bool:
    """Return whether every test was asked for."""
    return os.environ.get("HOLDPROOF_THOROUGH") == "1"


def was_checked() -> bool:
    """Return whether `make check` has just run the unit tests."""
    return os.environ.get("HOLDPROOF_CHECKED") == "1"


def checked(items: list[pytest.Item]) -> list[pytest.Item]:
    """Return those of the collected tests that `make check` runs."""
    return [item for item in items if item.nodeid.startswith("tests/unit/") and not item.get_closest_marker("slow")]


@dataclass(frozen=True, slots=True)
class _Test:
    """What the rules look at; pytest walks up its tree for each of these, so that they are read once."""

    item: pytest.Function
    path: str
    module: str
    suite: type | None
    function: Any
    backend: str
    twin: _Twin


def left_out(items: list[pytest.Item]) -> list[pytest.Item]:
    """Return those of the collected tests that say nothing new beside the others."""
    tests = [_described(item) for item in items if isinstance(item, pytest.Function)]
    backends: dict[_Twin, set[str]] = defaultdict(set)
    modules: dict[object, set[str]] = defaultdict(set)
    for test in tests:
        backends[test.twin].add(test.backend)
        modules[test.function].add(test.module)
    return [*_on_sqlite(tests, backends), *_on_postgres(tests, backends), *_through_two(tests, modules)]


def _described(item: pytest.Function) -> _Test:
    module, suite, function = item.module.__name__, item.cls, item.function
    twin = _twin(item, module, suite, function)
    return _Test(item, item.nodeid, module, suite, function, _backend(item, suite), twin)


def _on_sqlite(tests: list[_Test], backends: dict[_Twin, set[str]]) -> Iterator[pytest.Item]:
    for test in tests:
        harder = _HARDER_IN_VAIN if _THE_DATABASES.match(test.path) else _HARDER
        if backends[test.twin].isdisjoint(harder.get(test.backend, ())):
            continue
        if not _asks_where(test.suite, test.function):
            yield test.item


def _on_postgres(tests: list[_Test], backends: dict[_Twin, set[str]]) -> Iterator[pytest.Item]:
    suites: set[tuple[object, ...]] = set()
    refusals: set[tuple[object, ...]] = set()
    for test in tests:
        if test.backend != "postgres" or backends[test.twin].isdisjoint({"file", "in vain"}):
            continue
        suite = (test.module, test.suite)
        refusal = (*suite, test.function)
        if _ABOVE_THE_CLIENTS.match(test.path):
            if suite in suites:
                yield test.item
            suites.add(suite)
        elif _REFUSES.search(test.item.name.partition("[")[0]) and not _THE_DATABASES.match(test.path):
            if refusal in refusals:
                yield test.item
            refusals.add(refusal)


def _through_two(tests: list[_Test], modules: dict[object, set[str]]) -> Iterator[pytest.Item]:
    suites: set[object] = set()
    for test in tests:
        if test.module != _CLI_REMOTE or not modules[test.function].issuperset(_ITS_PARTS):
            continue
        if test.suite in suites:
            yield test.item
        suites.add(test.suite)


def _backend(item: pytest.Function, suite: type | None) -> str:
    """Return where a test runs: on a "file", in "memory", "in vain" there, on "postgres", or somewhere "else"."""
    suite = suite or object
    named = _BACKENDS.intersection(_cases(item))
    if issubclass(suite, Rerun):
        return "in vain"
    if "postgres" in named or "postgres" in item.fixturenames:
        return "postgres"
    if "memory" in named or "Memory" in suite.__name__:
        return "memory"
    return "file" if "sqlite" in named or "Sqlite" in suite.__name__ else "else"


@cache
def _asks_where(suite: type | None, function: Any) -> bool:
    """Return whether a test, or a method of its suite that it calls, tells places apart."""
    of_properties = getattr(function, "hypothesis", None)
    code = getattr(of_properties, "inner_test", function).__code__
    called = [getattr(suite, name, None) for name in _names(code)]
    codes = [code, *(each.__code__ for each in called if isinstance(each, FunctionType))]
    return any(not _names(each).isdisjoint({"disk", "shared"}) for each in codes)


@cache
def _names(code: CodeType) -> frozenset[str]:
    """Return the names that a function uses, also in functions inside of it."""
    inner = (const for const in code.co_consts if isinstance(const, CodeType))
    return frozenset(code.co_names).union(*map(_names, inner))


def _cases(item: pytest.Function) -> list[str]:
    """Return the parameters of a test that are text."""
    callspec = getattr(item, "callspec", None)
    return [] if callspec is None else [each for each in callspec.params.values() if isinstance(each, str)]


def _twin(item: pytest.Function, module: str, suite: type | None, function: Any) -> _Twin:
    if suite is not None and issubclass(suite, Rerun):
        module = next(base.__module__ for base in suite.__bases__ if base is not Rerun)
    callspec = getattr(item, "callspec", None)
    case = "" if callspec is None else _BACKEND_IN_ID.sub(r"\1", callspec.id, count=1)
    return module, function, case
