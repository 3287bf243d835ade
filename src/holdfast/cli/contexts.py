"""`holdfast contexts`: what a flow works with."""

from typing import Any

import typer

from holdfast.cli import draw
from holdfast.cli.call import BeforeNumber, Call, Limit, Namespace, command, options
from holdfast.cli.flows import FlowId
from holdfast.model.records import Document

app = typer.Typer(
    help="Show what a flow works with, and what the log knows of it.",
    epilog="Example: holdfast contexts show 0198a7c2-9c1e-7a3b-8d4e-5f6071829304",
    no_args_is_help=True,
)
app.callback()(options)


@command(app, example="holdfast contexts show 0198a7c2-9c1e-7a3b-8d4e-5f6071829304")
def show(call: Call, dfid: FlowId, ns: Namespace = "main") -> Document:
    """Show what a flow works with, and its version."""
    with call.open() as store:
        return store.contexts.read(dfid, ns=ns)


@command(
    app,
    example="holdfast contexts versions 0198a7c2-9c1e-7a3b-8d4e-5f6071829304",
    draw=draw.rows("versions", "ver", "at", "index", "commitment"),
)
def versions(
    call: Call, dfid: FlowId, before: BeforeNumber = None, limit: Limit = 100, ns: Namespace = "main"
) -> dict[str, Any]:
    """List what the log knows of it, the newest first; `--before` is the `ver` of the last one of the page before."""
    with call.open() as store:
        found = store.contexts.versions(dfid, before=before, limit=limit, ns=ns)
        return {"versions": [each.to_dict() for each in found]}
