"""Start, events, timeline and end of a session."""

from collections.abc import Mapping
from typing import Any, Final

from holdproof import paging, validation
from holdproof.db import Row, Tx, sql
from holdproof.errors import InvalidInputError, NotFoundError
from holdproof.model import jsontext
from holdproof.model.page import Page
from holdproof.model.sessions import (
    SESSION_ENDS,
    CLISession,
    CLISessionEvent,
    SessionState,
    SessionTimeline,
    SessionType,
)
from holdproof.model.times import END
from holdproof.storage import labels
from holdproof.storage.projects import NOWHERE, Project
from holdproof.storage.sessions import parts, session_rows

_SOURCE: Final = "cli"

# --- start and end -------------------------------------------------------------------------------------------------

_START = sql(
    "INSERT INTO cli_sessions (id, name, session_type, state, started_at, project_path, project_hash, flow_name,"
    " flow_path, budget_level, tokens_used, metadata, subject) VALUES (:id, :name, :session_type, 'active',"
    " :started_at, :project_path, :project_hash, :flow_name, :flow_path, :budget_level, 0, :metadata, :subject)"
    " ON CONFLICT (id) DO NOTHING"
)


def start(
    tx: Tx,
    session_type: str,
    name: str,
    *,
    project: Project = NOWHERE,
    flow_name: str | None = None,
    flow_path: str | None = None,
    budget_level: str = "medium",
    metadata: Mapping[str, Any] | None = None,
    subject: str | None = None,
) -> CLISession:
    """Open a session and log `session_start`; it is erased with its subject."""
    kind = validation.member("session_type", SessionType, session_type)
    row: dict[str, Any] = {"name": validation.name("name", name), "session_type": kind.value, "started_at": tx.now}
    row |= {"project_path": project.path, "project_hash": project.hash}
    row |= {
        "flow_name": validation.optional_words("flow_name", flow_name),
        "flow_path": validation.optional_words("flow_path", flow_path),
    }
    row |= {"budget_level": validation.name("budget_level", budget_level)}
    text = validation.to_json_object("metadata", metadata)
    handle = None if subject is None else labels.label(tx, subject)
    id = session_rows.short_id(tx, "cli")
    # 48 random bits collide rarely, but they do.
    while not tx.count(_START, **row, id=id, metadata=text, subject=handle):
        id = session_rows.short_id(tx, "cli")
    _enter(tx, id, "session_start", f"Started {kind} session: {name}")
    state: dict[str, Any] = {"state": SessionState.ACTIVE.value, "ended_at": None, "tokens_used": 0}
    return CLISession(id, **row, **state, metadata=jsontext.load_object(text))


_ENTER = sql(
    "INSERT INTO cli_session_events (id, session_id, timestamp, event_type, source, message, data)"
    " VALUES (:id, :session_id, :timestamp, :event_type, :source, :message, '{}')"
)


def _enter(tx: Tx, session_id: str, event_type: str, message: str) -> None:
    """An event of the session's own, at its start and at its end."""
    own = {"session_id": session_id, "event_type": event_type, "source": _SOURCE, "message": message}
    tx.execute(_ENTER, expect=1, id=tx.new_id(), timestamp=tx.now, **own)


_END = sql(
    "UPDATE cli_sessions SET state = :state, ended_at = :now,"
    " tokens_used = coalesce(CAST(:tokens_used AS BIGINT), tokens_used) WHERE id = :id AND state = 'active'"
    " RETURNING id, name, session_type, state, started_at, ended_at, project_path, project_hash, flow_name, flow_path,"
    " budget_level, tokens_used, metadata"
)


def end(tx: Tx, session_id: str, state: str = "completed", tokens_used: int | None = None) -> CLISession:
    """End a session and log `session_end`; raises SessionEndedError if it has ended before."""
    last = validation.member("state", SessionState, state)
    if last not in SESSION_ENDS:
        raise InvalidInputError(
            f"{last} is not an end of a session; use one of {', '.join(sorted(SESSION_ENDS))}", field="state"
        )
    used = None if tokens_used is None else validation.count("tokens_used", tokens_used, most=2**63 - 1)
    row = tx.one(_END, id=session_id, state=last.value, tokens_used=used, now=tx.now)
    if row is None:
        raise session_rows.refusal(tx, session_id)
    _enter(tx, session_id, "session_end", f"Session ended with state: {last}")
    return session_rows.session(row)


_RECENT = sql(
    "SELECT id, name, session_type, state, started_at, ended_at, project_path, project_hash, flow_name, flow_path,"
    " budget_level, tokens_used, metadata FROM cli_sessions WHERE (CAST(:state AS TEXT) IS NULL OR state = :state)"
    " AND (CAST(:project_hash AS TEXT) IS NULL OR project_hash = :project_hash)"
    " AND (started_at, id) < (:at, :before) ORDER BY started_at DESC, id DESC LIMIT :limit"
)


