"""A pytest plugin for the tests of `crewai`: what they keep in an SQLite file is in our store.

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

import crewai.flow.persistence as persistences
import crewai.flow.persistence.sqlite as sqlites
import pytest

from holdproof import sync
from holdproof.adapters.crewai import HoldproofFlowPersistence

KEEPS = re.compile(r"SQLiteFlowPersistence\(")
INSIDES = re.compile(r"sqlite3|db_path ==")


@cache
def shared_store() -> sync.Holdproof:
    url = os.environ.get("HOLDPROOF_TEST_STORE")
    return sync.open(url) if url else sync.open(":memory:")


class Persistence(HoldproofFlowPersistence):
    """Ours, made the way theirs is made: a namespace for each file."""

    def __init__(self, db_path: str = "default", /, **options: Any) -> None:
        options["ns"] = uuid.uuid5(uuid.NAMESPACE_URL, str(options.pop("db_path", db_path))).hex
        options.pop("where", None)
        super().__init__(shared_store(), **options)


persistences.SQLiteFlowPersistence = sqlites.SQLiteFlowPersistence = Persistence


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "asyncio: a coroutine")
    config.addinivalue_line("markers", "vcr: a recorded call")


def pytest_unconfigure() -> None:
    if shared_store.cache_info().currsize:
        shared_store().close()


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
