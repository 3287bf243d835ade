"""`holdproof agents`: who may act, under which contract."""

from pathlib import Path
from typing import Annotated

import typer

from holdproof.cli import complete, draw
from holdproof.cli.call import After, Call, Limit, Namespace, command, options
from holdproof.cli.files import load
from holdproof.model.agents import Agent, Registration
from holdproof.model.page import Page

app = typer.Typer(
    help="Register agents, and say what they may do.",
    epilog="Example: holdproof agents list --status ACTIVE",
    no_args_is_help=True,
)
app.callback()(options)

AgentId = Annotated[str, typer.Argument(metavar="AGENT_ID", help="The agent's name.", autocompletion=complete.agents)]
Status = Annotated[str, typer.Argument(help="ACTIVE, SUSPENDED, RETIRED, DEGRADED or ESCALATION_ONLY.")]


@command(
    app,
    example="holdproof agents list --status SUSPENDED",
    draw=draw.rows("items", "agent_id", "status", "agent_version", "priority", "updated_at", "suspension_reason"),
)
def list(
    call: Call,
    status: Annotated[str | None, typer.Option("--status", help="Only agents with this status.")] = None,
    after: After = "",
    limit: Limit = 100,
    ns: Namespace = "main",
) -> Page[Agent]:
    """List agents by name, a page at a time."""
    with call.open() as store:
        return store.agents.list(status=status, cursor=after or None, limit=limit, ns=ns)


@command(app, example="holdproof agents show trader")
def show(call: Call, agent_id: AgentId, ns: Namespace = "main") -> Agent:
    """Show one agent with its contract."""
    with call.open() as store:
        return store.agents.get(agent_id, ns=ns)


@command(app, example="holdproof agents register trader --version 1.2.0 --contract contract.json")
def register(
    call: Call,
    *,
    agent_id: AgentId,
    version: Annotated[str, typer.Option("--version", help="The agent's own version.")],
    contract: Annotated[Path | None, typer.Option("--contract", help="A JSON file with its contract.")] = None,
    priority: Annotated[int, typer.Option("--priority", help="Its priority.")] = 0,
    supported: Annotated[str, typer.Option("--supported", help="The versions that are accepted.")] = "1.x",
    ns: Namespace = "main",
) -> Registration:
    """Register an agent, or renew its contract; shows its new session token, this once."""
    terms = None if contract is None else load(str(contract))
    with call.open() as store:
        return store.agents.register(
            agent_id, version=version, contract=terms, priority=priority, supported=supported, ns=ns
        )


@command(app, example="holdproof agents set-status trader SUSPENDED --reason 'under review'")
def set_status(
    call: Call,
    agent_id: AgentId,
    status: Status,
    reason: Annotated[str | None, typer.Option("--reason", help="Why; kept with the agent.")] = None,
    ns: Namespace = "main",
) -> Agent:
    """Change what an agent may do."""
    with call.open() as store:
        return store.agents.set_status(agent_id, status, reason=reason, ns=ns)
