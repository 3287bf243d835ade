"""`holdproof transcripts`: conversations of agent frameworks."""

from typing import Annotated, Any

import typer

from holdproof.cli import draw
from holdproof.cli.call import After, Call, Limit, Namespace, command, items, options

app = typer.Typer(
    help="List, show and remove conversations of agent frameworks.",
    epilog="Example: holdproof transcripts list --prefix openai-agents/",
    no_args_is_help=True,
)
app.callback()(options)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The transcript's name.")]


@command(
    app,
    example="holdproof transcripts list --prefix openai-agents/",
    draw=draw.rows("transcripts", "name", "rev", "created_at", "updated_at"),
)
def list(
    call: Call,
    prefix: Annotated[str, typer.Option("--prefix", help="Only names that begin like this.")] = "",
    after: After = "",
    limit: Limit = 100,
    ns: Namespace = "main",
) -> dict[str, Any]:
    """List transcripts by name, a page at a time."""
    with call.open() as store:
        return items("transcripts", store.transcripts.list(prefix=prefix, cursor=after or None, limit=limit, ns=ns))


@command(app, example="holdproof transcripts show openai-agents/customer-42 --last 20 --json")
def show(
    call: Call,
    name: Name,
    last: Annotated[int, typer.Option("--last", help="The last so many items.")] = 20,
    before: Annotated[int | None, typer.Option("--before", help="Only items before this number.")] = None,
    ns: Namespace = "main",
) -> dict[str, Any]:
    """Show a transcript: its document, and its last items."""
    with call.open() as store:
        told = store.transcripts.get(name, ns=ns).to_dict()
        cursor = None if before is None else str(before)
        found = store.transcripts.list_items(name, limit=last, cursor=cursor, ns=ns).items
        return {**told, "items": [item.to_dict() for item in reversed(found)]}


@command(app, example="holdproof transcripts delete openai-agents/customer-42")
def delete(call: Call, name: Name, ns: Namespace = "main") -> dict[str, Any]:
    """Remove a transcript with all its items; no transcript is no error."""
    with call.open() as store:
        return {"name": name, "deleted": store.transcripts.delete(name, ns=ns)}
