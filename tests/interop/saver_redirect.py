"""A pytest plugin for the tests of LangGraph's own packages: what they take for `SqliteSaver` is `HoldproofSaver`.

HOLDPROOF_TEST_STORE is a PostgreSQL URL, or nothing for SQLite in memory. All tests share one store, opened once; each
saver has a namespace of its own. Classes that a test module defines are allowed, as its author would allow them.
"""

import asyncio
import inspect
import os
import sys
import tempfile
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import cache
from hashlib import sha256
from importlib import import_module
from typing import Any

import pytest

from holdproof import sync
from holdproof.adapters.langgraph import HoldproofSaver
from holdproof.store.opening import Store, open_store

FOLDER = tempfile.TemporaryDirectory(prefix="holdproof-")


@cache
def shared_store() -> Store:
    """The store of all tests, opened once."""
    return open_store(FOLDER.name, os.environ.get("HOLDPROOF_TEST_STORE") or ":memory:")


def classes_of_tests() -> Iterator[tuple[str, str]]:
    """What test modules define at their top, by module and name."""
    for name, module in [*sys.modules.items()]:
        if name.startswith(("tests.", "test_")):
            for value in [*vars(module).values()]:
                if inspect.isclass(value) and value.__module__ == name:
                    yield name, value.__name__


def opened(conn_string: str) -> sync.Holdproof:
    """A store for a name: a namespace of its own."""
    name = uuid.UUID(bytes=os.urandom(16)).hex  # some of their tests replace uuid4
    if conn_string != ":memory:":
        name = sha256(conn_string.encode()).hexdigest()[:32]
    return sync.Holdproof(shared_store(), name)


class Sync(HoldproofSaver):
    """Ours, opened the way theirs is."""

    @classmethod
    @contextmanager
    def from_conn_string(cls, conn_string: str, **options: Any) -> Iterator["Sync"]:  # type: ignore[override]
        yield cls(opened(conn_string), allow=classes_of_tests(), **options)


class Async(HoldproofSaver):
    """The same under the name of their asynchronous one."""

    @classmethod
    @asynccontextmanager
    async def from_conn_string(cls, conn_string: str, **options: Any) -> AsyncIterator["Async"]:  # type: ignore[override]
        store = await asyncio.to_thread(opened, conn_string)
        yield cls(store, allow=classes_of_tests(), **options)


def hide_langchain() -> None:
    """Let models not say that `langchain` is installed: LangGraph's own tests compare what models say, without it."""
    base: Any = import_module("langchain_core.language_models.base")
    # An older langchain-core does not look for it.
    if hasattr(base, "_get_langchain_version"):
        base._get_langchain_version = _nothing


def _nothing() -> None:
    return None


def redirect() -> None:
    """Put ours in the place of theirs, before any conftest of theirs imports it."""
    if os.environ.get("HOLDPROOF_TEST_THEIRS"):  # the same run on their own saver: the line to be compared with
        return
    theirs: Any = import_module("langgraph.checkpoint.sqlite")
    theirs.SqliteSaver = Sync
    aio: Any = import_module("langgraph.checkpoint.sqlite.aio")
    aio.AsyncSqliteSaver = Async


hide_langchain()
redirect()


def pytest_unconfigure(config: pytest.Config) -> None:
    if shared_store.cache_info().currsize:
        shared_store().close()
    FOLDER.cleanup()
