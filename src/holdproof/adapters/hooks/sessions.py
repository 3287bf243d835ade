"""Events of hooks in the store: the transaction that records one, and what is known of a session that goes on.

Rules:
- A session of an agent is one flow, `<agent tool>.<session id>`; its events are audit events of that flow.
- An event and the file changes that it reports are recorded together or not at all.
- A call that a policy asked about, and that the agent's own user then let happen, is recorded as approved there.
"""

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from holdproof.adapters import captured
from holdproof.adapters.hooks import git, tools
from holdproof.adapters.hooks.numbers import LATE, RESTARTED, Numbers
from holdproof.kernel import Tx, audit
from holdproof.model.records import AuditEvent

_LONGEST_ID: Final = 120
_REMEMBERED: Final = 500
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class HookEvent:
    """An event of a coding agent, as a hook numbered it."""

    tool: str
    agent_id: str
    ns: str
    session: str
    n: int
    at: str
    gate: bool
    cwd: str
    event: Mapping[str, Any]
    subject: str | None = None
    """The person whose session it is."""

    @property
    def flow_id(self) -> str:
        """The flow of the event's session."""
        name = f"{self.tool}.{self.session}"
        if len(name) <= _LONGEST_ID and name.isprintable():
            return name
        return f"{self.tool}.{hashlib.sha256(self.session.encode('utf-8', 'replace')).hexdigest()}"


def parse(message: Mapping[str, Any]) -> HookEvent:
    """Return the event of a hook's message."""
    at = _EPOCH + timedelta(microseconds=int(message["at"]) // 1000)
    event = captured.plain(message["event"])
    return HookEvent(
        str(message["tool"]),
        str(message["agent"]),
        str(message["ns"]),
        str(message["session"]),
        int(message["n"]),
        at.isoformat(timespec="microseconds").replace("+00:00", "Z"),
        bool(message["gate"]),
        str(message["cwd"]),
        event,
        str(message["subject"]) if message.get("subject") else None,
    )


@dataclass
class Session:
    """What the recorder knows of a session that goes on."""

    numbers: Numbers = field(default_factory=Numbers)
    waiting: dict[str, str] = field(default_factory=dict)
    """Calls without a result yet, by id; the name of the tool."""
    open_questions: dict[str, int] = field(default_factory=dict)
    """Escalations of calls about which the agent asks its user, by call."""
    head: str | None = None
    """The commit that the work tree stood at."""
    calls: set[str] = field(default_factory=set)
    """Ids of the calls that were seen, to compare with the agent's transcript."""
    checked: int | None = None
    """How much of the agent's transcript was compared."""
    ns: str = "main"


def load(tx: Tx, flow_id: str, *, ns: str) -> Session:
    """Return what is known of a session, from its newest events."""
    session = Session(ns=ns)
    events = audit.list(tx, flow_id=flow_id, limit=_REMEMBERED, ns=ns).items
    moments: dict[int, str] = {}
    declared: list[tuple[int, int]] = []
    for event in reversed(events):
        detail = event.detail if isinstance(event.detail, dict) else {}
        if isinstance(detail.get("n"), int):
            moments[detail["n"]] = str(detail.get("at"))
        declared += [(first, last) for first, last in detail.get("missing", [])]
        session.head = detail.get("head", session.head)
        session.checked = detail.get("transcript", session.checked)
        _remember(session, event.event_type, event.step_id, detail)
    session.numbers = Numbers(moments, declared)
    return session


def _remember(session: Session, kind: str, call_id: str, detail: Mapping[str, Any]) -> None:
    key = str(detail.get("call") or call_id)
    if kind == tools.CALL:
        session.calls.add(call_id)
        session.waiting[key] = str(detail.get("name", ""))
        decision = detail.get("decision") or {}
        if decision.get("decision") == "ask" and decision.get("asked_in") == "agent":
            session.open_questions[key] = int(decision["escalation"])
    elif kind in {tools.RESULT, tools.FAILURE}:
        session.calls.add(call_id)
        session.waiting.pop(key, None)
        session.open_questions.pop(key, None)


def key_of(call: tools.AgentCall) -> str:
    """Return what ties the events of one call together: its id, or its name and arguments where there is none."""
    if call.id:
        return call.id
    text = json.dumps([call.name, call.arguments], sort_keys=True, default=str)
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:32]


def record(
    tx: Tx,
    event: HookEvent,
    *,
    arrival: str,
    decision: Mapping[str, Any] | None,
    head: str | None,
    facts: Mapping[str, Any],
) -> AuditEvent:
    """Write an event of a session with the file changes that it reports; open and close the session's flow."""
    flow_id = event.flow_id
    captured.open_session(tx, event.agent_id, flow_id, flow_type=event.tool, subject=event.subject, ns=event.ns)
    kind = tools.kind_of(event.tool, event.event)
    call = tools.call_of(event.tool, event.event)
    if arrival == RESTARTED:
        reason = "the counter of this session began again: events before this one may be missing"
        captured.note(tx, flow_id, captured.GAP, {"reason": reason, "before": event.n}, severity="WARNING", ns=event.ns)
    detail = {"n": event.n, "at": event.at, "cwd": event.cwd, **facts}
    if call is not None:
        detail |= {"name": call.name, "call": key_of(call)}
    if decision is not None:
        detail["decision"] = decision
    if head is not None:
        detail["head"] = head
    if arrival == LATE:
        detail["late"] = True
    detail["event"] = event.event
    severity = "WARNING" if decision is not None and decision["decision"] == "deny" else "INFO"
    step_id = "" if call is None else call.id
    written = captured.note(tx, flow_id, kind, detail, severity=severity, step_id=step_id, ns=event.ns)
    for change in _located(event, tools.changes(event.tool, event.event)):
        cause = {"of": written.id, "head": head}
        captured.note(tx, flow_id, tools.EDIT, {**cause, **change}, step_id=step_id, ns=event.ns)
    if kind == tools.SESSION_ENDED:
        captured.close_session(tx, flow_id, reason=str(event.event.get("reason") or "the session ended"), ns=event.ns)
    return written


def _located(event: HookEvent, changes: Sequence[tools.FileChange]) -> list[dict[str, Any]]:
    """Return changes with their files named from the top of their repositories."""
    located: list[dict[str, Any]] = []
    for change in changes:
        path = os.path.realpath(os.path.join(event.cwd, change.path))
        root = git.root_of(os.path.dirname(path))
        relative = path if root is None else os.path.relpath(path, root)
        located.append({"path": relative, "root": root, "added": change.added, "removed": change.removed})
    return located


def settle(session: Session, event: HookEvent, written: AuditEvent, head: str | None) -> None:
    """Update what is known of a session by an event that was recorded."""
    _remember(session, written.event_type, written.step_id, written.detail)
    session.head = head or session.head
    session.ns = event.ns
