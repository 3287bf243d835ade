"""`holdfast import`: data of other programs."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn

from holdfast.cli.battles import Namespace
from holdfast.cli.call import Call, command, options
from holdfast.model.imports import Imported

app = typer.Typer(
    help="Import other programs' data.",
    epilog="Example: holdfast import green-agent battles.db --dboms data/dboms",
    no_args_is_help=True,
)
app.callback()(options)


@command(app, example="holdfast import green-agent battles.db --dboms data/dboms --dry-run")
def green_agent(
    call: Call,
    source: Annotated[Path, typer.Argument(metavar="BATTLES_DB", help="The Green Agent's database.")],
    dboms: Annotated[Path | None, typer.Option("--dboms", help="Its folder of DBOM files.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what each row is.")] = False,
    ns: Namespace = "main",
) -> Imported:
    """Import a Green Agent's battles: every row, each with a verdict; doing it again changes nothing."""
    with call.open() as store, _bar() as progress:
        return store.imports.green_agent(source, dboms=dboms, dry_run=dry_run, ns=ns, progress=progress)


@contextmanager
def _bar() -> Iterator[Callable[[int, int], None] | None]:
    """A progress bar on a terminal's stderr; nothing elsewhere."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield None
        return
    with Progress(BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), console=Console(stderr=True)) as drawn:
        task = drawn.add_task("rows", total=None)
        yield lambda done, total: drawn.update(task, completed=done, total=total)
