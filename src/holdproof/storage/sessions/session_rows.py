"""Reading sessions, and inserts that count only while a session is active."""

from collections.abc import Iterable
from typing import Any, Final

from holdproof.db import Query, Row, Tx, sql
from holdproof.errors import HoldproofError, NotFoundError, SessionEndedError
from holdproof.model import jsontext
from holdproof.model.sessions import CLISession

_ID_BYTES: Final = 6
_ACTIVE: Final = "FROM cli_sessions s WHERE s.id = :session_id AND s.state = 'active'"

_GET = sql(
    "SELECT id, name, session_type, state, started_at, ended_at, project_path, project_hash, flow_name, flow_path,"
    " budget_level, tokens_used, metadata FROM cli_sessions WHERE id = :id"
)


def get(tx: Tx, session_id: str) -> CLISession | None:
    """Return one session, or None."""
    row = tx.one(_GET, id=session_id)
    return None if row is None else session(row)


def session(row: Row) -> CLISession:
    """Convert a row."""
    *columns, budget_level, tokens_used, metadata = row
    # Imported rows may have empty columns.
    return CLISession(*(*columns, budget_level or "medium", int(tokens_used or 0), jsontext.load_object(metadata)))


def into(text: str) -> Query:
    """Make an INSERT … SELECT that writes nothing unless its session is active; it cannot end in between."""
    return sql(f"{text} {_ACTIVE}", postgres=f"{text} {_ACTIVE} FOR SHARE")


def short_id(tx: Tx, prefix: str) -> str:
    """A new id that people can type."""
    return f"{prefix}_{tx.random(_ID_BYTES).hex()}"


def refusal(tx: Tx, session_id: str) -> HoldproofError:
    """The error for a session that accepts nothing: it is missing, or has ended."""
    session = get(tx, session_id)
    if session is None:
        return NotFoundError(
            f"there is no session {session_id}", listed_by="sessions list-sessions", session_id=session_id
        )
    return SessionEndedError(
        f"session {session_id} is {session.state} since {session.ended_at}", session_id=session_id, state=session.state
    )


def texts_of(texts: Iterable[Any]) -> Iterable[str]:
    """Texts of a row; those that another program left empty are ''."""
    return ("" if text is None else str(text) for text in texts)
