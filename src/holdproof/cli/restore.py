"""`holdproof restore`: put a backup in the place of the store."""

from pathlib import Path
from typing import Annotated

import typer

from holdproof import sync
from holdproof.cli.bar import bar
from holdproof.cli.call import Call, command
from holdproof.model.backup import Restored

app = typer.Typer()


@command(app, example="holdproof restore /mnt/backups --to-index 500 --dry-run")
def restore(
    call: Call,
    src: Annotated[Path, typer.Argument(help="A backup, a folder of backups, or a closed store's kernel.db.")],
    *,
    to_index: Annotated[int | None, typer.Option("--to-index", help="Not after this log index.")] = None,
    to_time: Annotated[str | None, typer.Option("--to-time", help="Not after this moment (ISO-8601).")] = None,
    key: Annotated[str | None, typer.Option("--key", help="The id of the log key that must have signed it.")] = None,
    erasures: Annotated[
        Path | None, typer.Option("--erasures", help="More erasures to make again (JSON lines).")
    ] = None,
    other: Annotated[bool, typer.Option("--other", help="Another store than the one here is meant.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Verify everything, replace nothing.")] = False,
) -> Restored:
    """Verify a backup, then put it in the place of the store; the old state is kept aside, the log tells of it."""
    with bar() as progress:
        return sync.restore(
            src,
            call.home,
            call.url,
            to_index=to_index,
            to_time=to_time,
            key=key,
            erasures=erasures,
            other=other,
            dry_run=dry_run,
            progress=progress,
        )
