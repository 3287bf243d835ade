"""A pytest plugin for the tests of `openai-agents`: their SQLiteSession is ours, where HOLDPROOF_TEST_STORE says.

Left out are tests that reach into SQLiteSession itself, its connections, its locks, its tables: `INSIDES` names what
gives them away. Whatever looks at a session from outside stays in.
"""

import asyncio
import inspect
import os
import re
import uuid
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import agents
import pytest
from agents.memory import sqlite_session

from holdproof.adapters.openai_agents import HoldproofSession

INSIDES = re.compile(r"sqlite3\.|session\w*\._|backend\._insert|SQLiteSession\._|_await_mutation|_connection|is closed")


class Redirected(HoldproofSession):
    """Ours, made the way theirs is made."""

    def __init__(self, session_id: str, db_path: str | Path = ":memory:", *tables: str, **options: Any) -> None:
        server = os.environ.get("HOLDPROOF_TEST_STORE", "")
        name = uuid.uuid4().hex if str(db_path) == ":memory:" else sha256(str(db_path).encode()).hexdigest()
        place: dict[str, Any] = {"where": server, "ns": name[:32]} if server else {"where": db_path}
        super().__init__(session_id, **place, **options)


agents.SQLiteSession = Redirected
agents.memory.SQLiteSession = Redirected
sqlite_session.SQLiteSession = Redirected


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "asyncio: a coroutine")
    config.addinivalue_line("markers", "allow_call_model_methods: theirs")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    inside = [item for item in items if INSIDES.search(inspect.getsource(item.function))]  # type: ignore[attr-defined]
    config.hook.pytest_deselected(items=inside)
    items[:] = [item for item in items if item not in inside]


def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any]) -> None:
    """Let a fixture that is an asynchronous generator be a plain one; pytest goes on with it."""
    theirs: Any = fixturedef.func
    if not inspect.isasyncgenfunction(theirs):
        return

    def plain(**wanted: Any) -> Iterator[Any]:
        generator = theirs(**wanted)
        yield asyncio.run(anext(generator))
        asyncio.run(anext(generator, None))

    object.__setattr__(fixturedef, "func", plain)


def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    wanted = inspect.signature(pyfuncitem.obj).parameters
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in wanted}))
    return True
