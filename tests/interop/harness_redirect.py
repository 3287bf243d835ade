"""A pytest plugin for the tests of `pydantic-ai-harness`: their step stores are ours.

Left out are tests that look at files, tables, media or private parts, or at which class a specification makes:
`INSIDES` names what gives them away. Whatever looks at a step store from outside stays in.
"""

import asyncio
import inspect
import os
import re
import uuid
from hashlib import sha256
from pathlib import Path
from typing import Any

import pydantic_ai_harness.step_persistence as theirs
import pytest

from holdproof.adapters.pydantic_ai.steps import HoldproofStepStore
from holdproof.errors import AlreadyExistsError

INSIDES = re.compile(
    r"_validate_id|isinstance\(cap\.store|\._sync_|\._next_snapshot_seq|\._run_dir|write_text|read_text|read_bytes|iterdir|glob\("
    r"|sqlite3\.|media|mkdir|symlink|from_spec|\.is_dir\(|\.exists\(|path traversal|\.\./|store\._"
)
WHERE = os.environ.get("HOLDPROOF_TEST_STORE") or ""


class Redirected(HoldproofStepStore):
    """Ours, made the way theirs are made; the same path is the same store."""

    def __init__(self, path: str | Path | None = None, *, database: str | Path | None = None, **_: Any) -> None:
        name = path or database
        if WHERE:
            ns = uuid.uuid4().hex if name is None else sha256(str(name).encode()).hexdigest()[:32]
            super().__init__(WHERE, ns=ns)
        else:
            super().__init__(":memory:" if name is None else f"{name}.store")

    async def register_run(self, record: Any) -> None:
        try:
            await super().register_run(record)
        except AlreadyExistsError as error:
            # Theirs has no errors of its own.
            raise ValueError(f"{record.run_id} already registered") from error


# The same choice of tests on their own stores, to compare with.
for name in (
    () if os.environ.get("HOLDPROOF_TEST_THEIRS") else ("InMemoryStepStore", "FileStepStore", "SqliteStepStore")
):
    setattr(theirs, name, Redirected)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "anyio: a coroutine")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    inside = [item for item in items if INSIDES.search(inspect.getsource(item.function))]  # type: ignore[attr-defined]
    config.hook.pytest_deselected(items=inside)
    items[:] = [item for item in items if item not in inside]


def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    wanted = inspect.signature(pyfuncitem.obj).parameters
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in wanted}))
    return True
