"""A pytest plugin for the tests of `strands-agents`: their repositories and their storage are ours.

Left out are tests that look at files, at private parts, or at what is special to a storage in memory: `INSIDES` names
what gives them away. Whatever looks at a repository or a storage from outside stays in.
"""

import asyncio
import inspect
import os
import re
import uuid
from typing import Any

import pytest
import strands.session.file_session_manager as files
import strands.storage as storages
from strands.session.repository_session_manager import RepositorySessionManager

from holdproof.adapters.strands import HoldproofSessionRepository, HoldproofStorage
from tests.fixtures import mock_session_repository  # type: ignore[attr-defined]  # theirs, not our module

INSIDES = re.compile(
    r"os\.path\.|os\.listdir|open\(|\._get_|_multi_agent_path|tmp_path|patch\(|\.namespace\(|\.clear\(|search_strategy|_store\b"
    r"|_lock\b|_prefix\b|\.messages\b.*repository|repository\.(messages|agents|sessions)"
)
WHERE = os.environ.get("HOLDPROOF_TEST_STORE") or ":memory:"


def place() -> dict[str, Any]:
    """A namespace of its own in the store that all of them share."""
    return {"where": WHERE, **({} if WHERE == ":memory:" else {"ns": uuid.uuid4().hex})}


class Repository(HoldproofSessionRepository):
    def __init__(self) -> None:
        super().__init__(**place())


class Manager(RepositorySessionManager, HoldproofSessionRepository):
    """Ours, made the way their file session manager is made."""

    def __init__(self, session_id: str, storage_dir: str | None = None, **_: Any) -> None:
        HoldproofSessionRepository.__init__(self, **place())
        RepositorySessionManager.__init__(self, session_id=session_id, session_repository=self)


class Stored(HoldproofStorage):
    def __init__(self) -> None:
        super().__init__(**place())


files.FileSessionManager = Manager
storages.InMemoryStorage = Stored
mock_session_repository.MockedSessionRepository = Repository


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "asyncio: a coroutine")


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
