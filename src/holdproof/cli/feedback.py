"""`holdproof feedback`: what became of decisions."""

from typing import Any

import typer

from holdproof.cli import draw
from holdproof.cli.agents import AgentId
from holdproof.cli.call import AfterNumber, BeforeNumber, Call, Limit, Namespace, Since, command, options, page
from holdproof.runtime.logged_rows import BEGINNING

app = typer.Typer(
    help="Show how an agent's decisions turned out.",
    epilog="Example: holdproof feedback recent trader",
    no_args_is_help=True,
)
app.callback()(options)

_COLUMNS = ("feedback", "id", "created_at", "status", "score", "source", "flow_id", "reason")


@command(app, example="holdproof feedback recent trader --limit 20", draw=draw.rows(*_COLUMNS, more="--before"))
def recent(
    call: Call, agent_id: AgentId, before: BeforeNumber = None, limit: Limit = 100, ns: Namespace = "main"
) -> dict[str, Any]:
    """List what became of an agent's decisions, newest first, a page at a time."""
    with call.open() as store:
        return page("feedback", store.feedback.recent(agent_id, before=before, limit=limit, ns=ns), limit, "id")


@command(app, example="holdproof feedback trajectory trader --since 2026-01-01T00:00:00Z", draw=draw.rows(*_COLUMNS))
def trajectory(
    call: Call,
    *,
    agent_id: AgentId,
    since: Since = None,
    after: AfterNumber = 0,
    limit: Limit = 100,
    ns: Namespace = "main",
) -> dict[str, Any]:
    """List what became of an agent's decisions, oldest first, a page at a time."""
    with call.open() as store:
        found = store.feedback.trajectory(agent_id, since=since or BEGINNING, after=after, limit=limit, ns=ns)
        return page("feedback", found, limit, "id")
