"""A pytest plugin for the tests of `langgraph-checkpoint-sqlite`: their stores are ours, at HOLDPROOF_TEST_STORE.

`LEFT_OUT` names each test that is not run, with the reason. Where a test sleeps until something has ended, our clock
moves on instead.
"""

import asyncio
import inspect
import os
import tempfile
import time
import types
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import cache
from hashlib import sha256
from importlib import import_module
from typing import Any

import pytest

from holdproof import client, sync
from holdproof.adapters.langgraph import HoldproofStore
from holdproof.store.opening import Store, open_store

LEFT_OUT = {
    "test_async_store.py::test_no_running_loop": "expects an error where our sync methods work: under a running loop",
    "test_store.py::test_vector_store_initialization": "asks sqlite_master for a table of their own",
    "test_store.py::test_nonnull_migrations": "reads the migrations of their own tables",
    "test_store.py::test_escape_glob_literal": "a private function of theirs, which no store of ours calls",
    "test_store.py::test_namespace_match_pattern": "a private function of theirs, which no store of ours calls",
    "test_store.py::test_list_namespaces_prefix_uses_indexable_condition": "reads the SQL of their own queries",
}


class MovingClock:
    """The time, and whatever was slept."""

    def __init__(self) -> None:
        self.slept = 0.0

    def __call__(self) -> int:
        return time.time_ns() // 1000 + round(self.slept * 1_000_000)

    def sleep(self, seconds: float) -> None:
        self.slept += seconds


CLOCK = MovingClock()
FOLDER = tempfile.TemporaryDirectory(prefix="holdproof-")


@cache
def served(url: str) -> Store:
    """A store that all tests share, opened once."""
    return open_store(FOLDER.name, url or None, clock=CLOCK)


def opened(conn_string: str) -> sync.Holdproof:
    """A store for a name: a namespace of its own."""
    memory = conn_string == ":memory:"
    name = uuid.uuid4().hex if memory else sha256(conn_string.encode()).hexdigest()[:32]
    url = os.environ.get("HOLDPROOF_TEST_STORE", "")
    return sync.Holdproof(served(url or (conn_string if memory else "")), name)


class Sync(HoldproofStore):
    """Ours, opened the way theirs is."""

    @classmethod
    @contextmanager
    def from_conn_string(cls, conn_string: str, **options: Any) -> Iterator["Sync"]:  # type: ignore[override]
        made = cls(opened(conn_string), **options)
        yield made
        made.close()


class Async(HoldproofStore):
    """Ours with the names that theirs gives to coroutines."""

    @classmethod
    @asynccontextmanager
    async def from_conn_string(cls, conn_string: str, **options: Any) -> AsyncIterator["Async"]:  # type: ignore[override]
        store = await asyncio.to_thread(opened, conn_string)
        made = cls(client.Holdproof(store.core, store.ns), **options)
        yield made
        await asyncio.to_thread(made.close)

    async def setup(self) -> None:  # type: ignore[override]
        pass

    async def sweep_ttl(self) -> int:  # type: ignore[override]
        return await self.asweep_ttl()

    async def start_ttl_sweeper(self, sweep_interval_minutes: float | None = None) -> Any:
        self._sweeper._sweep = super().sweep_ttl  # the thread sweeps without a loop
        return super().start_ttl_sweeper(sweep_interval_minutes)

    async def stop_ttl_sweeper(self, timeout: float | None = None) -> bool:  # type: ignore[override]
        return await asyncio.to_thread(super().stop_ttl_sweeper, timeout)


def pytest_configure(config: pytest.Config) -> None:
    theirs: Any = import_module("langgraph.store.sqlite")
    theirs.SqliteStore = Sync
    theirs.AsyncSqliteStore = Async
    theirs.aio.AsyncSqliteStore = Async
    config.addinivalue_line("markers", "asyncio: a coroutine")
    config.addinivalue_line("markers", "flaky: theirs")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    names = {f"{item.path.name}::{getattr(item, 'originalname', item.name)}" for item in items}
    assert {name for name in LEFT_OUT if name.split("::")[0] in {item.path.name for item in items}} <= names
    for module in {item.module for item in items if item.path.name == "test_ttl.py"}:  # type: ignore[attr-defined]
        module.time = types.SimpleNamespace(sleep=CLOCK.sleep)
        module.asyncio = types.SimpleNamespace(sleep=_sleep)
    inside = [item for item in items if f"{item.path.name}::{getattr(item, 'originalname', '')}" in LEFT_OUT]
    config.hook.pytest_deselected(items=inside)
    items[:] = [item for item in items if item not in inside]


async def _sleep(seconds: float) -> None:
    CLOCK.sleep(seconds)


@pytest.hookimpl(tryfirst=True)
def pytest_fixture_setup(fixturedef: Any, request: Any) -> Any:
    """Their async fixture, on the loop that its test runs on."""
    made = fixturedef.func
    if not inspect.isasyncgenfunction(made):
        return None
    loop = request.getfixturevalue("loop")
    given = {name: request.getfixturevalue(name) for name in fixturedef.argnames}
    steps = made(**given)
    value = loop.run_until_complete(anext(steps))
    fixturedef.addfinalizer(lambda: loop.run_until_complete(anext(steps, None)))
    fixturedef.cached_result = (value, fixturedef.cache_key(request), None)
    return value


def pytest_unconfigure(config: pytest.Config) -> None:
    places = ("", ":memory:", os.environ.get("HOLDPROOF_TEST_STORE", ""))
    for url in dict.fromkeys(places):
        served(url).close()
    FOLDER.cleanup()


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    with asyncio.Runner() as runner:
        yield runner.get_loop()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if inspect.iscoroutinefunction(metafunc.function) and "loop" not in metafunc.fixturenames:
        metafunc.fixturenames.insert(0, "loop")


def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    wanted = inspect.signature(pyfuncitem.obj).parameters
    loop = pyfuncitem._request.getfixturevalue("loop")
    loop.run_until_complete(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in wanted}))
    return True
