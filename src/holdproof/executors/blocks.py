"""What `with` enters on a sync client, and `async with` on an async one: blocks, and the clients themselves."""

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from holdproof.executors.driver import AsyncRunner, Effects, SyncRunner

Runner = TypeVar("Runner", bound=AsyncRunner | SyncRunner, covariant=True)  # noqa: PLC0105
Inside = TypeVar("Inside", covariant=True)  # noqa: PLC0105


class ContextBlock(ABC, Generic[Runner, Inside]):
    """A context manager whose entering and leaving are generators of effects, written once for both clients."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner

    @abstractmethod
    def entering(self) -> Effects[Inside]:
        """Open the block and return what its code works with."""

    @abstractmethod
    def leaving(self, error: Exception | None) -> Effects[Any]:
        """Leave the block as it should be left, or by an exception.

        KeyboardInterrupt and the like do not come here: they stop the worker, and what the block stands for is left to
        whoever takes it up again.
        """

    def left(self) -> None:
        """Note that the block was left, in whichever way."""

    async def __aenter__(self: "ContextBlock[AsyncRunner, Inside]") -> Inside:
        return await self._runner.run(self.entering())

    async def __aexit__(
        self: "ContextBlock[AsyncRunner, Inside]",
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if error is None or isinstance(error, Exception):
                await self._runner.run(self.leaving(error))
        finally:
            self.left()

    def __enter__(self: "ContextBlock[SyncRunner, Inside]") -> Inside:
        return self._runner.run(self.entering())

    def __exit__(
        self: "ContextBlock[SyncRunner, Inside]",
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if error is None or isinstance(error, Exception):
                self._runner.run(self.leaving(error))
        finally:
            self.left()


class AsyncClosing(ABC):
    """Closed at the end of an `async with` block."""

    @abstractmethod
    async def close(self) -> None:
        """Release what it holds; may be called twice."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class SyncClosing(ABC):
    """Closed at the end of a `with` block."""

    @abstractmethod
    def close(self) -> None:
        """Release what it holds; may be called twice."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
