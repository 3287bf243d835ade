"""Every function of a transaction is run again, as a lost connection or a neighbour's failure may have it.

Under `rerun()` each job runs once in vain: a write is rolled back and run anew; of reads every other breaks in the
middle and the rest are run to their end. Whatever a function changes outside of its transaction shows.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from typing import Any

import pytest

from holdproof.db import Tx
from holdproof.db.sqlite.connection import SqliteConnection
from holdproof.db.worker_pool import ONCE, READS, Job
from holdproof.errors import ConnectionLostError


class _InVainError(ConnectionLostError):
    """Nothing is wrong: the function has to run again."""


class _Breaking:
    """A transaction that is lost at one of its statements."""

    def __init__(self, tx: Tx, left: int) -> None:
        self._tx, self._left = tx, left

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._tx, name)
        if name not in {"all", "one", "ask"}:
            return found

        def counted(*args: Any, **kwargs: Any) -> Any:
            self._left -= 1
            if self._left < 0:
                raise _InVainError("the connection was lost")
            return found(*args, **kwargs)

        return counted


@contextmanager
def rerun() -> Iterator[None]:
    """While this lasts."""
    numbers, begin = count(), Job.__init__

    def twice(fn: Callable[[Tx], Any], reads: bool) -> Callable[[Tx], Any]:
        tried = False

        def run(tx: Tx) -> Any:
            nonlocal tried
            first, tried = not tried, True
            if first and not reads:
                fn(tx)
                raise _InVainError("once in vain")
            if first:
                number = next(numbers)
                with suppress(_InVainError):
                    fn(_Breaking(tx, number // 2 % 5) if number % 2 else tx)  # type: ignore[arg-type]
            return fn(tx)

        return run

    def made(job: Job[Any], fn: Callable[[Tx], Any], sink: Any, future: Any, flags: int = 0) -> None:
        begin(job, fn if flags & ONCE else twice(fn, bool(flags & READS)), sink, future, flags)

    usual = SqliteConnection.retryable
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Job, "__init__", made)
        patch.setattr(
            SqliteConnection,
            "retryable",
            lambda link, error, *, together: isinstance(error, _InVainError) or usual(link, error, together=together),
        )
        yield


class Rerun:
    """A suite with each function of a transaction run in vain first."""

    @pytest.fixture(autouse=True)
    def _rerun(self) -> Iterator[None]:
        with rerun():
            yield
