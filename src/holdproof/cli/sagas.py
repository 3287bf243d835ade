"""`holdproof sagas`: flows that failed half way."""

from typing import Annotated

import typer

from holdproof.cli import draw
from holdproof.cli.call import After, Call, Limit, Namespace, command, options
from holdproof.cli.flows import FlowId
from holdproof.errors import NotFoundError
from holdproof.model.coordination import DirtyFlow
from holdproof.model.page import Page

app = typer.Typer(
    help="Find flows with something to undo.", epilog="Example: holdproof sagas list", no_args_is_help=True
)
app.callback()(options)


@command(
    app,
    example="holdproof sagas list",
    draw=draw.rows("items", "flow_id", "failed_step", "created_at", "partial_state"),
)
def list(call: Call, after: After = "", limit: Limit = 100, ns: Namespace = "main") -> Page[DirtyFlow]:
    """List flows with something to undo, newest first; they keep their locks."""
    with call.open() as store:
        return store.sagas.list(cursor=after or None, limit=limit, ns=ns)


@command(app, example="holdproof sagas show 0198a7c2-9c1e-7a3b-8d4e-5f6071829304")
def show(call: Call, flow_id: FlowId, ns: Namespace = "main") -> DirtyFlow:
    """Show what a flow had done when it failed."""
    with call.open() as store:
        return store.sagas.get(flow_id, ns=ns)


@command(
    app,
    example="holdproof sagas clear 0198a7c2-9c1e-7a3b-8d4e-5f6071829304 --by ann",
    exit_code=lambda outcome: 0 if outcome["cleared"] else NotFoundError.exit_code,
)
def clear(
    call: Call,
    flow_id: FlowId,
    by: Annotated[str, typer.Option("--by", help="Who undid it by hand; kept in the audit.")],
    ns: Namespace = "main",
) -> dict[str, bool]:
    """Say that nothing is left to undo; an ended flow lets its locks go. Exits with 3 if it was not dirty."""
    with call.open() as store:
        return {"cleared": store.sagas.clear(flow_id, by=by, ns=ns)}
