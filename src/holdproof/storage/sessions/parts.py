"""The agents and artifacts of a session."""

from collections.abc import Mapping
from typing import Any

from holdproof import validation
from holdproof.db import Row, Tx, sql
from holdproof.errors import InvalidInputError, NotFoundError, SessionEndedError
from holdproof.model import jsontext
from holdproof.model.sessions import AGENT_ENDS, AgentStatus, CLISessionAgent, CLISessionArtifact
from holdproof.storage.sessions import session_rows

# Parameters need their types spelled out: PostgreSQL cannot infer them in a SELECT list.
_SPAWN = session_rows.into(
    "INSERT INTO cli_session_agents (id, session_id, name, genus, status, started_at, metadata) SELECT"
    " CAST(:id AS TEXT), s.id, CAST(:name AS TEXT), CAST(:genus AS TEXT), 'running', CAST(:now AS TEXT),"
    " CAST(:metadata AS TEXT)"
)


def spawn(tx: Tx, session_id: str, name: str, genus: str, metadata: Mapping[str, Any] | None = None) -> CLISessionAgent:
    """Record that a session spawned an agent, which is running from now on."""
    validation.name("name", name)
    validation.name("genus", genus)
    text = validation.to_json_object("metadata", metadata)
    id = session_rows.short_id(tx, "agt")
    if not tx.count(_SPAWN, id=id, session_id=session_id, name=name, genus=genus, metadata=text, now=tx.now):
        raise session_rows.refusal(tx, session_id)
    status = AgentStatus.RUNNING.value
    return CLISessionAgent(id, session_id, name, genus, status, tx.now, None, None, jsontext.load_object(text))


_COMPLETE = sql(
    "UPDATE cli_session_agents SET status = :status, completed_at = :now, error = :error WHERE id = :id"
    " AND status IN ('pending', 'running')"
    " RETURNING id, session_id, name, genus, status, started_at, completed_at, error, metadata"
)
_STATUS = sql("SELECT status FROM cli_session_agents WHERE id = :id")


def complete(tx: Tx, agent_id: str, *, status: str = "completed", error: str | None = None) -> CLISessionAgent:
    """Record the end of an agent; raises SessionEndedError if it had ended before."""
    last = validation.member("status", AgentStatus, status)
    if last not in AGENT_ENDS:
        raise InvalidInputError(
            f"{last} is not an end of an agent; use one of {', '.join(sorted(AGENT_ENDS))}", field="status"
        )
    # One conditional update; only if it matched nothing, a second query finds out why.
    row = tx.one(_COMPLETE, id=agent_id, status=last.value, error=validation.optional_words("error", error), now=tx.now)
    if row is not None:
        return _agent(row)
    row = tx.one(_STATUS, id=agent_id)
    if row is None:
        raise NotFoundError(f"there is no agent {agent_id}", listed_by="agents list", agent_id=agent_id)
    (state,) = row
    raise SessionEndedError(f"agent {agent_id} is {state} already", agent_id=agent_id, state=state)


_AGENTS = sql(
    "SELECT id, session_id, name, genus, status, started_at, completed_at, error, metadata FROM cli_session_agents"
    " WHERE session_id = :session_id ORDER BY started_at, id"
)


def agents(tx: Tx, session_id: str) -> tuple[CLISessionAgent, ...]:
    """The agents of a session, in the order they were spawned."""
    return tuple(_agent(row) for row in tx.all(_AGENTS, session_id=session_id))


def _agent(row: Row) -> CLISessionAgent:
    # Imported rows may have empty texts.
    id, session_id, *texts, started, completed, error, metadata = row
    name, genus, status = session_rows.texts_of(texts)
    facts = jsontext.load_object(metadata)
    return CLISessionAgent(id, session_id, name, genus, status, started, completed, error, facts)


_RECORD = session_rows.into(
    "INSERT INTO cli_session_artifacts (id, session_id, name, path, artifact_type, created_at, updated_at, size_bytes,"
    " content_preview, metadata) SELECT CAST(:id AS TEXT), s.id, CAST(:name AS TEXT), CAST(:path AS TEXT),"
    " CAST(:artifact_type AS TEXT), CAST(:now AS TEXT), CAST(:now AS TEXT), CAST(:size_bytes AS BIGINT),"
    " CAST(:content_preview AS TEXT), CAST(:metadata AS TEXT)"
)


def record(
    tx: Tx,
    session_id: str,
    name: str,
    artifact_type: str,
    *,
    path: str | None = None,
    size_bytes: int = 0,
    content_preview: str | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> CLISessionArtifact:
    """Record an artifact of a session."""
    row: dict[str, Any] = {"name": validation.name("name", name), "path": validation.optional_words("path", path)}
    row |= {"artifact_type": validation.name("artifact_type", artifact_type)}
    row |= {"size_bytes": validation.count("size_bytes", size_bytes, most=2**63 - 1)}
    row |= {"content_preview": validation.optional_words("content_preview", content_preview)}
    text = validation.to_json_object("metadata", metadata)
    id = session_rows.short_id(tx, "art")
    if not tx.count(_RECORD, **row, id=id, session_id=session_id, metadata=text, now=tx.now):
        raise session_rows.refusal(tx, session_id)
    more: dict[str, Any] = {"created_at": tx.now, "updated_at": tx.now, "metadata": jsontext.load_object(text)}
    return CLISessionArtifact(id, session_id, **row, **more)


_ARTIFACTS = sql(
    "SELECT id, session_id, name, path, artifact_type, created_at, updated_at, size_bytes, content_preview, metadata"
    " FROM cli_session_artifacts WHERE session_id = :session_id ORDER BY created_at, id"
)


def artifacts(tx: Tx, session_id: str) -> tuple[CLISessionArtifact, ...]:
    """The artifacts of a session, in the order they were recorded."""
    return tuple(_artifact(row) for row in tx.all(_ARTIFACTS, session_id=session_id))


def _artifact(row: Row) -> CLISessionArtifact:
    id, session_id, name, path, kind, created, updated, size, preview, metadata = row
    name, kind, created, updated = session_rows.texts_of((name, kind, created, updated))
    facts = jsontext.load_object(metadata)
    return CLISessionArtifact(id, session_id, name, path, kind, created, updated, int(size or 0), preview, facts)
