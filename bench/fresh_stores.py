"""Where fresh stores are: a home, and the URL of their database where that is a server."""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import psycopg

from bench.peers_postgres import Server

Where = tuple[str, str | None]
Place = Callable[[], AbstractContextManager[Where]]


@contextmanager
def in_a_folder() -> Iterator[Where]:
    """All of it in a folder."""
    with tempfile.TemporaryDirectory(prefix="bench-") as home:
        yield home, None


@contextmanager
def on_a_server(running: Server) -> Iterator[Where]:
    """The database on a server, the keys in a folder."""
    with tempfile.TemporaryDirectory(prefix="bench-") as home, running.fresh() as url:
        yield home, url


def stored_bytes(where: Where) -> int:
    """How many bytes a closed store takes: the files of its home, and its database where that is on a server."""
    home, url = where
    files = sum(file.stat().st_size for file in Path(home).rglob("*") if file.is_file())
    # An SQLite database of a peer has a URL too, and lies in its home.
    return files + (database_bytes(url) if url is not None and url.startswith("postgres") else 0)


def database_bytes(url: str) -> int:
    """How many bytes a database on a server takes."""
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute("SELECT pg_database_size(current_database())").fetchone()
        assert row is not None, "the size of the current database is always known"
        (size,) = row
        return int(size)
