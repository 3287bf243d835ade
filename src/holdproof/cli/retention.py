"""`holdproof retention`: what has had its time."""

from enum import StrEnum
from typing import Annotated

import typer

from holdproof.cli import draw
from holdproof.cli.bar import bar, pulse
from holdproof.cli.call import Call, Cursor, Limit, Namespace, command, options
from holdproof.model.memory import Collected
from holdproof.model.page import Page
from holdproof.model.retention import Compacted, Pruned, Pruning

app = typer.Typer(
    help="Remove what has had its time; proofs stay whole, and space goes back.",
    epilog="Example: holdproof retention prune flows --older-than-days 90 --dry-run",
    no_args_is_help=True,
)
app.callback()(options)


class What(StrEnum):
    """What can be pruned."""

    flows = "flows"
    audit = "audit"
    feedback = "feedback"
    snapshots = "snapshots"
    versions = "versions"


@command(app, example="holdproof retention prune flows --older-than-days 90 --keep 1000 --dry-run")
def prune(
    call: Call,
    *,
    what: Annotated[
        What,
        typer.Argument(
            help="Ended flows with all that hangs on them, or one kind of record; snapshots, or versions of objects."
        ),
    ],
    older_than_days: Annotated[
        float | None, typer.Option("--older-than-days", help="Only what ended, or was recorded, so long ago.")
    ] = None,
    keep: Annotated[
        int | None, typer.Option("--keep", help="Keep so many, the newest: of each type of flow, of each object.")
    ] = None,
    keep_daily: Annotated[
        int | None, typer.Option("--keep-daily", help="Of snapshots, keep the last of each of so many days.")
    ] = None,
    flow_type: Annotated[str | None, typer.Option("--type", help="Only flows of this type.")] = None,
    who: Annotated[str, typer.Option("--who", help="Who prunes; kept with the pruning.")] = "operator",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count.")] = False,
    ns: Namespace = "main",
) -> Pruned:
    """Remove what is past every limit given; its leaves stay in the log, so every proof holds."""
    with call.open() as store, pulse("pruning"):
        return store.retention.prune(
            what.value,
            older_than_days=older_than_days,
            keep=keep,
            keep_daily=keep_daily,
            flow_type=flow_type,
            who=who,
            dry_run=dry_run,
            ns=ns,
        )


@command(app, example="holdproof retention gc --dry-run")
def gc(call: Call, dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count.")] = False) -> Collected:
    """Remove blocks of memory that nothing leads to any more, and free their space; what was not pruned stays."""
    with call.open() as store, bar() as tell:
        return store.retention.gc(dry_run=dry_run, progress=tell)


@command(app, example="holdproof retention compact")
def compact(call: Call) -> Compacted:
    """Give the free space of the database back to the system; `prune` ends with it."""
    with call.open() as store, pulse("compacting"):
        return store.retention.compact()


@command(
    app,
    example="holdproof retention list",
    draw=draw.rows("items", "pruned_at", "what", "count", "who", "rule"),
)
def list(call: Call, cursor: Cursor = None, limit: Limit = 100, ns: Namespace = "main") -> Page[Pruning]:
    """List what was pruned, by which rule and by whom, the newest first."""
    with call.open() as store:
        return store.retention.list(cursor=cursor, limit=limit, ns=ns)
