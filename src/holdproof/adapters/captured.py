"""What recorders write: one flow for each session that is captured, and an event under the log for each thing seen.

Hooks, the MCP proxy and `instrument()` see what an agent does without being part of it. They share these functions.

Rules:
- Recording is not permission: the agent is registered at its first event, and need not be ACTIVE.
- An event is stored whole. A text that is longer than `LONG` goes into the content store, once, and stands in the event
  as `{"$value": CID, "bytes": n}`: the CID is the hash of the text, so the event proves it too. A conversation is
  `{"$list": CID, "items": n}`.
- The session of a person (`subject`) is sealed whole, long texts too, and goes when that person is erased. Nobody's
  session becomes a person's later: who it belongs to is said when it begins.
- What JSON or a record cannot hold (NaN, numbers beyond 2^53, broken Unicode, bytes) is stored as text, never dropped.
- A recorder that starts, stops, loses its store or misses an event leaves an event of its own (`recorder.*`).
"""

import json
import math
from collections.abc import Mapping
from typing import Any, Final

from holdproof.errors import NotFoundError
from holdproof.kernel import MAIN, Tx, audit, autocreate, flows, values
from holdproof.model.records import AuditEvent

LONG: Final = 4096
"""Texts of more characters are stored in the content store."""
_DEEP: Final = 64
"""Values that are nested deeper are stored as JSON text."""
_EXACT: Final = 2**53

STARTED: Final = "recorder.started"
STOPPED: Final = "recorder.stopped"
DIED: Final = "recorder.died"
STORE_LOST: Final = "recorder.store_lost"
GAP: Final = "recorder.gap"


class Conversation(list[Any]):
    """A list that grows from event to event: stored as a Merkle list, of which each event adds only what is new."""


def open_session(
    tx: Tx, agent_id: str, flow_id: str, *, flow_type: str, subject: str | None = None, ns: str = MAIN
) -> bool:
    """Open the flow of a captured session unless it is open; return whether it is new.

    `subject` names the person whose session it is: what it records is sealed, and goes when that person is erased.
    """
    try:
        flow = flows.lock(tx, flow_id, ns=ns)
    except NotFoundError:
        autocreate.session(tx, agent_id, flow_id=flow_id, flow_type=flow_type, subject=subject, ns=ns)
        flows.transition(tx, flow_id, "RUNNING", ns=ns)
        return True
    # A session that is resumed after its end stays one flow: its events go on, and its end is not taken back.
    return flow.status == "CREATED"


def is_of_a_person(tx: Tx, flow_id: str, *, ns: str = MAIN) -> bool:
    """Whether a session is some person's; one that has not begun is nobody's."""
    try:
        return flows.get(tx, flow_id, ns=ns).subject is not None
    except NotFoundError:
        return False


def close_session(tx: Tx, flow_id: str, *, reason: str, ns: str = MAIN) -> None:
    """End the flow of a captured session; one that has ended stays as it is."""
    if flows.lock(tx, flow_id, ns=ns).status == "RUNNING":
        flows.transition(tx, flow_id, "COMPLETED", reason=reason, ns=ns)


def note(
    tx: Tx,
    flow_id: str,
    event_type: str,
    detail: Mapping[str, Any],
    *,
    severity: str = "INFO",
    step_id: str = "",
    ns: str = MAIN,
) -> AuditEvent:
    """Write an event of a session, with its long texts in the content store; those of a person stay in the event."""
    stored = plain(detail)
    # The content store is shared, and an erasure must reach every text of a person: their events are sealed whole.
    if flows.get(tx, flow_id, ns=ns).subject is None:
        stored = stored_texts(tx, stored)
    return audit.record(tx, flow_id, event_type, severity=severity, step_id=step_id[:200], detail=stored, ns=ns)


def stored_texts(tx: Tx, value: Any) -> Any:
    """Return a plain value with its long texts put into the content store."""
    if isinstance(value, str):
        return value if len(value) <= LONG else {"$value": values.put(tx, value), "bytes": len(value.encode())}
    if isinstance(value, dict):
        return {key: stored_texts(tx, each) for key, each in value.items()}
    if isinstance(value, Conversation):
        return {"$list": values.put(tx, list(value)), "items": len(value)}
    if isinstance(value, list):
        return [stored_texts(tx, each) for each in value]
    return value


def read_texts(tx: Tx, value: Any) -> Any:
    """Return a value with its long texts read back; the counterpart of `stored_texts`."""
    if isinstance(value, dict):
        if set(value) == {"$value", "bytes"}:
            return values.get(tx, value["$value"])
        if set(value) == {"$list", "items"}:
            return values.get(tx, value["$list"])
        return {key: read_texts(tx, each) for key, each in value.items()}
    if isinstance(value, list):
        return [read_texts(tx, each) for each in value]
    return value


def plain(value: Any, depth: int = 0) -> Any:
    """Return a value as a record can hold it; what it cannot hold becomes text."""
    if value is None or isinstance(value, bool | int | float | str):
        return _scalar(value)
    if depth >= _DEEP:
        return _scalar(_flattened(value))
    if isinstance(value, Mapping):
        return {_scalar(str(key)): plain(each, depth + 1) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        items = [plain(each, depth + 1) for each in value]
        return Conversation(items) if isinstance(value, Conversation) else items
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode("utf-8", "replace")
    dump = getattr(value, "model_dump", None)
    return plain(dump(mode="json"), depth + 1) if callable(dump) else _scalar(str(value))


def _scalar(value: Any) -> Any:
    if isinstance(value, str):
        # A lone surrogate is legal in JSON and in Python, and nowhere else.
        return value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    # Of whole numbers JSON keeps those exact that a double holds.
    return str(value) if isinstance(value, int) and abs(value) >= _EXACT else value


def _flattened(value: Any) -> str:
    try:
        return json.dumps(value, default=str)
    except (RecursionError, ValueError):
        return f"({type(value).__name__} that is nested too deeply)"
