"""Open a store for one adapter, and close it with the adapter."""

import asyncio
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, Generic, TypeVar

from holdproof import sync
from holdproof.adapters.shared_store import located
from holdproof.errors import InvalidInputError
from holdproof.kernel import Store, open_store

T = TypeVar("T")


class SetUp:
    """What `setup()` returns: nothing is left to do, whether it is awaited or not."""

    def __await__(self) -> Generator[Any, None, None]:
        return
        yield


class StoreOpener(Generic[T]):
    """Context manager, sync and async, that opens a store, makes an adapter on it, and closes both."""

    def __init__(
        self,
        conn_string: str | Path,
        home: str | Path | None,
        make: Callable[[Any], T],
        closing: Callable[[T], None] | None = None,
    ) -> None:
        self._conn_string = conn_string
        self._home = home
        self._make = make
        self._closing = closing
        self._store: Store | None = None
        self._adapter: T | None = None

    def _open(self) -> T:
        self._store = open_store(*_place(self._conn_string, self._home))
        try:
            self._adapter = self._make(sync.Holdproof(self._store))
        except BaseException:
            self._store.close()
            raise
        return self._adapter

    def _close(self) -> None:
        if self._adapter is not None and self._closing is not None:
            self._closing(self._adapter)
        if self._store is not None:
            self._store.close()

    def __enter__(self) -> T:
        return self._open()

    def __exit__(self, *_: object) -> None:
        self._close()

    async def __aenter__(self) -> T:
        # Opening may migrate and recover: it must not block the event loop.
        return await asyncio.to_thread(self._open)

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self._close)


def _place(conn_string: str | Path, home: str | Path | None) -> tuple[str | Path | None, str | None]:
    """Home and URL of a store: at a server, in memory, or in a folder, which is its own home."""
    folder, url = located(conn_string)
    if url is not None:
        return home, url
    text = str(folder)
    if home is not None:
        raise InvalidInputError(f"the home of a store in a folder is that folder: {text}", home=str(home))
    # People pass the file of LangGraph's SqliteSaver here: tell them how to import it.
    if Path(text).is_file():
        raise InvalidInputError(
            f"{text} is a file, and a store is a folder; `holdproof import langgraph {text}` imports checkpoints",
            path=text,
        )
    return text, None
