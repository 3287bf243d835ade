"""The recorder: writes what hooks hand to it into a store that is open.

Rules:
- It answers a hook after the commit, or says that it could not write; the hook then puts the event into the spool.
- Events of the spool are written in the order in which they were seen, each once: what was written before a crash is
  known by its number.
- It stays while its store is lost, and tries again; how long that was becomes an entry.
"""

import contextlib
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from holdproof import sync
from holdproof.adapters import captured
from holdproof.adapters.hooks import client, gate, git, provenance, sessions, tools, transcript
from holdproof.adapters.hooks.journal import Journal
from holdproof.adapters.hooks.numbers import DUPLICATE
from holdproof.adapters.hooks.sessions import HookEvent, Session
from holdproof.errors import HoldproofError

_AGAIN_S: Final = 5.0
"""How long a store that is lost is left alone."""


class Recorder:
    """Writes events of hooks into a store that is open."""

    def __init__(self, store: sync.Holdproof, state: Path) -> None:
        self._store = store
        self._spool = state / client.SPOOL
        self._error = state / client.ERROR
        self._journal = Journal(store, "hooks")
        self._sessions: dict[tuple[str, str], Session] = {}
        self._lost: dict[str, Any] | None = None
        self._again = 0.0
        self.count = 0

    def start(self) -> None:
        """Say that recording goes on, and write what waited for it."""
        self._journal.started(len(self.waiting()))
        self._error.unlink(missing_ok=True)
        self.drain()

    def stop(self, reason: str) -> None:
        """Write what still waits, and say that recording ends."""
        with contextlib.suppress(HoldproofError):
            self.drain()
            self.look(final=True)
            self._journal.note(captured.STOPPED, {"reason": reason, "events": self.count})

    def handle(self, message: dict[str, Any]) -> dict[str, Any]:
        """Write an event; return the answer to its hook."""
        try:
            event = sessions.parse(message)
            decision = self._write(event)
        except HoldproofError as error:
            self._lose(error)
            answer: dict[str, Any] = {"recorded": False, "error": f"{error.code}: {error.message}"}
            unasked = {"decision": "ask", "reason": "Holdproof could not record this call, and policies are to decide"}
            return answer | self._words(message, unasked)
        except (KeyError, TypeError, ValueError) as error:
            return {"recorded": False, "error": f"not an event: {type(error).__name__}: {error}"}
        self._regain()
        return {"recorded": True} | self._words(message, decision)

    def _words(self, message: dict[str, Any], decision: dict[str, Any] | None) -> dict[str, Any]:
        if decision is None or not message.get("gate"):
            return {}
        tool = str(message["tool"])
        event = message["event"]
        if tools.kind_of(tool, event) != tools.CALL:
            return {}
        reason = gate.words(decision) if decision["decision"] in {"deny", "ask"} else ""
        return {"stdout": tools.answer(tool, event, decision["decision"], reason)}

    def _write(self, event: HookEvent) -> dict[str, Any] | None:
        """Write an event with what follows from it; return what policies decided about its call."""
        session = self._session(event)
        arrival = session.numbers.arrival(event.n, event.at)
        if arrival == DUPLICATE:
            return None
        kind = tools.kind_of(event.tool, event.event)
        call = tools.call_of(event.tool, event.event)
        decision = gate.decide(self._store, event, call) if event.gate and kind == tools.CALL and call else None
        shell_result = kind == tools.RESULT and call is not None and tools.is_shell(call)
        changed = bool(tools.changes(event.tool, event.event))
        head = git.head_of(event.cwd) if shell_result or changed or kind == tools.SESSION_STARTED else None
        head_before = session.head
        escalation = None if call is None else session.open_questions.get(sessions.key_of(call))
        facts = self._compared(session, event, kind)
        written = self._store.write(
            lambda tx: sessions.record(tx, event, arrival=arrival, decision=decision, head=head, facts=facts)
        )
        session.numbers.take(event.n, event.at, time.monotonic())
        sessions.settle(session, event, written, head)
        self.count += 1
        self._follow(session, event, kind, call, escalation)
        if shell_result and head is not None and head_before not in (None, head):
            self._committed(event, head)
        return decision

    def _follow(
        self, session: Session, event: HookEvent, kind: str, call: tools.AgentCall | None, escalation: int | None
    ) -> None:
        """Settle what policies asked about, now that the call has happened or never will."""
        # What went wrong here was recorded nowhere else; the event itself is written.
        with self._reporting(event):
            if escalation is not None and call is not None and kind in {tools.RESULT, tools.FAILURE}:
                gate.approved_in_agent(self._store, event, call, escalation)
            if kind == tools.SESSION_ENDED:
                for number in session.open_questions.values():
                    gate.cancel(self._store, number, tool=event.tool, ns=event.ns)
                session.open_questions.clear()

    def _compared(self, session: Session, event: HookEvent, kind: str) -> dict[str, Any]:
        """Compare the agent's transcript with what hooks reported; return what the event says of it."""
        path = event.event.get("transcript_path")
        if event.tool != tools.CLAUDE or not isinstance(path, str):
            return {}
        if session.checked is None:
            # From here on: what was before the first event of this session was never promised.
            session.checked = transcript.size(path) or 0
            return {"transcript": session.checked}
        if kind not in {tools.TURN_ENDED, tools.SESSION_ENDED}:
            return {}
        comparison = transcript.compare(path, session.checked, session.calls)
        if comparison is None:
            return {}
        if comparison.unseen:
            reason = f"{len(comparison.unseen)} calls stand in the agent's transcript, and no hook reported them"
            detail = {"reason": reason, "unseen": comparison.unseen}
            self._store.write(
                lambda tx: captured.note(tx, event.flow_id, captured.GAP, detail, severity="WARNING", ns=event.ns)
            )
        session.checked = comparison.read
        return {"transcript": comparison.read}

    def _committed(self, event: HookEvent, head: str) -> None:
        """Record which events the hunks of a new commit come from."""
        with self._reporting(event):
            detail = provenance.blame(self._store, event.cwd, head, ns=event.ns).to_dict()
            self._store.write(lambda tx: captured.note(tx, event.flow_id, tools.COMMIT, detail, ns=event.ns))

    @contextlib.contextmanager
    def _reporting(self, event: HookEvent) -> Iterator[None]:
        try:
            yield
        except HoldproofError as error:
            detail = {"error": error.code, "message": error.message, "n": None}
            self._store.write(
                lambda tx: captured.note(tx, event.flow_id, "recorder.failed", detail, severity="WARNING", ns=event.ns)
            )

    def _session(self, event: HookEvent) -> Session:
        key = (event.flow_id, event.ns)
        session = self._sessions.get(key)
        if session is None:
            session = self._store.read(lambda tx: sessions.load(tx, event.flow_id, ns=event.ns))
            self._sessions[key] = session
        return session

    # --- what waits, and what is missing -------------------------------------------------------------------------

    def waiting(self) -> list[Path]:
        """Return the events in the spool, oldest first."""
        return sorted(self._spool.glob("*.json"))

    def drain(self) -> None:
        """Write what waits in the spool; the first that cannot be written ends it."""
        for path in self.waiting():
            try:
                message = json.loads(path.read_bytes())
            except (OSError, ValueError):
                path.rename(path.with_suffix(".damaged"))
                self._journal.note(
                    captured.GAP, {"reason": "a spooled event is damaged", "file": path.name}, severity="WARNING"
                )
                continue
            # Policies decide before a call; this one has happened, or not.
            answer = self.handle(message | {"gate": False})
            if answer["recorded"]:
                path.unlink(missing_ok=True)
            elif self._lost is not None:
                return
            else:
                path.rename(path.with_suffix(".damaged"))

    def look(self, *, final: bool = False) -> None:
        """Record numbers that have not come in time; at the end of the recorder all that have not come."""
        now = float("inf") if final else time.monotonic()
        for (flow_id, ns), session in self._sessions.items():
            ranges = session.numbers.overdue(now)
            if ranges:
                self._journal.gap(flow_id, ranges, ns=ns)
                session.numbers.declare(ranges)

    def tick(self) -> None:
        """Do what is due while no event comes."""
        if time.monotonic() < self._again:
            return
        try:
            self.drain()
            if self._lost is None:
                self.look()
        except HoldproofError as error:
            self._lose(error)

    def _lose(self, error: HoldproofError) -> None:
        self._again = time.monotonic() + _AGAIN_S
        if self._lost is None:
            self._lost = {"since": _moment(), "error": error.code, "message": error.message}
        with contextlib.suppress(OSError):
            self._error.write_text(f"{error.code}: {error.message}\n", encoding="utf-8")

    def _regain(self) -> None:
        if self._lost is not None:
            detail = {**self._lost, "until": _moment()}
            self._journal.note(captured.STORE_LOST, detail, severity="WARNING")
            self._lost = None
            self._error.unlink(missing_ok=True)


def _moment() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
