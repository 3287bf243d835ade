"""`holdproof vectors`: vectors by id, found by nearness."""

import builtins
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from holdproof.cli import draw, storage
from holdproof.cli.call import Call, command, options
from holdproof.cli.storage import STDIO, Source, Target
from holdproof.errors import InvalidInputError, NotFoundError

app = typer.Typer(
    help="Keep vectors, and find the nearest.",
    epilog="Example: holdproof vectors search '[0.1, 0.9]' --k 5",
    no_args_is_help=True,
)
app.callback()(options)

Id = Annotated[str, typer.Argument(help="The vector's id.")]
Numbers = Annotated[str, typer.Argument(metavar="VECTOR", help="Its numbers as a JSON list.")]
_FIELDS = frozenset({"id", "vector", "metadata"})


@command(app, example="""holdproof vectors add note-1 '[0.1, 0.9]' --metadata '{"kind": "note"}'""")
def add(
    call: Call,
    id: Id,
    vector: Numbers,
    metadata: Annotated[str, typer.Option("--metadata", help="A JSON object.")] = "{}",
) -> dict[str, str]:
    """Keep a vector under an id, in the place of the one that was there."""
    numbers, facts = storage.parsed(vector, "vector", builtins.list), storage.parsed(metadata, "metadata", dict)
    with storage.opened(call, "vectors") as vectors:
        vectors.add(id, numbers, facts)
    return {"added": id}


@command(
    app,
    example="""holdproof vectors search '[0.1, 0.9]' --k 5 --filter '{"kind": "note"}'""",
    draw=draw.rows("results", "id", "distance", "metadata"),
)
def search(
    call: Call,
    query: Numbers,
    k: Annotated[int, typer.Option("--k", "--limit", help="How many, at most.")] = 10,
    filter: Annotated[str, typer.Option("--filter", help="What metadata must have, as a JSON object.")] = "{}",
) -> dict[str, Any]:
    """Find the nearest vectors whose metadata match; the distance is one minus the cosine."""
    numbers, wanted = storage.parsed(query, "vector", builtins.list), storage.parsed(filter, "filter", dict)
    with storage.opened(call, "vectors") as vectors:
        return {"results": [found.to_dict() for found in vectors.search(numbers, k, filter=wanted)]}


@command(
    app,
    example="holdproof vectors delete note-1",
    exit_code=lambda outcome: 0 if outcome["deleted"] else NotFoundError.exit_code,
)
def delete(call: Call, id: Id) -> dict[str, bool]:
    """Remove a vector; exits with 3 if there was none."""
    with storage.opened(call, "vectors") as vectors:
        return {"deleted": vectors.delete(id)}


@command(app, example="holdproof vectors count")
def count(call: Call) -> dict[str, int]:
    """Count the vectors, and say how many numbers each has."""
    with storage.opened(call, "vectors") as vectors:
        return {"count": vectors.count(), "dimensions": vectors.dimensions}


def import_(call: Call, source: Source) -> dict[str, int]:
    """Keep the vectors of a file of JSON lines (id, vector, metadata), a thousand a commit; twice changes nothing."""
    with storage.opened(call, "vectors") as vectors:
        return {"imported": vectors.add_many(_items(source))}


def _items(source: str) -> Iterator[tuple[str, Any, Any]]:
    for number, found in storage.documents(source):
        if not found.keys() <= _FIELDS or not found.keys() >= {"id", "vector"}:
            raise InvalidInputError(f"line {number} is to have id, vector and perhaps metadata", line=number)
        yield found["id"], found["vector"], found.get("metadata")


def export(call: Call, target: Target = STDIO) -> dict[str, Any]:
    """Write every vector as a line of JSON (id, vector, metadata), by id."""
    with storage.opened(call, "vectors") as vectors:
        return storage.exported("vectors", vectors.export(), target, total=vectors.count(), as_json=call.as_json)