def recent(
    tx: Tx, limit: int = 20, state: str | None = None, project_hash: str | None = None, *, cursor: str | None = None
) -> Page[CLISession]:
    """List sessions, newest first."""
    at, before = paging.decode(cursor, END, "")
    state_value = None if state is None else validation.member("state", SessionState, state).value
    filters = {"state": state_value, "project_hash": project_hash}
    rows = tx.all(_RECENT, **filters, at=at, before=before, limit=paging.fetch(limit))
    return paging.page(map(session_rows.session, rows), limit, lambda session: (session.started_at, session.id))


# --- events --------------------------------------------------------------------------------------------------------

_LOG = session_rows.into(
    "INSERT INTO cli_session_events (id, session_id, timestamp, event_type, source, message, data) SELECT"
    " CAST(:id AS TEXT), s.id, CAST(:timestamp AS TEXT), CAST(:event_type AS TEXT), CAST(:source AS TEXT),"
    " CAST(:message AS TEXT), CAST(:data AS TEXT)"
)


def log(  # noqa: PLR0917 (the order that D-gent's callers know)
    tx: Tx, session_id: str, event_type: str, source: str, message: str, data: Mapping[str, Any] | None = None
) -> CLISessionEvent:
    """Log an event; raises SessionEndedError if the session has ended."""
    row: dict[str, Any] = {"event_type": validation.name("event_type", event_type)}
    row |= {"source": validation.name("source", source), "message": validation.words("message", message)}
    row |= {"id": tx.new_id(), "session_id": session_id, "timestamp": tx.now}
    text = validation.to_json_object("data", data)
    if not tx.count(_LOG, **row, data=text):
        raise session_rows.refusal(tx, session_id)
    return CLISessionEvent(**row, data=jsontext.load_object(text))


_COLUMNS: Final = "id, session_id, timestamp, event_type, source, message, data"
# Other programs may have written events without a time: the oldest there are. They are looked up apart, so that an
# index leads to the page of the others.
_PAGE: Final = (
    f"SELECT {_COLUMNS} FROM (SELECT * FROM (SELECT {_COLUMNS} FROM cli_session_events WHERE {{of}} AND {{timed}}"  # noqa: S608
    " ORDER BY timestamp {order}, id {order} LIMIT :limit) AS timed UNION ALL SELECT * FROM"
    f" (SELECT {_COLUMNS} FROM cli_session_events WHERE {{of}} AND timestamp IS NULL AND {{untimed}}"
    " ORDER BY id {order} LIMIT :limit) AS untimed) AS page"
    " ORDER BY coalesce(timestamp, '') {order}, id {order} LIMIT :limit"
)
_EVENTS = sql(
    _PAGE.format(
        of="session_id = :session_id AND (CAST(:event_type AS TEXT) IS NULL OR event_type = :event_type)",
        timed="(timestamp, id) < (:at, :before)",
        untimed="(CAST(:at AS TEXT) > '' OR id < :before)",
        order="DESC",
    )
)


def events(
    tx: Tx, session_id: str, limit: int = 100, event_type: str | None = None, *, cursor: str | None = None
) -> Page[CLISessionEvent]:
    """List the events of a session, newest first."""
    at, before = paging.decode(cursor, END, "")
    filters = {"session_id": session_id, "event_type": event_type}
    rows = tx.all(_EVENTS, **filters, at=at, before=before, limit=paging.fetch(limit))
    return paging.page(map(_event, rows), limit, lambda event: (event.timestamp, event.id))


def _event(row: Row) -> CLISessionEvent:
    id, session_id, *texts, data = row
    at, event_type, source, message = session_rows.texts_of(texts)
    return CLISessionEvent(id, session_id, at, event_type, source, message, jsontext.load_object(data))


# --- timeline -----------------------------------------------------------------------------------------------

_ONWARD = sql(
    _PAGE.format(
        of="session_id = :session_id",
        timed="(timestamp, id) > (:at, :after)",
        untimed="CAST(:at AS TEXT) = '' AND id > :after",
        order="ASC",
    )
)


def timeline(tx: Tx, session_id: str, *, cursor: str | None = None, limit: int = 200) -> SessionTimeline:
    """Return a session with its agents, artifacts and a page of events, oldest first."""
    at, after = paging.decode(cursor, "", "")
    session = session_rows.get(tx, session_id)
    if session is None:
        raise NotFoundError(
            f"there is no session {session_id}", listed_by="sessions list-sessions", session_id=session_id
        )
    rows = tx.all(_ONWARD, session_id=session_id, at=at, after=after, limit=paging.fetch(limit))
    page = paging.page(map(_event, rows), limit, lambda event: (event.timestamp, event.id))
    artifacts = parts.artifacts(tx, session_id)
    return SessionTimeline(session, parts.agents(tx, session_id), artifacts, tuple(page.items), page.next_cursor)
