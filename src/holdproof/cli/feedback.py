"""`holdproof feedback`: what became of decisions."""

import typer

from holdproof.cli import draw
from holdproof.cli.agents import AgentId
from holdproof.cli.call import After, Call, Limit, Namespace, Since, command, options
from holdproof.model.page import Page
from holdproof.model.records import Feedback
from holdproof.model.times import BEGINNING

app = typer.Typer(
    help="Show how an agent's decisions turned out.",
    epilog="Example: holdproof feedback list trader",
    no_args_is_help=True,
)
app.callback()(options)

_COLUMNS = ("items", "id", "created_at", "status", "score", "source", "flow_id", "reason")


@command(app, example="holdproof feedback list trader --limit 20", draw=draw.rows(*_COLUMNS))
def list(
    call: Call,
    *,
    agent_id: AgentId,
    since: Since = None,
    after: After = "",
    limit: Limit = 100,
    ns: Namespace = "main",
) -> Page[Feedback]:
    """List feedback on an agent's flows, newest first, a page at a time."""
    with call.open() as store:
        return store.feedback.list(
            agent_id=agent_id, since=since or BEGINNING, cursor=after or None, limit=limit, ns=ns
        )
