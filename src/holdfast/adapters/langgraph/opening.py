"""A store that is opened for one adapter and closed with it."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, TypeVar

from holdfast import sync
from holdfast.db import MEMORY
from holdfast.errors import InvalidInputError
from holdfast.store import Store, open_store

T = TypeVar("T")


class Opening(Generic[T]):
    """What an adapter is opened with: `with`, or `async with`, on which it is closed again."""

    def __init__(self, conn_string: str | Path, make: Callable[[Any], T]) -> None:
        self._conn_string, self._make = conn_string, make
        self._store: Store | None = None

    def _open(self) -> T:
        self._store = open_store(**_place(self._conn_string))
        try:
            return self._make(sync.Holdfast(self._store))
        except BaseException:
            self._store.close()
            raise

    def __enter__(self) -> T:
        return self._open()

    def __exit__(self, *_: object) -> None:
        if self._store is not None:
            self._store.close()

    async def __aenter__(self) -> T:
        return await asyncio.to_thread(self._open)

    async def __aexit__(self, *_: object) -> None:
        if self._store is not None:
            await asyncio.to_thread(self._store.close)


def _place(conn_string: str | Path) -> dict[str, Any]:
    """Where a store lies: a server, memory, or a folder."""
    text = str(conn_string)
    if text == MEMORY or "://" in text:
        return {"url": text}
    if Path(text).is_file():
        raise InvalidInputError(
            f"{text} is a file, and a store is a folder; `holdfast import langgraph {text}` takes over checkpoints",
            path=text,
        )
    return {"home": text}
