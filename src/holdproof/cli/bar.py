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
    """Yield a function that draws the step under way in one line, or None where stderr is no terminal."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield None
        return
    # Transient, and on stderr: nothing of it stays on the screen or gets into a pipe.
    text = progress.TextColumn("{task.description}")
    columns = (text, progress.BarColumn(), progress.TextColumn("{task.fields[amount]}"), progress.TimeElapsedColumn())
    with progress.Progress(*columns, console=Console(stderr=True), transient=True) as display:
        # Nothing is drawn for work that tells nothing.
        display.add_task("", total=None, visible=False, amount="")
        [line] = display.tasks

        def tell(step: str, done: int, total: int) -> None:
            line.visible = True
            line.description = step
            line.completed = done
            # Without a total the bar moves to and fro; `Progress.update` cannot take one away again.
            line.total = total or None
            line.fields["amount"] = f"{done:,} of {total:,}" if total else f"{done:,}" if done else ""

        yield tell


@contextmanager
def spinner(what: str) -> Iterator[None]:
    """Draw a moving line for work whose amount is not known."""
    with bar() as tell:
        if tell is not None:
            tell(what, 0, 0)
        yield
