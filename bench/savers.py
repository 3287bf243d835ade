"""The savers of LangGraph that are measured: its own on SQLite and PostgreSQL, and ours on both."""

import importlib.util
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from bench.fresh_stores import database_bytes, stored_bytes
from bench.peers_postgres import Server
from holdproof import sync

Opened = Callable[[], AbstractContextManager[Any]]
Size = Callable[[], int]


class Place(NamedTuple):
    """A place for one chat: how its saver is opened, and how many bytes it takes by now."""

    opened: Opened
    size: Size


def holdproof(folder: str) -> Any:
    """Ours, in a folder."""
    from holdproof.adapters.langgraph import HoldproofSaver  # noqa: PLC0415 (an optional extra)

    return HoldproofSaver.from_conn_string(folder)


@contextmanager
def holdproof_served(url: str) -> Iterator[Any]:
    """Ours on PostgreSQL; keys lie in a folder."""
    from holdproof.adapters.langgraph import HoldproofSaver  # noqa: PLC0415 (an optional extra)

    home = _home(url)
    with sync.open(home, url) as store:
        yield HoldproofSaver(store)


def official(folder: str) -> AbstractContextManager[Any]:
    """LangGraph's on SQLite."""
    from langgraph.checkpoint.sqlite import SqliteSaver  # noqa: PLC0415 (an optional extra)

    return SqliteSaver.from_conn_string(f"{folder}/checkpoints.db")


def official_async(folder: str) -> AbstractAsyncContextManager[Any]:
    """The same for coroutines."""
    from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver  # noqa: PLC0415 (an optional extra)

    return AsyncSqliteSaver.from_conn_string(f"{folder}/checkpoints.db")


@contextmanager
def postgres_saver(url: str) -> Iterator[Any]:
    """LangGraph's on PostgreSQL."""
    from langgraph.checkpoint.postgres import PostgresSaver  # noqa: PLC0415 (an optional extra)

    with PostgresSaver.from_conn_string(url) as saver:
        saver.setup()
        yield saver


@contextmanager
def in_a_folder(make: Callable[[str], AbstractContextManager[Any]]) -> Iterator[Place]:
    """A place on disk."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        yield Place(lambda: make(folder), lambda: stored_bytes((folder, None)))


def _home(url: str) -> Path:
    return Path(tempfile.gettempdir()) / f"bench-{sha256(url.encode()).hexdigest()[:16]}"


@contextmanager
def on_a_server(running: Server, make: Callable[[str], AbstractContextManager[Any]]) -> Iterator[Place]:
    """A database on a server."""
    with running.fresh() as url:
        try:
            yield Place(lambda: make(url), lambda: database_bytes(url))
        finally:
            shutil.rmtree(_home(url), ignore_errors=True)


def has_postgres_saver() -> bool:
    """Whether LangGraph's saver for PostgreSQL is installed."""
    try:
        return importlib.util.find_spec("langgraph.checkpoint.postgres") is not None
    except ModuleNotFoundError:
        return False
