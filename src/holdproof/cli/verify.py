"""`holdproof verify`: the whole store, or a bundle."""

from pathlib import Path
from typing import Annotated

import typer

from holdproof import sync
from holdproof.cli.bar import bar
from holdproof.cli.call import Call, command
from holdproof.cli.files import read_bytes
from holdproof.crypto import keys
from holdproof.model.verify import BundleReport, Report
from holdproof.upkeep.verification import offline

app = typer.Typer()


@command(app, example="holdproof verify --full --json", exit_code=lambda outcome: outcome.verdict.exit_code)
def verify(
    call: Call,
    bundle: Annotated[
        Path | None, typer.Argument(help="A bundle to check, offline; without it the whole store.")
    ] = None,
    full: Annotated[bool, typer.Option("--full", help="Recompute the whole tree from its leaves.")] = False,
    no_lock: Annotated[bool, typer.Option("--no-lock", help="Only report; do not lock the store.")] = False,
    root: Annotated[Path | None, typer.Option("--root", help="The root's public key (PEM) you trust.")] = None,
) -> Report | BundleReport:
    """Verify the store, or a bundle; exits with 0, 10 unsigned, 11 unlogged, 12 revoked, 20 and more tampered with."""
    if bundle is not None:
        trusted = None if root is None else keys.load_public_pem(read_bytes(root, 1 << 16))
        return offline.check(read_bytes(bundle, offline.MOST_BYTES + 1), root=trusted)
    with bar() as progress:
        return sync.verify(call.home, call.url, full=full, lock=not no_lock, progress=progress)
