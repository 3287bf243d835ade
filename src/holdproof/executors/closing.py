"""Context managers for whatever has a `close`: the mixins `Closing` and `AsyncClosing`."""

from types import TracebackType
from typing import Any, Self


class Closing:
    """Let `with thing:` call its `close()` at the end, whatever happened inside."""

    def close(self) -> Any:
        """Release what this object holds; harmless if repeated."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class AsyncClosing:
    """Let `async with thing:` await its `close()` at the end, whatever happened inside."""

    async def close(self) -> Any:
        """Release what this object holds; harmless if repeated."""
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
