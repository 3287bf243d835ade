"""A store about to be opened, here or at a distance."""

from collections.abc import Awaitable, Callable, Generator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Generic, NoReturn, Protocol, TypeVar


class _Closes(Protocol):
    async def close(self) -> None: ...


S = TypeVar("S", bound=_Closes)

_HOW_TO_OPEN: Final = (
    "the store is not open yet: write `async with` before the call, or `await` it;"
    " without asyncio use holdproof.sync.open(…) or holdproof.sync.connect(…)"
)


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

    # Two mistakes of a first try, a call on what is not open and `with` for `async with`, get an answer of their own.
    # Type checkers see neither: for them these names stay what they are, an error.
    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            raise AttributeError(f"no attribute {name!r}: {_HOW_TO_OPEN}", name=name, obj=self)

        def __enter__(self) -> NoReturn:
            raise TypeError(f"`with` cannot open it: {_HOW_TO_OPEN}")

        def __exit__(self, *_: object) -> None:
            """Stand beside `__enter__`, without which Python does not even call it."""
