"""`holdproof sessions`: what ran on the command line, and what happened in it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from holdproof.cli import draw
from holdproof.cli.call import After, Call, Limit, command, options, page
from holdproof.cli.storage import opened, parsed
from holdproof.executors import SyncExecutor
from holdproof.model.sessions import (
    CLISession,
    CLISessionAgent,
    CLISessionArtifact,
    CLISessionEvent,
    SessionState,
    SessionTimeline,
    SessionType,
)
from holdproof.storage.projects import project_here, project_of
from holdproof.storage.sessions import Sessions

app = typer.Typer(
    help="Keep sessions of the command line: start them, log what happens, end them, look back.",
    epilog="Example: holdproof sessions list --state failed",
    no_args_is_help=True,
)
app.callback()(options)

SessionId = Annotated[str, typer.Argument(metavar="SESSION", help="The session's id.")]
Facts = Annotated[str | None, typer.Option(metavar="JSON", help="More about it, as a JSON object.")]


@contextmanager
def _opened(call: Call) -> Iterator[Sessions[SyncExecutor]]:
    """The sessions of the relational store that settings name; never of memory in its place."""
    with opened(call, "relational") as tables:
        yield Sessions(tables.held, project_here())


def _facts(text: str | None) -> dict[str, Any]:
    found: dict[str, Any] = {} if text is None else parsed(text, "the option", dict)
    return found


@command(app, example="holdproof sessions start script 'Nightly build'")
def start(
    call: Call,
    *,
    session_type: Annotated[
        str, typer.Argument(metavar="TYPE", help=f"One of {', '.join(SessionType)}; repl is interactive.")
    ],
    name: Annotated[str, typer.Argument(help="What people call it.")],
    project: Annotated[
        str | None, typer.Option("--project", metavar="PATH", help="Its project; the one we stand in by default.")
    ] = None,
    flow_name: Annotated[str | None, typer.Option("--flow-name", help="Of a flow, its name.")] = None,
    flow_path: Annotated[str | None, typer.Option("--flow-path", help="Of a flow, its file.")] = None,
    budget: Annotated[str, typer.Option("--budget", help="The level of its budget.")] = "medium",
    metadata: Facts = None,
    subject: Annotated[str | None, typer.Option("--subject", help="Whose it is: erased with that person.")] = None,
) -> CLISession:
    """Start a session; its id is for all that follows."""
    with _opened(call) as sessions:
        return sessions.start_session(
            session_type,
            name,
            project_path=project,
            flow_name=flow_name,
            flow_path=flow_path,
            budget_level=budget,
            metadata=_facts(metadata),
            subject=subject,
        )


@command(app, example="holdproof sessions log cli_0a1b2c3d4e5f command 'User ran check' --source repl")
def log(
    call: Call,
    *,
    session: SessionId,
    event_type: Annotated[str, typer.Argument(metavar="TYPE", help="What kind of event, as command or error.")],
    message: Annotated[str, typer.Argument(help="What happened.")],
    source: Annotated[str, typer.Option("--source", help="Who says so.")] = "cli",
    data: Facts = None,
) -> CLISessionEvent:
    """Log what happened in a session; one that has ended takes nothing more."""
    with _opened(call) as sessions:
        return sessions.log_event(session, event_type, source, message, _facts(data))


@command(app, example="holdproof sessions end cli_0a1b2c3d4e5f --state failed --tokens-used 1200")
def end(
    call: Call,
    session: SessionId,
    state: Annotated[str, typer.Option("--state", help="completed, failed or interrupted.")] = "completed",
    tokens_used: Annotated[int | None, typer.Option("--tokens-used", help="How many tokens it used.")] = None,
) -> CLISession:
    """End a session, once. Exits with 4 if it has ended before."""
    with _opened(call) as sessions:
        return sessions.end_session(session, state=state, tokens_used=tokens_used)


@command(
    app,
    example="holdproof sessions list --state active --project .",
    draw=draw.rows("sessions", "id", "state", "session_type", "name", "started_at", "ended_at", "project_path"),
)
def list(
    call: Call,
    state: Annotated[str | None, typer.Option("--state", help=f"Only those: {', '.join(SessionState)}.")] = None,
    project: Annotated[
        str | None, typer.Option("--project", metavar="PATH", help="Only those of the project of this folder.")
    ] = None,
    after: After = "",
    limit: Limit = 20,
) -> dict[str, Any]:
    """List sessions, newest first, a page at a time."""
    of = None if project is None else project_of(project).hash
    with _opened(call) as sessions:
        found = sessions.list_sessions(limit=limit, state=state, project_hash=of, after=after)
        return page("sessions", found, limit, "id")


@command(app, example="holdproof sessions show cli_0a1b2c3d4e5f", draw=draw.session)
def show(call: Call, session: SessionId, after: After = "", limit: Limit = 200) -> SessionTimeline:
    """Show a session with its agents and artifacts, and all that happened in it, in order."""
    with _opened(call) as sessions:
        return sessions.timeline(session, after=after, limit=limit)


@command(app, example="holdproof sessions spawn-agent cli_0a1b2c3d4e5f C-gent c-gent")
def spawn_agent(
    call: Call,
    session: SessionId,
    name: Annotated[str, typer.Argument(help="The agent's name.")],
    genus: Annotated[str, typer.Argument(help="What kind of agent it is.")],
    metadata: Facts = None,
) -> CLISessionAgent:
    """Record that a session spawned an agent."""
    with _opened(call) as sessions:
        return sessions.spawn_agent(session, name, genus, _facts(metadata))


@command(app, example="holdproof sessions complete-agent agt_0a1b2c3d4e5f --status failed --error timeout")
def complete_agent(
    call: Call,
    agent: Annotated[str, typer.Argument(metavar="AGENT", help="The agent's id.")],
    status: Annotated[str, typer.Option("--status", help="completed or failed.")] = "completed",
    error: Annotated[str | None, typer.Option("--error", help="What went wrong.")] = None,
) -> CLISessionAgent:
    """Record that an agent has come to its end, once."""
    with _opened(call) as sessions:
        return sessions.complete_agent(agent, status=status, error=error)


@command(app, example="holdproof sessions record-artifact cli_0a1b2c3d4e5f plan doc --path plan.md")
def record_artifact(
    call: Call,
    *,
    session: SessionId,
    name: Annotated[str, typer.Argument(help="What it is called.")],
    artifact_type: Annotated[str, typer.Argument(metavar="TYPE", help="What it is, as code, doc or report.")],
    path: Annotated[str | None, typer.Option("--path", help="Where it lies.")] = None,
    size_bytes: Annotated[int, typer.Option("--size-bytes", help="How large it is.")] = 0,
    preview: Annotated[str | None, typer.Option("--preview", help="How it begins.")] = None,
    metadata: Facts = None,
) -> CLISessionArtifact:
    """Record what a session brought forth."""
    with _opened(call) as sessions:
        return sessions.record_artifact(
            session,
            name,
            artifact_type,
            path=path,
            size_bytes=size_bytes,
            content_preview=preview,
            metadata=_facts(metadata),
        )
