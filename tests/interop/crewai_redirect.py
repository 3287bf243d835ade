"""A pytest plugin for the tests of `crewai`: what they keep in an SQLite file is in our store.

Each test runs once for every store that `HOLDPROOF_TEST_STORES` names: importing CrewAI takes longer than all of them.
Left out are tests that keep nothing, and those that look into a file: `INSIDES` names what gives them away. Whatever
looks at a persistence from outside stays in.
"""

import asyncio
import inspect
import os
import re
import uuid
from functools import cache
from typing import Any

import pytest

from harness import quiet_crewai
from holdproof import sync

quiet_crewai.quieten()

import crewai.flow.persistence as persistences  # noqa: E402
import crewai.flow.persistence.sqlite as sqlites  # noqa: E402

from holdproof.adapters.crewai import HoldproofFlowPersistence  # noqa: E402

KEEPS = re.compile(r"SQLiteFlowPersistence\(")
INSIDES = re.compile(r"sqlite3|db_path ==")
STORES = os.environ["HOLDPROOF_TEST_STORES"].split()
opened = cache(sync.open)
current = STORES[0]


@pytest.fixture(autouse=True, params=STORES, ids=lambda url: url.partition(":")[0] or "memory")
def _store(request: pytest.FixtureRequest) -> None:
    global current
    current = request.param


class Persistence(HoldproofFlowPersistence):
    """Ours, made the way theirs is made: a namespace for each file."""

    def __init__(self, db_path: str = "default", /, **options: Any) -> None:
        options["ns"] = uuid.uuid5(uuid.NAMESPACE_URL, str(options.pop("db_path", db_path))).hex
        options.pop("where", None)
        super().__init__(opened(current), **options)


persistences.SQLiteFlowPersistence = sqlites.SQLiteFlowPersistence = Persistence


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "asyncio: a coroutine")
    config.addinivalue_line("markers", "vcr: a recorded call")


def pytest_unconfigure() -> None:
    for url in STORES:
        opened(url).close()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    outside = [item for item in items if KEEPS.search(_source(item)) and not INSIDES.search(_source(item))]
    config.hook.pytest_deselected(items=[item for item in items if item not in outside])
    items[:] = outside


def _source(item: pytest.Item) -> str:
    return inspect.getsource(item.function)  # type: ignore[attr-defined]


def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    wanted = inspect.signature(pyfuncitem.obj).parameters
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in wanted}))
    return True
