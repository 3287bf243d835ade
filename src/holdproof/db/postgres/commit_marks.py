"""Commit marks: every commit stores a mark of its worker, so that a lost commit is noticed.

Rules:
- A commit replaces the mark of the same worker's last acknowledged commit. Where that mark is not stored, the server
  has lost a commit that it acknowledged: it was set back, or a standby was promoted that had not received all of it.
- After a reconnect the marks of all workers of this process are compared, also of those that are idle.
- A database that lost a commit is refused until it is opened anew: nothing is written that would not continue what
  this process has acknowledged.
"""

import sys
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from typing import Final

from holdproof.db.postgres.wire import Wire
from holdproof.db.sql import sql_postgres
from holdproof.errors import ConnectionLostError, HistoryLostError, HoldproofError, OutcomeUnknownError

# Marks of workers that are gone are deleted after seven days (backend.py); one that idled nearly as long begins anew.
_FORGOTTEN_S: Final = 6 * 86_400.0
# How often the outcome of a commit is asked for when the connection keeps breaking.
_OUTCOME_ATTEMPTS: Final = 5

_BEGIN = sql_postgres(
    "INSERT INTO commit_marks (worker, mark, at) VALUES (:worker, :mark, now())"
    " ON CONFLICT (worker) DO UPDATE SET mark = excluded.mark, at = excluded.at"
)
_REPLACE = sql_postgres("UPDATE commit_marks SET mark = :mark, at = now() WHERE worker = :worker AND mark = :last")
_GET = sql_postgres("SELECT mark FROM commit_marks WHERE worker = :worker FOR UPDATE")
_GET_ALL = sql_postgres("SELECT worker, mark FROM commit_marks WHERE starts_with(worker, :prefix)")


def _now() -> float:
    """Return seconds on a clock that goes on while the machine is suspended, where there is one."""
    if sys.platform == "linux":
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


class ProcessMarks:
    """The last acknowledged mark of every worker of one open database; shared by their threads."""

    def __init__(self, on_lost: Sequence[Callable[[HistoryLostError], None]] = ()) -> None:
        self._prefix = f"holdproof-{uuid.uuid4()}"
        self._on_lost = on_lost
        self._lock = threading.Lock()
        self._acknowledged: dict[str, tuple[str, float]] = {}
        self._count = 0
        self._lost = ""

    @property
    def prefix(self) -> str:
        """How the names of its workers begin, and those of no other process."""
        return self._prefix

    def new_worker(self) -> "WorkerMark":
        """Return the mark of one more worker."""
        with self._lock:
            self._count += 1
            return WorkerMark(self, f"{self._prefix}-{self._count}")

    def refuse_lost(self) -> None:
        """Raise HistoryLostError if a commit of this process is known to be lost."""
        if self._lost:
            raise HistoryLostError(self._lost)

    def lose(self, worker: str) -> HistoryLostError:
        """Remember that the server lost a commit of that worker, tell the hooks once, and return the error."""
        what = f"the server no longer has the last commit that it acknowledged to {worker}"
        with self._lock:
            first = not self._lost
            self._lost = self._lost or what
        error = HistoryLostError(self._lost)
        for hook in self._on_lost if first else ():
            hook(error)
        return error

    def acknowledge(self, worker: str, mark: str | None) -> None:
        """Record the mark that must be stored for a worker; None while its commit is under way."""
        with self._lock:
            self._acknowledged.pop(worker, None)
            if mark is not None:
                self._acknowledged[worker] = (mark, _now())

    def check(self, wire: Wire) -> None:
        """Compare the marks of all workers that are not committing at this moment."""
        before = self._snapshot()
        wire.send(_GET_ALL, {"prefix": self._prefix})
        stored = {str(worker): str(mark) for worker, mark in wire.sync()}
        after = self._snapshot()
        for worker, (mark, at) in before.items():
            # The sweep of another process may have removed the mark of a worker that was idle for so long.
            if worker not in stored and _now() - at > _FORGOTTEN_S:
                continue
            # A worker that committed meanwhile looks at its own mark; what was read here may be older than that.
            if after.get(worker) == (mark, at) and stored.get(worker) != mark:
                raise self.lose(worker)

    def _snapshot(self) -> dict[str, tuple[str, float]]:
        with self._lock:
            return dict(self._acknowledged)


class WorkerMark:
    """The mark of one worker's commits."""

    def __init__(self, process: ProcessMarks, worker: str) -> None:
        self.worker = worker
        self._process = process
        self._last = ""
        self._unknown: set[str] = set()
        self._stored_at = _now()

    def refuse_lost(self) -> None:
        """See ProcessMarks."""
        self._process.refuse_lost()

    def begin(self, wire: Wire) -> None:
        """Store the first mark of this worker, over its first connection.

        That may come long after those of its neighbours, and from another server by then, so their marks are compared
        first, as after a reconnect.
        """
        self._process.check(wire)
        wire.send(_BEGIN, {"worker": self.worker, "mark": ""}, expect=1)
        wire.sync()
        self._acknowledged("")

    def send(self, wire: Wire) -> str:
        """Queue the new mark as part of the transaction that is about to commit; return it."""
        mark = str(uuid.uuid4())
        if _now() - self._stored_at > _FORGOTTEN_S:
            wire.send(_BEGIN, {"worker": self.worker, "mark": mark}, expect=1)
        else:
            row = {"worker": self.worker, "mark": mark, "last": self._last}
            wire.send(_REPLACE, row, 1, lambda _: self._process.lose(self.worker))
        self._process.acknowledge(self.worker, None)
        self._unknown.add(mark)
        return mark

    def committed(self, mark: str) -> None:
        """Record that the commit with this mark is durable."""
        self._acknowledged(mark)

    def abandoned(self) -> None:
        """Record that the transaction was not committed: the last mark is still the one to be stored."""
        self._process.acknowledge(self.worker, self._last)

    def _acknowledged(self, mark: str) -> None:
        self._last = mark
        self._unknown.clear()
        self._stored_at = _now()
        self._process.acknowledge(self.worker, mark)

    def reconnected(self, wire: Wire) -> None:
        """Check over a new connection that nothing this process was told is lost; HistoryLostError otherwise."""
        self._acknowledged(self._read(wire))
        self._process.check(wire)

    def _read(self, wire: Wire) -> str:
        """Return the stored mark: of the last acknowledged commit, or of one whose outcome was unknown."""
        wire.send(_GET, {"worker": self.worker})  # FOR UPDATE: waits for a commit that is still under way there
        stored = next((str(mark) for (mark,) in wire.sync()), None)
        if stored is None or (stored != self._last and stored not in self._unknown):
            if stored is None and _now() - self._stored_at > _FORGOTTEN_S:
                return self._last
            raise self._process.lose(self.worker)
        return stored

    def outcome(self, connect: Callable[[], Wire], mark: str, error: ConnectionLostError) -> None:
        """Find out whether a commit succeeded whose connection broke: it did if its mark is stored.

        Returns if it did, raises `error` if not, OutcomeUnknownError if the mark cannot be read.
        """
        for attempts_left in reversed(range(_OUTCOME_ATTEMPTS)):  # a restarting server may disconnect more than once
            try:
                stored = self._read(connect())
            except HistoryLostError:
                raise
            except HoldproofError as trouble:
                if attempts_left and isinstance(trouble, ConnectionLostError):
                    continue
                raise OutcomeUnknownError(f"the connection broke during commit: {error}") from trouble
            self._acknowledged(stored)
            if stored != mark:
                raise error
            return
