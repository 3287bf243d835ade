"""One run of a recorder that lives inside another process: the MCP proxy, or a program under `instrument()`.

Rules:
- A run is a flow of its own. Its events are numbered 1, 2, 3 … in the order in which they were seen, so a hole shows.
- It begins with `recorder.started` and ends with `recorder.stopped`. A run whose process died without that is told of,
  and its flow ended, by the next run of the same agent on the same machine. So is the flow of a run whose person was
  erased, of which nobody can say any more which process it was.
- A store that is lost stops nothing by itself: `record` says False, and the caller decides. The next event that can be
  written is preceded by a `recorder.gap` with how many were not, and of which kinds.
"""

import contextlib
import os
import socket
import threading
from collections import Counter
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from holdproof import sync
from holdproof.adapters import captured
from holdproof.errors import HoldproofError
from holdproof.kernel import MAIN, Tx, audit

_EARLIER: Final = 50
"""How many earlier runs are looked at."""


class CaptureRun:
    """A run of a recorder; safe to use from several threads."""

    def __init__(
        self, store: sync.Holdproof, *, agent_id: str, kind: str, subject: str | None = None, ns: str = MAIN
    ) -> None:
        """Record for an agent what a recorder of this kind sees; `start` opens the flow, a person's with `subject`."""
        self.store = store
        self.agent_id = agent_id
        self.kind = kind
        self.subject = subject
        self.ns = ns
        self.flow_id = ""
        self._lock = threading.Lock()
        self._n = 0
        self._skipped: Counter[str] = Counter()
        self._error = ""

    def start(self, detail: Mapping[str, Any]) -> str:
        """Open the flow of this run and return its id; earlier runs that died are ended first."""
        with contextlib.suppress(HoldproofError):
            self._end_the_dead()
        facts = {**detail, "pid": os.getpid(), "host": socket.gethostname()}

        def write(tx: Tx) -> str:
            flow_id = f"{self.kind}.{tx.new_id()}"
            options: dict[str, Any] = {"flow_type": self.kind, "subject": self.subject, "ns": self.ns}
            captured.open_session(tx, self.agent_id, flow_id, **options)
            captured.note(tx, flow_id, captured.STARTED, facts, ns=self.ns)
            return flow_id

        self.flow_id = self.store.write(write)
        return self.flow_id

    def record(self, event_type: str, detail: Mapping[str, Any], *, severity: str = "INFO", step_id: str = "") -> bool:
        """Write an event; return whether it is under the log."""
        with self._lock:
            self._n += 1
            facts = {"n": self._n, **detail}
            skipped = dict(self._skipped)

            def write(tx: Tx) -> None:
                if skipped:
                    captured.note(tx, self.flow_id, captured.GAP, self._gap(skipped), severity="WARNING", ns=self.ns)
                captured.note(tx, self.flow_id, event_type, facts, severity=severity, step_id=step_id, ns=self.ns)

            try:
                self.store.write(write)
            except HoldproofError as error:
                self._skipped[event_type] += 1
                self._error = f"{error.code}: {error.message}"
                return False
            self._skipped.clear()
            return True

    def _gap(self, skipped: Mapping[str, int]) -> dict[str, Any]:
        count = sum(skipped.values())
        numbers = [self._n - count, self._n - 1]
        return {"missing": [numbers], "kinds": dict(skipped), "reason": f"{count} events not written: {self._error}"}

    @property
    def unwritten(self) -> int:
        """How many events could not be written since the last that could."""
        return sum(self._skipped.values())

    def stop(self, reason: str) -> None:
        """Say that recording ends, and end the flow; a store that is lost leaves that to the next run."""
        with contextlib.suppress(HoldproofError):
            skipped = dict(self._skipped)

            def write(tx: Tx) -> None:
                if skipped:
                    self._n += 1
                    captured.note(tx, self.flow_id, captured.GAP, self._gap(skipped), severity="WARNING", ns=self.ns)
                captured.note(tx, self.flow_id, captured.STOPPED, {"reason": reason, "events": self._n}, ns=self.ns)
                captured.close_session(tx, self.flow_id, reason=reason, ns=self.ns)

            self.store.write(write)

    def _end_the_dead(self) -> None:
        """End the flows of earlier runs on this machine whose processes are gone."""
        options: dict[str, Any] = {"agent_id": self.agent_id, "status": "RUNNING", "limit": _EARLIER, "ns": self.ns}
        for flow in self.store.flows.list(**options).items:
            if flow.flow_type == self.kind:
                self.store.write(partial(self._end_if_dead, flow_id=flow.flow_id))

    def _end_if_dead(self, tx: Tx, *, flow_id: str) -> None:
        starts = audit.list(tx, flow_id=flow_id, event_type=captured.STARTED, limit=1, ns=self.ns).items
        detail = starts[0].detail if starts else {}
        if "$erased" in detail:
            # Which process it was went with the person. One that still runs goes on recording, as after any end.
            captured.close_session(tx, flow_id, reason="its person was erased", ns=self.ns)
            return
        if detail.get("host") != socket.gethostname() or _is_alive(int(detail.get("pid", 0))):
            return
        reason = "its process ended without saying so: what it saw last may be missing"
        captured.note(tx, flow_id, captured.DIED, {"reason": reason}, severity="WARNING", ns=self.ns)
        captured.close_session(tx, flow_id, reason=reason, ns=self.ns)


def _is_alive(pid: int) -> bool:
    if pid == os.getpid():
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return pid > 0
