"""`holdproof objects`: what agents know, with its history."""

import builtins
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from holdproof.cli import draw, draw_memory
from holdproof.cli.bar import pulse
from holdproof.cli.call import After, BeforeNumber, Call, Limit, Namespace, command, find_function, items, options
from holdproof.cli.files import read
from holdproof.cli.storage import parsed
from holdproof.errors import InvalidInputError, NotFoundError
from holdproof.model.memory import Object

app = typer.Typer(
    help="Keep objects, show them as trees, look back at what they were.",
    epilog="Example: holdproof objects tree inbox",
    no_args_is_help=True,
)
app.callback()(options)

ObjectId = Annotated[str, typer.Argument(metavar="ID", help="The object's id.")]
EmbedderName = Annotated[
    str | None, typer.Option("--embedder", metavar="MODULE:FUNCTION", help="From a text to its vector.")
]
At = Annotated[str | None, typer.Option("--at", metavar="SNAPSHOT", help="As it was in this snapshot.")]


@command(app, example='holdproof objects put note-1 --type note --content "buy milk" --parent inbox')
def put(
    call: Call,
    *,
    id: ObjectId,
    type: Annotated[str, typer.Option("--type", help="What kind of thing it is.")],
    content: Annotated[str | None, typer.Option("--content", help="Its text; - reads it from stdin.")] = None,
    file: Annotated[Path | None, typer.Option("--file", help="Take the text from this file.")] = None,
    attributes: Annotated[str, typer.Option("--attributes", metavar="JSON", help="Its attributes.")] = "{}",
    meta: Annotated[str | None, typer.Option("--meta", metavar="JSON", help="What changes all the time.")] = None,
    parent: Annotated[str | None, typer.Option("--parent", help="The object above it.")] = None,
    child: Annotated[
        builtins.list[str] | None, typer.Option("--child", help="An object below it; may be repeated.")
    ] = None,
    subject: Annotated[
        str | None, typer.Option("--subject", help="The person whose it is: sealed, and gone when they are erased.")
    ] = None,
    expected_version: Annotated[
        int | None, typer.Option("--expected-version", help="Only over this version; 0: only if there is none.")
    ] = None,
    ns: Namespace = "main",
) -> Object:
    """Keep an object, whatever it was before; every earlier version stays in its history."""
    source = "-" if file is None and content == "-" else file
    text = content if source is None else read(str(source))
    with call.open() as store:
        return store.objects.put(
            id,
            type=type,
            content=text,
            attributes=parsed(attributes, "attributes", dict),
            meta=None if meta is None else parsed(meta, "meta", dict),
            parent=parent,
            children=child or [],
            subject=subject,
            expected_version=expected_version,
            ns=ns,
        )


@command(app, example="holdproof objects get note-1 --at head")
def get(call: Call, id: ObjectId, at: At = None, ns: Namespace = "main") -> Object:
    """Show an object as it is now, or as it was in a snapshot."""
    with call.open() as store:
        return store.objects.get(id, at=at, ns=ns)


@command(app, example="holdproof objects version note-1 2")
def version(
    call: Call,
    id: ObjectId,
    n: Annotated[int, typer.Argument(metavar="N", help="Which write: the `n` of its history.")],
    ns: Namespace = "main",
) -> Object:
    """Show an object as it was after its n-th write."""
    with call.open() as store:
        return store.objects.get(id, version=n, ns=ns)


@command(app, example="holdproof objects delete note-1")
def delete(call: Call, id: ObjectId, ns: Namespace = "main") -> dict[str, str]:
    """Take an object out of the tree; its history stays."""
    with call.open() as store:
        if not store.objects.delete(id, ns=ns):
            raise NotFoundError(f"there is no object {id}", id=id)
        return {"deleted": id}


@command(
    app,
    example="holdproof objects list --limit 20",
    draw=draw.rows("objects", "id", "type", "parent", "version", "cid"),
)
def list(call: Call, at: At = None, after: After = "", limit: Limit = 100, ns: Namespace = "main") -> dict[str, Any]:
    """List objects in the order of their keys, a page at a time."""
    with call.open() as store:
        return items("objects", store.objects.list(at=at, cursor=after or None, limit=limit, ns=ns))


