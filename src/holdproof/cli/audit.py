"""`holdproof audit`: what happened in flows."""

from typing import Annotated

import typer

from holdproof.cli import draw
from holdproof.cli.call import After, Call, Limit, Namespace, Since, command, options
from holdproof.cli.flows import FlowId
from holdproof.model.page import Page
from holdproof.model.records import AuditEvent
from holdproof.model.times import BEGINNING

app = typer.Typer(
    help="Read the events of flows.", epilog="Example: holdproof audit search --severity ERROR", no_args_is_help=True
)
app.callback()(options)

_DRAWN = draw.rows("items", "id", "created_at", "severity", "event_type", "flow_id", "step_id", "state")


@command(app, example="holdproof audit list 0198a7c2-9c1e-7a3b-8d4e-5f6071829304", draw=_DRAWN)
def list(
    call: Call, flow_id: FlowId, after: After = "", limit: Limit = 100, ns: Namespace = "main"
) -> Page[AuditEvent]:
    """List the events of one flow, newest first, a page at a time."""
    with call.open() as store:
        return store.audit.list(flow_id=flow_id, cursor=after or None, limit=limit, ns=ns)


@command(app, example="holdproof audit search --severity ERROR --since 2026-01-01T00:00:00Z", draw=_DRAWN)
def search(
    call: Call,
    *,
    event_type: Annotated[str | None, typer.Option("--type", help="Only events of this type.")] = None,
    severity: Annotated[str | None, typer.Option("--severity", help="Only events of this severity.")] = None,
    since: Since = None,
    after: After = "",
    limit: Limit = 100,
    ns: Namespace = "main",
) -> Page[AuditEvent]:
    """Search the events of all flows, newest first, a page at a time."""
    with call.open() as store:
        return store.audit.list(
            event_type=event_type, severity=severity, since=since or BEGINNING, cursor=after or None, limit=limit, ns=ns
        )


@command(app, example="holdproof audit show 4711")
def show(
    call: Call, id: Annotated[int, typer.Argument(metavar="ID", help="The event's number.")], ns: Namespace = "main"
) -> AuditEvent:
    """Show one event with its detail."""
    with call.open() as store:
        return store.audit.get(id, ns=ns)
