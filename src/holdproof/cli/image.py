"""`holdproof image`: all that is known, in files that load in an instant."""

from enum import StrEnum
from typing import Annotated, Any

import typer

from holdproof.cli import draw
from holdproof.cli.bar import bar
from holdproof.cli.call import Call, Namespace, command, options
from holdproof.model.memory import Dumped, Loaded

app = typer.Typer(
    help="Write an image of all objects with their history, and load the newest good one.",
    epilog="Example: holdproof image dump",
    no_args_is_help=True,
)
app.callback()(options)


class How(StrEnum):
    """How an image is verified."""

    full = "full"
    lazy = "lazy"


@command(app, example="holdproof image dump /mnt/usb/memory")
def dump(
    call: Call,
    path: Annotated[str | None, typer.Argument(help="The folder to write to; the store's own if left out.")] = None,
    keep: Annotated[int, typer.Option("--keep", help="How many images to keep.")] = 3,
    ns: Namespace = "main",
) -> Dumped:
    """Write what changed since the last image; takes a snapshot first if anything is in none."""
    with call.open() as store, bar() as tell:
        return store.image.dump(path, keep=keep, ns=ns, progress=tell)


@command(
    app,
    example="holdproof image list",
    draw=draw.rows("images", "name", "made_at", "files", "bytes", "rev", "damage"),
)
def list(call: Call, ns: Namespace = "main") -> dict[str, Any]:
    """List the images of a namespace as they lie there, the newest first; what is in them is not looked at."""
    with call.open() as store:
        return {"images": [each.to_dict() for each in store.image.list(ns=ns).items]}


@command(app, example="holdproof image beat")
def beat(call: Call) -> dict[str, Any]:
    """Write images of every namespace that changed, where the settings say that it is time: for a timer."""
    with call.open() as store, bar() as tell:
        return {"images": [each.to_dict() for each in store.image.beat(progress=tell)]}


@command(app, example="holdproof image load --verify lazy")
def load(
    call: Call,
    *,
    path: Annotated[
        str | None, typer.Argument(help="A folder of images or one manifest; the store's own if left out.")
    ] = None,
    verify: Annotated[
        How, typer.Option("--verify", help="lazy: believe an image whose head is here already.")
    ] = How.full,
    force: Annotated[
        bool, typer.Option("--force", help="Even if it is older, or other changes are here; they stay in a snapshot.")
    ] = False,
    did: Annotated[str | None, typer.Option("--did", help="Trust this key: for an image of another store.")] = None,
    ns: Namespace = "main",
) -> Loaded:
    """Take the newest good image over; a damaged one is put aside, and said so."""
    with call.open() as store, bar() as tell:
        return store.image.load(path, verify=verify.value, force=force, did=did, ns=ns, progress=tell)
