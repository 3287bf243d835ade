"""What a run has measured so far, and what failed: one benchmark that fails must not lose what the others measured."""

import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bench.measurement import Result


class Journal:
    """Collects results race by race; `heard` is called after each race."""

    def __init__(self, heard: Callable[[], None] = lambda: None) -> None:
        self.results: list[Result] = []
        self.failures: list[str] = []
        self._heard = heard

    def add(self, results: Sequence["Result"]) -> list["Result"]:
        """Take in the results of a race, and return them."""
        self.results += results
        if results:
            self._heard()
        return [*results]

    @contextmanager
    def attempt(self, what: str) -> Iterator[None]:
        """Note an exception within as a failure, and go on with what comes next."""
        try:
            yield
        except Exception as error:
            self.failures.append(f"{what}: {type(error).__name__}: {error}")
            print(f"\nbench: {what} failed", file=sys.stderr)
            traceback.print_exc()
