"""`holdproof blobs`: bytes by key."""

from typing import Annotated, Any

import typer

from holdproof.cli import storage
from holdproof.cli.bar import bar
from holdproof.cli.call import Call, command, options
from holdproof.cli.storage import STDIO, Source, Target
from holdproof.errors import NotFoundError, UnavailableError
from holdproof.model.blobs import Blob, BlobsSwept
from holdproof.model.verdicts import Verdict

app = typer.Typer(
    help="Keep bytes by key, and get them back verified.",
    epilog="Example: holdproof blobs put notes/today.txt today.txt",
    no_args_is_help=True,
)
app.callback()(options)

Key = Annotated[str, typer.Argument(help="The key: a name like backups/today.bak, never a path.")]


@command(app, example="holdproof blobs put backups/today.bak today.bak --content-type application/gzip")
def put(
    call: Call,
    key: Key,
    source: Source,
    content_type: Annotated[str | None, typer.Option("--content-type", help="What it is, as HTTP says it.")] = None,
    subject: Annotated[str | None, typer.Option("--subject", help="Whose it is: erased with that person.")] = None,
) -> Blob:
    """Keep a file, or stdin, under a key in the place of what was there: all of it or nothing."""
    with storage.opened(call, "blobs") as blobs, storage.reading(source) as (file, total), bar() as tell:
        blobs.open_write(key, storage.pieces(file, total, tell), content_type, subject=subject)
        return _found(blobs.stat(key), key)


@command(app, example="holdproof blobs get backups/today.bak today.bak")
def get(
    call: Call,
    key: Key,
    target: Target = STDIO,
) -> Blob:
    """Write the bytes of a key to a file, or to stdout, verified; a file is whole or not there."""
    with storage.opened(call, "blobs") as blobs, bar() as tell:
        blob = _found(blobs.stat(key), key)
        done = 0

        def given() -> Any:
            nonlocal done
            for piece in blobs.open_read(key):
                yield piece
                done += len(piece)
                if tell is not None:
                    tell("bytes", done, blob.size)

        storage.delivered(given(), target, call.as_json)
    if target == STDIO:
        raise typer.Exit
    return blob


@command(app, example="holdproof blobs list backups/")
def list(
    call: Call, prefix: Annotated[str, typer.Argument(help="Only keys that begin with this.")] = ""
) -> dict[str, Any]:
    """List keys, sorted."""
    with storage.opened(call, "blobs") as blobs:
        return {"keys": blobs.list(prefix)}


@command(app, example="holdproof blobs stat backups/today.bak --json")
def stat(call: Call, key: Key) -> Blob:
    """Show what is known of a blob: size, SHA-256, type, where it lies. Exits with 3 if there is none."""
    with storage.opened(call, "blobs") as blobs:
        return _found(blobs.stat(key), key)


@command(
    app,
    example="holdproof blobs exists backups/today.bak",
    exit_code=lambda outcome: 0 if outcome["exists"] else NotFoundError.exit_code,
)
def exists(call: Call, key: Key) -> dict[str, bool]:
    """Say whether there is such a key; exits with 3 if there is none."""
    with storage.opened(call, "blobs") as blobs:
        return {"exists": blobs.exists(key)}


@command(
    app,
    example="holdproof blobs delete backups/today.bak",
    exit_code=lambda outcome: 0 if outcome["deleted"] else NotFoundError.exit_code,
)
def delete(call: Call, key: Key) -> dict[str, bool]:
    """Remove a key and, if no other has them, its bytes; exits with 3 if there was none."""
    with storage.opened(call, "blobs") as blobs:
        return {"deleted": blobs.delete(key)}


def _gravest(outcome: dict[str, Any]) -> int:
    if outcome["ok"]:
        return 0
    found = max(Verdict[finding["verdict"]].exit_code for finding in outcome["findings"])
    return found or UnavailableError.exit_code


@command(app, example="holdproof blobs check", exit_code=_gravest)
def check(call: Call) -> dict[str, Any]:
    """Read every blob and compare it with its row; exits with 20 if bytes are lost or altered, 6 if unreadable."""
    with storage.opened(call, "blobs") as blobs, bar() as tell:
        findings = blobs.check(progress=None if tell is None else lambda done: tell("blobs", done, 0))
    return {"ok": not findings, "findings": [finding.to_dict() for finding in findings]}


@command(app, example="holdproof blobs sweep --older-than-s 86400")
def sweep(
    call: Call,
    older_than_s: Annotated[float, typer.Option("--older-than-s", help="Leave alone what is younger.")] = 3600.0,
) -> BlobsSwept:
    """Remove what crashed writers left: bytes without a key, temporary files."""
    with storage.opened(call, "blobs") as blobs:
        swept: BlobsSwept = blobs.sweep(older_than_s=older_than_s)
        return swept


def _found(blob: Blob | None, key: str) -> Blob:
    if blob is None:
        raise NotFoundError(f"no blob {key}", key=key)
    return blob
