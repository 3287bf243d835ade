"""`holdproof threads`: checkpoints of agent frameworks."""

import builtins
from typing import Annotated, Any

import typer

from holdproof.cli import draw
from holdproof.cli.bar import bar
from holdproof.cli.call import After, Call, Limit, Namespace, command, items, options
from holdproof.cli.storage import parsed
from holdproof.errors import NotFoundError
from holdproof.model.threads import Checkpoint, ThreadsPruned, ThreadsRemoved

app = typer.Typer(
    help="List, show, copy and remove threads of agent frameworks.",
    epilog="Example: holdproof threads list --status interrupted",
    no_args_is_help=True,
)
app.callback()(options)

ThreadId = Annotated[str, typer.Argument(metavar="THREAD", help="The thread's id.")]
Who = Annotated[str, typer.Option("--who", help="Who removes; kept in the log.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only count.")]


@command(
    app,
    example='holdproof threads list --facts \'{"user": "ada"}\'',
    draw=draw.rows("threads", "thread_id", "status", "checkpoints", "updated_at", "facts"),
)
def list(
    call: Call,
    *,
    status: Annotated[str | None, typer.Option("--status", help="Only active, interrupted or error.")] = None,
    facts: Annotated[str, typer.Option("--facts", metavar="JSON", help="Only threads that have all of these.")] = "{}",
    after: After = "",
    limit: Limit = 50,
    ns: Namespace = "main",
) -> dict[str, Any]:
    """List threads, the one that was written last first, a page at a time."""
    wanted = parsed(facts, "facts", dict)
    with call.open() as store:
        return items(
            "threads", store.threads.list(status=status, facts=wanted, cursor=after or None, limit=limit, ns=ns)
        )


@command(
    app,
    example="holdproof threads history chat-1 --limit 10",
    draw=draw.rows("checkpoints", "checkpoint_id", "checkpoint_ns", "created_at", "channels", "writes"),
)
def history(
    call: Call, thread: ThreadId, after: After = "", limit: Limit = 50, ns: Namespace = "main"
) -> dict[str, Any]:
    """List the checkpoints of a thread, newest first: which channels each has, and how much tasks wrote on top."""
    with call.open() as store:
        store.threads.get(thread, ns=ns)
        page = store.threads.list_checkpoints(thread, cursor=after or None, limit=limit, ns=ns)
        return {"checkpoints": [_line(each) for each in page.items], "next": page.next_cursor}


def _line(found: Checkpoint) -> dict[str, Any]:
    told = {name: getattr(found, name) for name in ("checkpoint_id", "checkpoint_ns", "parent_id", "created_at", "h")}
    return {**told, "metadata": found.metadata, "channels": sorted(found.channels), "writes": len(found.writes)}


@command(app, example="holdproof threads show chat-1 --json")
def show(
    call: Call,
    thread: ThreadId,
    checkpoint: Annotated[str | None, typer.Option("--checkpoint", help="This one; else the newest.")] = None,
    checkpoint_ns: Annotated[str, typer.Option("--checkpoint-ns", help="Of this subgraph.")] = "",
    ns: Namespace = "main",
) -> dict[str, Any]:
    """Show a thread and one of its checkpoints; values that a framework encoded are shown as they are stored."""
    with call.open() as store:
        told = store.threads.get(thread, ns=ns).to_dict()
        try:
            found = store.threads.get_checkpoint(thread, checkpoint_id=checkpoint, checkpoint_ns=checkpoint_ns, ns=ns)
        except NotFoundError:
            return {**told, "checkpoint": None}
        return {**told, "checkpoint": found.to_dict()}


@command(app, example="holdproof threads copy chat-1 chat-2")
def copy(
    call: Call,
    thread: ThreadId,
    to: Annotated[str, typer.Argument(metavar="OTHER", help="The id of the copy.")],
    ns: Namespace = "main",
) -> dict[str, Any]:
    """Copy a thread with all its checkpoints."""
    with call.open() as store:
        return {"thread_id": to, "checkpoints": store.threads.copy(thread, to, ns=ns)}


@command(app, example="holdproof threads delete chat-1 --who ada")
def delete(
    call: Call, thread: ThreadId, who: Who = "operator", dry_run: DryRun = False, ns: Namespace = "main"
) -> ThreadsRemoved:
    """Remove a thread with all it has; what is still written for it stays out. `retention compact` frees the space."""
    with call.open() as store:
        return store.threads.delete(thread, who=who, dry_run=dry_run, ns=ns)


@command(app, example="holdproof threads prune --keep 10 --older-than-days 30 --dry-run")
def prune(
    call: Call,
    *,
    thread: Annotated[
        builtins.list[str] | None, typer.Option("--thread", help="Only this one; may be repeated.")
    ] = None,
    keep: Annotated[int | None, typer.Option("--keep", help="Keep so many checkpoints of each line.")] = None,
    older_than_days: Annotated[
        float | None, typer.Option("--older-than-days", help="Only checkpoints that are so old.")
    ] = None,
    idle_days: Annotated[
        float | None, typer.Option("--idle-days", help="Whole threads that nobody wrote for so long.")
    ] = None,
    who: Who = "operator",
    dry_run: DryRun = False,
    ns: Namespace = "main",
) -> ThreadsPruned:
    """Remove checkpoints that are past every limit given, or whole threads, and give the space back."""
    with call.open() as store, bar() as tell:
        return store.threads.prune(
            thread_ids=thread or None,
            keep=keep,
            older_than_days=older_than_days,
            idle_days=idle_days,
            who=who,
            dry_run=dry_run,
            ns=ns,
            progress=tell,
        )