@command(app, example="holdproof objects tree inbox --depth 3", draw=draw_memory.tree)
def tree(
    call: Call,
    id: Annotated[
        str | None, typer.Argument(metavar="ID", help="Where to begin; all of them if it is left out.")
    ] = None,
    depth: Annotated[int, typer.Option("--depth", help="How far down.")] = 16,
    at: At = None,
    ns: Namespace = "main",
) -> dict[str, Any]:
    """Show an object with all that lies below it, as a tree."""
    with call.open() as store:
        tops = [id] if id is not None else [top.id for top in store.graph.roots(ns=ns)]
        found = [store.graph.subtree(top, depth=depth, at=at, ns=ns) for top in tops]
        return {"trees": [branch.to_dict() for branch in found]}


@command(
    app,
    example="holdproof objects history note-1",
    draw=draw.rows("versions", "n", "version", "at", "cid", more="--before"),
)
def history(
    call: Call, id: ObjectId, before: BeforeNumber = None, limit: Limit = 100, ns: Namespace = "main"
) -> dict[str, Any]:
    """List what an object has been, the newest first; one without a CID was a deletion."""
    with call.open() as store:
        cursor = None if before is None else str(before)
        return items("versions", store.objects.history(id, cursor=cursor, limit=limit, ns=ns))


def _found(value: dict[str, Any]) -> Text:
    """What was found, with its distance where there is one."""
    near = ["distance"] if any("distance" in each for each in value["objects"]) else []
    return draw.rows("objects", "id", "type", "content", "version", *near)(value)


@command(
    app,
    example="holdproof objects search 'buy milk' --limit 5",
    draw=_found,
)
def search(
    call: Call,
    *,
    text: Annotated[
        str | None, typer.Argument(metavar="WORDS", help="Words that an object must have, all of them.")
    ] = None,
    like: Annotated[str | None, typer.Option("--like", metavar="TEXT", help="What is nearest to this text.")] = None,
    near: Annotated[str | None, typer.Option("--near", metavar="ID", help="What is nearest to this object.")] = None,
    vector: Annotated[
        str | None, typer.Option("--vector", metavar="JSON", help="What is nearest to this vector.")
    ] = None,
    embedder: EmbedderName = None,
    limit: Limit = 20,
    ns: Namespace = "main",
) -> dict[str, Any]:
    """Find objects by words, the best first, or by their vectors (--like, --near, --vector), the nearest first."""
    given = sum(each is not None for each in (text, like, near, vector))
    if given != 1:
        raise InvalidInputError("say what to look for: words, --like, --near or --vector, one of them")
    with call.open() as store:
        if text is not None:
            return {"objects": [each.to_dict() for each in store.objects.search(text, limit=limit, ns=ns)]}
        asked = None if vector is None else parsed(vector, "vector", builtins.list)
        known = None if embedder is None else find_function(embedder)
        found = store.objects.nearest(asked, like=like, near=near, limit=limit, embedder=known, ns=ns)
        return {"objects": [{**each.object.to_dict(), "distance": each.distance} for each in found]}


@command(app, example="holdproof objects embed --embedder my_models:embed")
def embed(
    call: Call,
    embedder: EmbedderName = None,
    anew: Annotated[bool, typer.Option("--anew", help="Also those that have one: for another model.")] = False,
    ns: Namespace = "main",
) -> dict[str, int]:
    """Give objects a vector of their text, for `search --like`; those that callers gave theirs are left alone."""
    with call.open() as store:
        known = None if embedder is None else find_function(embedder)
        return {"embedded": store.objects.embed(embedder=known, anew=anew, ns=ns)}


@command(app, example="holdproof objects reindex")
def reindex(call: Call, ns: Namespace = "main") -> dict[str, int]:
    """Write anew what `search` looks in: for a store whose objects are older than that."""
    with call.open() as store, pulse("reindexing"):
        return {"objects": store.objects.reindex(ns=ns)}
