"""A store about to be opened, here or at a distance."""

from collections.abc import Awaitable, Callable, Generator
from types import TracebackType
from typing import Any, Generic, Protocol, TypeVar


class _Closes(Protocol):
    async def close(self) -> None: ...


S = TypeVar("S", bound=_Closes)


class AwaitableStore(Generic[S]):
    """A store about to be opened: `async with` it, or `await` it and close it yourself."""

    def __init__(self, opens: Callable[[], Awaitable[S]]) -> None:
        self._opens = opens
        self._store: S | None = None

    def __await__(self) -> Generator[Any, None, S]:
        return self._opens().__await__()

    async def __aenter__(self) -> S:
        self._store = await self._opens()
        return self._store

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._store is not None:
            await self._store.close()
