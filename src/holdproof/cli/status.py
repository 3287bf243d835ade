"""`holdproof status`: what the store says about itself."""

from dataclasses import replace

import typer

from holdproof.cli.call import Call, command
from holdproof.model.status import Status

app = typer.Typer()


@command(app, example="holdproof status --json")
def status(call: Call) -> Status:
    """Show where data lives, what it runs on, its size, what services store, and whether anything is degraded."""
    with call.open() as store:
        return replace(store.status(), storage=store.storage.status().to_dict())
