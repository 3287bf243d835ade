"""`holdproof escalations`: questions that wait for a person."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from holdproof.cli import complete, draw
from holdproof.cli.agents import AgentId
from holdproof.cli.call import After, Call, Limit, Namespace, command, options
from holdproof.cli.files import load
from holdproof.model.coordination import Budget, Escalation
from holdproof.model.page import Page

app = typer.Typer(
    help="Answer what agents ask of people.", epilog="Example: holdproof escalations list", no_args_is_help=True
)
app.callback()(options)

EscalationId = Annotated[
    int, typer.Argument(metavar="ID", help="The number of the question.", autocompletion=complete.escalations)
]


class Answer(StrEnum):
    """The words of an answer, and the resolution each stands for."""

    approve = "approve"
    reject = "reject"
    cancel = "cancel"


@command(
    app,
    example="holdproof escalations list --agent trader",
    draw=draw.rows("items", "id", "impact", "agent_id", "flow_id", "created_at", "deadline", "reason"),
)
def list(
    call: Call,
    agent: Annotated[str | None, typer.Option("--agent", help="Only questions of this agent.")] = None,
    after: After = "",
    limit: Limit = 100,
    ns: Namespace = "main",
) -> Page[Escalation]:
    """List the questions that wait for an answer, newest first."""
    with call.open() as store:
        return store.escalations.list(status="PENDING", agent_id=agent, cursor=after or None, limit=limit, ns=ns)


@command(
    app,
    example="holdproof escalations history --agent trader",
    draw=draw.rows(
        *("items", "id", "status", "impact", "agent_id", "flow_id", "created_at", "resolved_at", "reason"),
    ),
)
def history(
    call: Call,
    *,
    status: Annotated[str | None, typer.Option("--status", help="Only questions with this status.")] = None,
    settled: Annotated[bool, typer.Option("--settled", help="Only those that were answered.")] = False,
    agent: Annotated[str | None, typer.Option("--agent", help="Only questions of this agent.")] = None,
    flow_id: Annotated[str | None, typer.Option("--dfid", help="Only questions of this flow.")] = None,
    after: After = "",
    limit: Limit = 100,
    ns: Namespace = "main",
) -> Page[Escalation]:
    """List questions and their answers, newest first, a page at a time."""
    with call.open() as store:
        return store.escalations.list(
            status="RESOLVED" if settled else status,
            agent_id=agent,
            flow_id=flow_id,
            cursor=after or None,
            limit=limit,
            ns=ns,
        )


@command(app, example="holdproof escalations budget trader")
def budget(call: Call, agent_id: AgentId, ns: Namespace = "main") -> Budget:
    """Show what an agent has spent of its budget of questions by now."""
    with call.open() as store:
        return store.escalations.budget(agent_id, ns=ns)


@command(app, example="holdproof escalations show 17")
def show(call: Call, id: EscalationId, ns: Namespace = "main") -> Escalation:
    """Show a question with its context and proposal, and the answer once there is one."""
    with call.open() as store:
        return store.escalations.get(id, ns=ns)


@command(app, example="holdproof escalations resolve 17 approve --by ann --comment 'within the limit'")
def resolve(
    call: Call,
    *,
    id: EscalationId,
    answer: Annotated[Answer, typer.Argument(help="The flow goes on, fails, or is cancelled.")],
    by: Annotated[str, typer.Option("--by", help="Who answers; kept in the log.")],
    proposal: Annotated[
        Path | None, typer.Option("--proposal", help="With approve: a JSON file to do instead of what was proposed.")
    ] = None,
    comment: Annotated[str | None, typer.Option("--comment", help="Why; kept in the log.")] = None,
    ns: Namespace = "main",
) -> Escalation:
    """Answer a question, once: the answer moves its flow on."""
    instead = None if proposal is None else load(str(proposal))
    with call.open() as store:
        return store.escalations.resolve(id, answer.value, by=by, proposal=instead, comment=comment, ns=ns)
