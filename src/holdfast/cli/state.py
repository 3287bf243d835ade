"""`holdfast state`: what is kept for an agent."""

from typing import Any

import typer

from holdfast.cli import draw
from holdfast.cli.agents import AgentId
from holdfast.cli.call import BeforeNumber, Call, Limit, Namespace, command, options
from holdfast.model.records import Document

app = typer.Typer(
    help="Show what is kept for an agent, and what the log knows of it.",
    epilog="Example: holdfast state show trader",
    no_args_is_help=True,
)
app.callback()(options)


@command(app, example="holdfast state show trader")
def show(call: Call, agent_id: AgentId, ns: Namespace = "main") -> Document:
    """Show what is kept for an agent, and its version."""
    with call.open() as store:
        return store.state.read(agent_id, ns=ns)


@command(
    app,
    example="holdfast state versions trader",
    draw=draw.rows("versions", "ver", "at", "index", "commitment"),
)
def versions(
    call: Call, agent_id: AgentId, before: BeforeNumber = None, limit: Limit = 100, ns: Namespace = "main"
) -> dict[str, Any]:
    """List what the log knows of it, the newest first; `--before` is the `ver` of the last one of the page before."""
    with call.open() as store:
        found = store.state.versions(agent_id, before=before, limit=limit, ns=ns)
        return {"versions": [each.to_dict() for each in found]}
