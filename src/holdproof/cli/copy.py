"""`holdproof copy`: move a store to another database."""

from typing import Annotated

import typer

from holdproof import sync
from holdproof.cli.bar import bar
from holdproof.cli.call import Call, command
from holdproof.model.copy import Copied

app = typer.Typer()


@command(app, example="holdproof copy ./store postgresql://ada@db.example.org/holdproof --dry-run")
def copy(
    call: Call,
    src: Annotated[str, typer.Argument(help="A home, a URL, or sqlite for the file of the home in use.")],
    dst: Annotated[str, typer.Argument(help="The same; must be empty.")],
    *,
    telemetry: Annotated[bool, typer.Option("--telemetry", help="Telemetry too; else it stays in the home.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check both ends, change nothing.")] = False,
) -> Copied:
    """Move a whole store between SQLite and PostgreSQL: same log, verified; the source is sealed and says where to."""
    with bar() as progress:
        return sync.copy(src, dst, call.home, telemetry=telemetry, dry_run=dry_run, progress=progress)
