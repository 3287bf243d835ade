"""Refusing writes: code that must leave no trace, such as a replay, runs where every write of every store fails.

The refusal is a context variable, so that it holds for the caller's thread or task and for what these start, and for
nobody else. Whoever submits a writing function asks for it on the caller's side.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

Refusal = Callable[[], Exception]
"""Returns the error of a write that is refused; called once for each."""
REFUSAL: Final[ContextVar[Refusal | None]] = ContextVar("holdproof_offline", default=None)


@contextmanager
def writes_refused(refusal: Refusal) -> Iterator[None]:
    """Refuse every write inside the block."""
    token = REFUSAL.set(refusal)
    try:
        yield
    finally:
        REFUSAL.reset(token)


def check_writable() -> None:
    """Raise the refusal, if writes are refused here."""
    refusal = REFUSAL.get()
    if refusal is not None:
        raise refusal()
