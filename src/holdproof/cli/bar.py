"""A progress bar on a terminal's stderr; nothing elsewhere."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console

from holdproof.lazy import lazy_module

if TYPE_CHECKING:
    from rich import progress
else:
    # Most calls draw no bar.
    progress = lazy_module("rich.progress")


@contextmanager
def bar() -> Iterator[Callable[[str, int, int], None] | None]:
    """Yield a function that draws one line for each step, or None where stderr is no terminal."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield None
        return
    # Transient, and on stderr: nothing of it stays on the screen or gets into a pipe.
    text = progress.TextColumn("{task.description}")
    columns = (text, progress.BarColumn(), progress.MofNCompleteColumn(), progress.TimeElapsedColumn())
    tasks: dict[str, progress.TaskID] = {}
    with progress.Progress(*columns, console=Console(stderr=True), transient=True) as display:

        def tell(step: str, done: int, total: int) -> None:
            if step not in tasks:
                tasks[step] = display.add_task(step, total=None)
            display.update(tasks[step], completed=done, total=total or None)  # without a total the bar moves to and fro

        yield tell


@contextmanager
def spinner(what: str) -> Iterator[None]:
    """Draw a moving line for work whose amount is not known."""
    with bar() as tell:
        if tell is not None:
            tell(what, 0, 0)
        yield
