"""Sessions of the command line, with their events, agents and artifacts.

    async with await create_cli_session_service() as service:
        session = await service.start_session("interactive", "My REPL")
        await service.log_event(session.id, "command", "repl", "User ran check")
        await service.end_session(session.id, state="completed")

Rules:
- A session is started once and ended once: completed, failed or interrupted. Ending it again is SessionEndedError.
- An ended session accepts no events, agents or artifacts; an agent that is still running may be completed.
- `session_start` is logged with the session and `session_end` with its end: each with its row, or neither.
- Times are UTC. Sessions and events come newest first, and of one moment the later first; a timeline runs onwards.
"""

from collections.abc import Mapping
from types import TracebackType
from typing import Any

from holdproof import validation
from holdproof.db import Work, Write, ask
from holdproof.errors import InvalidInputError
from holdproof.executors import AsyncExecutor, Executor, Reads, Resource, RunsWith, Writes
from holdproof.model.sessions import CLISession
from holdproof.storage.projects import NOWHERE, Project, project_here, project_of
from holdproof.storage.provider import StorageProvider
from holdproof.storage.sessions import lives, parts, session_rows
from holdproof.storage.stores import RelationalStore

__all__ = ["CLISessionService", "Sessions", "create_cli_session_service"]


def _start_session(
    project: Project,
    session_type: str,
    name: str,
    *,
    project_path: str | None = None,
    project_hash: str | None = None,
    flow_name: str | None = None,
    flow_path: str | None = None,
    budget_level: str = "medium",
    metadata: Mapping[str, Any] | None = None,
    subject: str | None = None,
) -> Work[CLISession]:
    """Open a session and log `session_start`; without `project_path` it belongs to the project of the service.

    Erasing `subject` removes the session and all that belongs to it.
    """
    if project_path is not None:
        project = project_of(project_path)
    if project_hash is not None:
        # A hash alone names a project whose folder is not known here.
        path = None if project_path is None else project.path
        project = Project(path, validation.name("project_hash", project_hash))
    opening = Write(
        lambda tx: lives.start(
            tx,
            session_type,
            name,
            project=project,
            flow_name=flow_name,
            flow_path=flow_path,
            budget_level=budget_level,
            metadata=metadata,
            subject=subject,
        )
    )
    return (yield from ask(opening))


class Sessions(Resource[Executor]):
    """Sessions of the command line."""

    group = "Inspect"

    start_session = RunsWith(_start_session, example="script 'Nightly build'", creates=True)
    end_session = Writes(lives.end, example="cli_0a1b2c3d4e5f --state failed --tokens-used 1200")
    get_session = Reads(session_rows.get)
    list_sessions = Reads(
        lives.recent,
        columns=("id", "state", "session_type", "name", "started_at", "ended_at", "project_path"),
        example="--state active",
    )
    log_event = Writes(lives.log, example="cli_0a1b2c3d4e5f command repl 'User ran check'", creates=True)
    get_session_events = Reads(lives.events)
    spawn_agent = Writes(parts.spawn, example="cli_0a1b2c3d4e5f C-gent c-gent")
    complete_agent = Writes(parts.complete, example="agt_0a1b2c3d4e5f --status failed --error timeout")
    record_artifact = Writes(parts.record, example="cli_0a1b2c3d4e5f plan doc --path plan.md")
    timeline = Reads(lives.timeline, draw="session", example="cli_0a1b2c3d4e5f")

    def __init__(self, executor: Executor, project: Project = NOWHERE) -> None:
        super().__init__(executor)
        self._project = project

    @property
    def held(self) -> Project:
        """The project of its sessions, unless a call names another."""
        return self._project


class CLISessionService(Sessions[AsyncExecutor]):
    """Sessions of the command line in a storage: of a provider or of its relational store."""

    def __init__(self, storage: StorageProvider | RelationalStore, project: Project = NOWHERE) -> None:
        # The relational store of a provider has its executor in `held`; a store of another kind has not.
        executor = storage.membrane if isinstance(storage, StorageProvider) else getattr(storage, "held", None)
        if not isinstance(executor, AsyncExecutor):
            raise InvalidInputError("sessions need a StorageProvider, or the relational store of one")
        super().__init__(executor, project)
        self._storage = storage

    async def close(self) -> None:
        """Close its storage; may be called twice."""
        await self._storage.close()

    async def __aenter__(self) -> "CLISessionService":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


async def create_cli_session_service(storage: StorageProvider | None = None) -> CLISessionService:
    """Open the sessions of the project of the working folder, in `storage` or in the one that the settings name.

    Close it, or use it as an async context manager; what was acknowledged is durable in any case.
    """
    return CLISessionService(storage or await StorageProvider.from_config(), project_here())
