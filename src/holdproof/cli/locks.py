"""`holdproof locks`: resources in the hands of flows."""

from typing import Annotated, Any

import typer

from holdproof.cli import draw
from holdproof.cli.call import Call, Namespace, command, options
from holdproof.cli.flows import FlowId
from holdproof.errors import NotFoundError

app = typer.Typer(
    help="Show what is held by whom, and let it go.", epilog="Example: holdproof locks list", no_args_is_help=True
)
app.callback()(options)


@command(
    app,
    example="holdproof locks list --resource portfolio:BTC",
    draw=draw.rows("locks", "resource_id", "flow_id", "amount", "capacity", "fence", "acquired_at", "expires_at"),
)
def list(
    call: Call,
    resource: Annotated[str | None, typer.Option("--resource", help="Only this resource.")] = None,
    flow_id: Annotated[str | None, typer.Option("--dfid", help="Only what this flow holds.")] = None,
    ns: Namespace = "main",
) -> dict[str, Any]:
    """List what is held now; without a capacity it is held alone."""
    with call.open() as store:
        return {
            "locks": [
                lock.to_dict() for lock in store.locks.list(resource=resource, flow_id=flow_id, limit=1000, ns=ns).items
            ]
        }


@command(
    app,
    example="holdproof locks release 0198a7c2-9c1e-7a3b-8d4e-5f6071829304 portfolio:BTC",
    exit_code=lambda outcome: 0 if outcome["released"] else NotFoundError.exit_code,
)
def release(
    call: Call,
    flow_id: FlowId,
    resource: Annotated[str, typer.Argument(help="The resource.")],
    ns: Namespace = "main",
) -> dict[str, bool]:
    """Take a resource from a flow; whoever holds it next has a greater fencing token. Exits with 3 if it was free."""
    with call.open() as store:
        return {"released": store.locks.release(flow_id, resource, ns=ns)}
