"""A progress bar on a terminal's stderr; nothing elsewhere."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn


@contextmanager
def bar() -> Iterator[Callable[[str, int, int], None] | None]:
    """What draws one line for each step it hears of, or None where nobody watches."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    tasks: dict[str, TaskID] = {}
    with Progress(*columns, console=Console(stderr=True), transient=True) as drawn:

        def tell(step: str, done: int, total: int) -> None:
            if step not in tasks:
                tasks[step] = drawn.add_task(step, total=None)
            drawn.update(tasks[step], completed=done, total=total or None)

        yield tell


@contextmanager
def pulse(what: str) -> Iterator[None]:
    """The same for work of which nobody knows how much there is: a line that moves."""
    with bar() as tell:
        if tell is not None:
            tell(what, 0, 0)
        yield
