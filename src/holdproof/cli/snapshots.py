"""`holdproof snapshots`: signed states of all that agents know."""

from typing import Annotated, Any

import typer

from holdproof.cli import draw, draw_memory
from holdproof.cli.call import After, Call, Limit, Namespace, command, items, options
from holdproof.model.memory import Snapshot

app = typer.Typer(
    help="Take snapshots of all objects, compare them, return to one.",
    epilog="Example: holdproof snapshots create -m 'before the migration'",
    no_args_is_help=True,
)
app.callback()(options)

Chosen = Annotated[str, typer.Argument(metavar="SNAPSHOT", help="Its CID or rev, or head for the newest.")]
Message = Annotated[str, typer.Option("--message", "-m", help="What it is; kept with the snapshot.")]
Author = Annotated[str, typer.Option("--author", help="Who takes it.")]
Reason = Annotated[str, typer.Option("--reason", help="Why.")]


@command(app, example="holdproof snapshots create -m 'after the first day' --author ada")
def create(
    call: Call, message: Message = "", author: Author = "", reason: Reason = "", ns: Namespace = "main"
) -> Snapshot:
    """Sign all objects as they are now; the snapshot is a leaf of the log."""
    with call.open() as store:
        return store.snapshots.create(message, author=author, reason=reason, ns=ns)


@command(
    app,
    example="holdproof snapshots list --limit 10",
    draw=draw.rows("snapshots", "rev", "created_at", "author", "message", "cid"),
)
def list(call: Call, after: After = "", limit: Limit = 100, ns: Namespace = "main") -> dict[str, Any]:
    """List snapshots, the newest first."""
    with call.open() as store:
        return items("snapshots", store.snapshots.list(cursor=after or None, limit=limit, ns=ns))


@command(app, example="holdproof snapshots get head")
def get(call: Call, snapshot: Chosen = "head", ns: Namespace = "main") -> Snapshot:
    """Show a snapshot."""
    with call.open() as store:
        return store.snapshots.get(snapshot, ns=ns)


@command(app, example="holdproof snapshots diff head work", draw=draw_memory.diff)
def diff(
    call: Call,
    *,
    old: Annotated[str, typer.Argument(metavar="OLD", help="A snapshot, or work for what is there now.")] = "head",
    new: Annotated[str, typer.Argument(metavar="NEW", help="A snapshot, or work for what is there now.")] = "work",
    after: After = "",
    limit: Limit = 100,
    ns: Namespace = "main",
) -> dict[str, Any]:
    """Show how one state differs from another, object by object."""
    with call.open() as store:
        told = store.snapshots.diff(old, new, cursor=after or None, limit=limit, ns=ns).to_dict()
        return {**told, "next": told.pop("next_cursor")}


@command(app, example="holdproof snapshots rollback 3lbh5f7kqxc22 --reason 'wrong import'")
def rollback(
    call: Call,
    *,
    snapshot: Chosen,
    message: Message = "",
    author: Author = "",
    reason: Reason = "",
    ns: Namespace = "main",
) -> Snapshot:
    """Let all objects be as they were in a snapshot; a new snapshot says so, and none is removed."""
    with call.open() as store:
        return store.snapshots.rollback(snapshot, message=message, author=author, reason=reason, ns=ns)
