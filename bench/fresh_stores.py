"""Where fresh stores are: a home, and the URL of their database where that is a server."""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

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
