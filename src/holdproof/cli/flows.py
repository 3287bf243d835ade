"""`holdproof flows`: decision flows, what happened in them, and those whose worker is gone."""

from typing import Annotated, Any

import typer

from holdproof.cli import complete, draw
from holdproof.cli.call import After, Call, Limit, Namespace, Since, command, find_function, options
from holdproof.model.flows import Flow, Recovery
from holdproof.model.page import Page
from holdproof.model.timelines import Timeline
from holdproof.model.times import BEGINNING

app = typer.Typer(
    help="List flows, show them as trees with a timeline, find those whose worker is gone.",
    epilog="Example: holdproof flows list --status WAITING_ESCALATION",
    no_args_is_help=True,
)
app.callback()(options)

FlowId = Annotated[str, typer.Argument(metavar="DFID", help="The flow's id.", autocompletion=complete.flows)]


@command(
    app,
    example="holdproof flows list --status RUNNING --agent trader --since 2026-01-01T00:00:00Z",
    draw=draw.rows("items", "flow_id", "status", "flow_type", "agent_id", "created_at", "updated_at"),
)
def list(
    call: Call,
    *,
    status: Annotated[str | None, typer.Option("--status", help="Only flows with this status.")] = None,
    agent: Annotated[str | None, typer.Option("--agent", help="Only flows of this agent.")] = None,
    flow_type: Annotated[str | None, typer.Option("--type", help="Only flows of this type.")] = None,
    since: Since = None,
    after: After = "",
    limit: Limit = 100,
    ns: Namespace = "main",
) -> Page[Flow]:
    """List flows, newest first, a page at a time."""
    with call.open() as store:
        return store.flows.list(
            status=status,
            agent_id=agent,
            flow_type=flow_type,
            since=since or BEGINNING,
            cursor=after or None,
            limit=limit,
            ns=ns,
        )


@command(
    app,
    example="holdproof flows search trade --status FAILED",
    draw=draw.rows("items", "flow_id", "status", "flow_type", "agent_id", "created_at", "updated_at"),
)
def search(
    call: Call,
    *,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="A part of the id, the agent's name or the type.")] = "",
    status: Annotated[str | None, typer.Option("--status", help="Only flows with this status.")] = None,
    agent: Annotated[str | None, typer.Option("--agent", help="Only flows of this agent.")] = None,
    flow_type: Annotated[str | None, typer.Option("--type", help="Only flows of this type.")] = None,
    after: After = "",
    limit: Limit = 100,
    ns: Namespace = "main",
) -> Page[Flow]:
    """Find flows by a part of their id, agent or type, the newest first."""
    with call.open() as store:
        return store.flows.list(
            text=text, status=status, agent_id=agent, flow_type=flow_type, cursor=after or None, limit=limit, ns=ns
        )


@command(app, example="holdproof flows show 0198a7c2-9c1e-7a3b-8d4e-5f6071829304", draw=draw.timeline)
def show(call: Call, flow_id: FlowId, after: After = "", limit: Limit = 200, ns: Namespace = "main") -> Timeline:
    """Show a flow as a tree with its steps, and all that happened in it and below, in order."""
    with call.open() as store:
        return store.flows.timeline(flow_id, cursor=after or None, limit=limit, ns=ns)


@command(
    app,
    example="holdproof flows steps 0198a7c2-9c1e-7a3b-8d4e-5f6071829304 --json",
    draw=draw.rows("steps", "name", "n", "state", "started_at", "finished_at", "compensates", "error"),
)
def steps(call: Call, flow_id: FlowId, ns: Namespace = "main") -> dict[str, Any]:
    """List the steps of a flow with their results, in the order they were begun."""
    with call.open() as store:
        return {"steps": [step.to_dict() for step in store.flows.steps(flow_id, ns=ns)]}


@command(
    app,
    example="holdproof flows orphans",
    draw=draw.rows("orphans", "flow_id", "worker", "expires_at", "name", "version"),
)
def orphans(call: Call, limit: Limit = 100, ns: Namespace = "main") -> dict[str, Any]:
    """List flows whose worker is gone, oldest first, with the function that can run them again."""
    with call.open() as store:
        return {"orphans": [orphan.to_dict() for orphan in store.flows.orphans(limit=limit, ns=ns)]}


@command(app, example="holdproof flows recover --register my_agents:register")
def recover(
    call: Call,
    register: Annotated[
        str, typer.Option("--register", metavar="MODULE:FUNCTION", help="Gets the store, registers decisions on it.")
    ],
    worker: Annotated[str | None, typer.Option("--worker", help="The name to take flows in hand with.")] = None,
    limit: Limit = 100,
    ns: Namespace = "main",
) -> Recovery:
    """Run flows again whose worker is gone and whose function is registered; names those that are left."""
    registering = find_function(register)
    with call.open() as store:
        registering(store)
        return store.flows.recover(worker, limit=limit, ns=ns)


@command(app, example="holdproof flows cancel 0198a7c2-9c1e-7a3b-8d4e-5f6071829304 --reason 'no longer needed'")
def cancel(
    call: Call,
    flow_id: FlowId,
    reason: Annotated[str, typer.Option("--reason", help="Why; kept with the transition.")],
    ns: Namespace = "main",
) -> Flow:
    """Cancel a flow; one with steps to undo goes on to that."""
    with call.open() as store:
        return store.flows.cancel(flow_id, reason=reason, ns=ns)


@command(app, example="holdproof flows transition 0198a7c2-9c1e-7a3b-8d4e-5f6071829304 CANCELLED --reason stuck")
def transition(
    call: Call,
    flow_id: FlowId,
    to: Annotated[str, typer.Argument(metavar="STATUS", help="Where the flow goes, along a legal edge.")],
    reason: Annotated[str | None, typer.Option("--reason", help="Why; kept with the transition.")] = None,
    ns: Namespace = "main",
) -> Flow:
    """Move a flow by hand, as to CANCELLED; its worker finds out at its next step."""
    with call.open() as store:
        return store.flows.transition(flow_id, to, reason=reason, ns=ns)
