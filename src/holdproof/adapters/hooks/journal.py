"""The recorder's own entries: that it started, stopped, died, lost its store, or missed events.

They are events of a flow of the recorder, one for each machine, so that the time in which nothing was recorded can be
told from the time in which nothing happened.
"""

import os
import socket
from typing import Any, Final

from holdproof import sync
from holdproof.adapters import captured
from holdproof.kernel import MAIN, Tx, audit

AGENT: Final = "holdproof.recorder"
_TYPE: Final = "recorder"


class Journal:
    """What a recorder says about itself."""

    def __init__(self, store: sync.Holdproof, kind: str) -> None:
        """Write about the recorder of one kind, as `hooks`, on this machine."""
        self._store = store
        self.flow_id = f"recorder.{kind}.{socket.gethostname()}"

    def started(self, waiting: int) -> None:
        """Record a start; where the last recorder never said that it stopped, that too."""

        def write(tx: Tx) -> None:
            captured.open_session(tx, AGENT, self.flow_id, flow_type=_TYPE)
            last = audit.list(tx, flow_id=self.flow_id, limit=1).items
            if last and last[0].event_type != captured.STOPPED:
                died = {"reason": "the recorder before this one did not stop in order", "last": last[0].created_at}
                captured.note(tx, self.flow_id, captured.DIED, died, severity="WARNING")
            facts = {"pid": os.getpid(), "waiting": waiting}
            captured.note(tx, self.flow_id, captured.STARTED, facts)

        self._store.write(write)

    def note(self, event_type: str, detail: dict[str, Any], *, severity: str = "INFO") -> None:
        """Record something else about the recorder."""

        def write(tx: Tx) -> None:
            captured.open_session(tx, AGENT, self.flow_id, flow_type=_TYPE)
            captured.note(tx, self.flow_id, event_type, detail, severity=severity)

        self._store.write(write)

    def gap(self, flow_id: str, ranges: list[tuple[int, int]], *, ns: str = MAIN) -> None:
        """Record in a session that events with these numbers never came."""
        count = sum(last - first + 1 for first, last in ranges)
        reason = f"{count} events were numbered by a hook and never came"
        detail = {"missing": [[first, last] for first, last in ranges], "reason": reason}
        self._store.write(lambda tx: captured.note(tx, flow_id, captured.GAP, detail, severity="WARNING", ns=ns))
