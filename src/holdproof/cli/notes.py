"""`holdproof notes`: what agents keep under a path and a key."""

from typing import Annotated, Any

import typer

from holdproof.cli import draw
from holdproof.cli.call import Call, Limit, Namespace, command, options

app = typer.Typer(
    help="List, show and remove notes: long-term memory of agents.",
    epilog="Example: holdproof notes list users.ada",
    no_args_is_help=True,
)
app.callback()(options)

Path = Annotated[str, typer.Argument(metavar="PATH", help="The labels of the path, with dots between.")]
Key = Annotated[str, typer.Argument(metavar="KEY", help="The note's key.")]


@command(app, example="holdproof notes paths users", draw=draw.rows("paths", "path"))
def paths(
    call: Call,
    path: Annotated[str, typer.Argument(metavar="[PATH]", help="Only at this path and below it.")] = "",
    limit: Limit = 100,
    ns: Namespace = "main",
) -> dict[str, Any]:
    """List paths that have notes."""
    with call.open() as store:
        found = store.notes.paths(prefixes=[_labels(path)] if path else [], limit=limit, ns=ns).items
        return {"paths": [{"path": ".".join(each)} for each in found]}


@command(
    app, example="holdproof notes list users.ada", draw=draw.rows("notes", "path", "key", "updated_at", "expires_at")
)
def list(
    call: Call,
    path: Annotated[str, typer.Argument(metavar="[PATH]", help="Only at this path and below it.")] = "",
    limit: Limit = 100,
    ns: Namespace = "main",
) -> dict[str, Any]:
    """List notes, the last written first."""
    with call.open() as store:
        found = store.notes.search(_labels(path), limit=limit, ns=ns).items
        return {"notes": [{**note.to_dict(), "path": ".".join(note.path)} for note in found]}


@command(app, example="holdproof notes show users.ada food --json")
def show(call: Call, path: Path, key: Key, ns: Namespace = "main") -> dict[str, Any]:
    """Show a note."""
    with call.open() as store:
        found = store.notes.get(_labels(path), key, ns=ns)
        return found.to_dict()


@command(app, example="holdproof notes delete users.ada food")
def delete(call: Call, path: Path, key: Key, ns: Namespace = "main") -> dict[str, Any]:
    """Remove a note; no note is no error."""
    with call.open() as store:
        return {"path": path, "key": key, "deleted": store.notes.delete(_labels(path), key, ns=ns)}


def _labels(path: str) -> tuple[str, ...]:
    return tuple(path.split(".")) if path else ()
