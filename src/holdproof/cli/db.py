"""`holdproof db`: the database itself."""

from typing import Annotated

import typer

from holdproof import sync
from holdproof.cli.bar import pulse
from holdproof.cli.call import Call, command, options
from holdproof.model.status import Check, Migrated

_UNSOUND = 8

app = typer.Typer(help="Check and migrate the database.", epilog="Example: holdproof db check", no_args_is_help=True)
app.callback()(options)


@command(app, example="holdproof db check --json", exit_code=lambda check: 0 if check.ok else _UNSOUND)
def check(call: Call) -> Check:
    """Check the integrity of the database and its migrations; exits with 8 if anything is found."""
    with pulse("checking"):
        return sync.check(call.home, call.url)


@command(app, example="holdproof db migrate --dry-run")
def migrate(
    call: Call, dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what is pending.")] = False
) -> Migrated:
    """Apply pending migrations, each in one transaction; opening a store does the same."""
    with pulse("migrating"):
        return sync.migrate(call.home, call.url, dry_run=dry_run)
