"""What the parts of sessions share: a session as it stands, and rows that are written only while it is active."""

from collections.abc import Iterable
from typing import Any, Final

from holdproof.db import Query, Row, Tx, sql
from holdproof.errors import HoldproofError, NotFoundError, SessionEndedError
from holdproof.model.sessions import CLISession
from holdproof.storage import values

_ID_BYTES: Final = 6
_ACTIVE: Final = "FROM cli_sessions s WHERE s.id = :session_id AND s.state = 'active'"

_GET = sql(
    "SELECT id, name, session_type, state, started_at, ended_at, project_path, project_hash, flow_name, flow_path,"
    " budget_level, tokens_used, metadata FROM cli_sessions WHERE id = :id"
)


def get(tx: Tx, session_id: str) -> CLISession | None:
    """One session as it stands, or None."""
    row = tx.one(_GET, id=session_id)
    return None if row is None else session(row)


def session(row: Row) -> CLISession:
    """A session as its row tells it."""
    return CLISession(*(*row[:10], row[10] or "medium", int(row[11] or 0), values.load(row[12])))


def into(text: str) -> Query:
    """An insert that counts only while its session is active; no end comes between the look at it and the row."""
    return sql(f"{text} {_ACTIVE}", postgres=f"{text} {_ACTIVE} FOR SHARE")


def short_id(tx: Tx, prefix: str) -> str:
    """A new id that people can type."""
    return f"{prefix}_{tx.random(_ID_BYTES).hex()}"


def refusal(tx: Tx, session_id: str) -> HoldproofError:
    """Why a session took nothing more."""
    found = get(tx, session_id)
    if found is None:
        return NotFoundError(f"there is no session {session_id}", session_id=session_id)
    return SessionEndedError(
        f"session {session_id} is {found.state} since {found.ended_at}", session_id=session_id, state=found.state
    )


def told(texts: Iterable[Any]) -> Iterable[str]:
    """Texts of a row that another program may have left empty."""
    return ("" if text is None else str(text) for text in texts)
