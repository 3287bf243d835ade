"""Group commit: many operations, one durable commit.

Rules:
- A caller gets its result only after the commit that contains its work.
- A failing operation never harms its neighbours. Optimistic: a group runs without savepoints; an operation that raises
  before it wrote costs nothing; one that raises after a write makes the group roll back and run again with a savepoint
  each; if the commit itself or a commit hook fails, every operation runs again alone.
- Operations can therefore run more than once; only one run is ever committed.
- An error that is not the operation's fault (a deadlock, a connection lost before the commit) is retried, bounded.
"""

import logging
import random
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from holdproof.db.tx import Flows, Notes, Refused, Tx, Use
from holdproof.db.worker_pool import ONCE, SERIALIZABLE, UNGATED, Job, deliver
from holdproof.errors import HistoryLostError, HoldproofError, OutcomeUnknownError

_log = logging.getLogger("holdproof.db")

# A commit slower than this makes it worth waiting for more callers to join the group.
_SLOW_COMMIT_S = 0.0003
# After a group had to be re-run with savepoints, this many groups use them from the start.
_SAVEPOINT_GROUPS = 32
_LARGEST_GROUP = 512


class Access(NamedTuple):
    """Somebody was given content: persons' content that was opened for them, or an export."""

    kind: str
    """`read` or `export`."""
    who: str
    what: str
    """The method, as `flows.get`."""
    target: str
    """Of a read the subject, by handle; of an export what was exported."""
    ns: str


class UseRecorder(Protocol):
    """What notes, in a transaction, what the steps of some flows used."""

    def __call__(self, tx: Tx, flows: Flows, used: frozenset[Use]) -> None:
        """Note it."""
        ...


class AccessRecorder(Protocol):
    """What keeps a log of accesses; none of its methods raises."""

    def record(self, access: Access) -> Callable[[Tx], None] | None:
        """Return the write that records an access, None where one that stands for it is recorded or under way."""
        ...

    def forget(self, access: Access) -> None:
        """Say that a write of `record` failed: the next access like it is recorded."""
        ...


@dataclass
class Hooks:
    """Functions of upper layers that run around operations and commits: the lockdown gate, the log, wake-ups."""

    gate: list[Callable[[Tx], None]] = field(default_factory=list)
    """Called before each operation; raising refuses it. Ungated jobs pass."""
    on_note: dict[str, Callable[[Tx, list[Any]], None]] = field(default_factory=dict)
    """Called inside the group's transaction, before `before_commit`, with all values noted under the topic (`tx.note`).

    Groups without such a note pay nothing for it: this is the place for rare events, like a new subject or a migration.
    """
    before_commit: list[Callable[[Tx], None]] = field(default_factory=list)
    """Called once a group, inside its transaction, after all operations; raising rolls back."""
    after_commit: list[Callable[[Notes], None]] = field(default_factory=list)
    """Called once a group is durable, before its callers get their results; must not raise."""
    history_lost: list[Callable[[HistoryLostError], None]] = field(default_factory=list)
    """Called once, on any thread, when the database turns out to have lost acknowledged commits; must not raise."""
    accesses: "AccessRecorder | None" = None
    """Records that somebody was given content; None where no log is kept."""
    uses: "UseRecorder | None" = None
    """Notes what the steps of flows use of memory; None where no flows run."""
    on_borrowed: list[Callable[[Tx], None]] = field(default_factory=list)
    """Called in place of `after_commit` inside a transaction that its caller commits: to notify others by it."""

    def run_commit_hooks(self, tx: Tx) -> None:
        """Run the hooks that belong to a transaction; what they note counts like an operation's notes."""
        for topic, handler in self.on_note.items():
            if topic in tx.notes:
                handler(tx, tx.notes[topic])
                # At once: a handler's notes must be visible to `before_commit`, where the log collects new leaves.
                tx.accept_notes()
        for hook in self.before_commit:
            hook(tx)
            tx.accept_notes()


class WriteConnection(Protocol):
    """The contract of a database connection that the group writer uses from its thread."""

    @property
    def tx(self) -> Tx:
        """The transaction that operations are called with; one object, reset for each group."""
        ...

    def begin(self, *, serializable: bool, together: bool) -> None:
        """Start a transaction, reconnecting or waiting for the lock within bounds.

        `together` says that several jobs share it.
        """
        ...

    def settle(self) -> None:
        """Wait for every pipelined statement; raises the first failure."""
        ...

    def commit(self) -> None:
        """Wait for every statement, then make all durable; OutcomeUnknownError only if the outcome cannot be read."""
        ...

    def rollback(self) -> None:
        """Undo everything since begin; must not raise, harmless without a transaction."""
        ...

    def savepoint(self) -> None:
        """Set the savepoint."""
        ...

    def release(self) -> None:
        """Remove the savepoint and keep the work done since."""
        ...

    def restore(self) -> bool:
        """Roll back to the savepoint; False if the whole transaction is lost."""
        ...

    def mark(self) -> int:
        """Return a position that `wrote` compares with."""
        ...

    def wrote(self, mark: int) -> bool:
        """Return whether anything was written, or the transaction broken, since that position."""
        ...

    def retryable(self, error: BaseException, *, together: bool) -> bool:
        """Return whether the error is not the operation's fault, so that it may simply run again."""
        ...

    def tidy(self) -> None:
        """Do housekeeping after callers have their results; must not raise."""
        ...

    def close(self) -> None:
        """Close the connection."""
        ...


class RetryWithSavepoints(Exception):
    """A failed operation had written: roll the group back and run it again with savepoints."""


class Contention(Exception):
    """Another transaction was in the way, or the connection broke: not the operation's fault."""


class GroupWriter:
    """The worker that turns batches of jobs into commits."""

    def __init__(self, connection: WriteConnection, hooks: Hooks, *, retries: int = 10) -> None:
        self.connection = connection
        self.hooks = hooks
        self.progress = 0
        self._retries = retries
        self._commit_times: deque[float] = deque([0.0], maxlen=16)
        self._usual_group = 1.0
        self._savepoint_groups_left = 0
        self._group_limit = _LARGEST_GROUP

    def pause_s(self, waiting: int) -> float:
        """Return how long to wait for more callers: worthwhile if commits are slow and groups are usually larger."""
        fastest = min(self._commit_times)
        if fastest < _SLOW_COMMIT_S or waiting >= 0.9 * self._usual_group:
            return 0.0
        return min(fastest / 8, 0.0005)

    def handle(self, jobs: list[Job[Any]]) -> list[Job[Any]]:
        """Run a batch as one group, or as many as its failures require, then deliver every result."""
        together: list[Job[Any]] = []
        serializable: list[Job[Any]] = []
        for job in filter(Job.claim, jobs):
            (serializable if job.flags & SERIALIZABLE else together).append(job)
        self._usual_group += (len(together) + len(serializable) - self._usual_group) / 8
        if together:
            self._run_in_groups(together)
            for job in together:
                if job.error is not None:
                    self._record_refusal(job)
            deliver(together)
        for job in serializable:
            # One of these may be a long transaction fed from outside: each is delivered as soon as it ends.
            self._run_alone(job)
            self._record_refusal(job)
            deliver([job])
        self.connection.tidy()
        return []

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()

    def _record_refusal(self, job: Job[Any]) -> None:
        """Record a refusal (`HoldproofError.record`) before its caller hears of it.

        One that cannot be recorded is delivered as that error: the act was rolled back, whichever it is.
        """
        error = job.error
        if isinstance(error, HoldproofError) and error.record is not None:
            recording = Job(error.record, job.sink, job.future, job.flags)
            self._run_alone(recording)
            if recording.error is not None:
                job.fail(recording.error)

    def _run_in_groups(self, jobs: list[Job[Any]]) -> None:
        """Run jobs in as few transactions as possible; the group limit shrinks while groups meet contention."""
        start = 0
        while group := jobs[start : start + self._group_limit]:
            start += len(group)
            if len(group) == 1 or not self._run_together(group):
                for job in group:
                    self._run_alone(job)

    def _run_together(self, jobs: list[Job[Any]]) -> bool:
        """Return whether the group was carried out in one transaction; else each job must run alone."""
        savepoints_first = self._savepoint_groups_left > 0
        self._savepoint_groups_left = max(0, self._savepoint_groups_left - 1)
        for savepoints in (savepoints_first, True):
            try:
                self._commit_group(jobs, savepoints=savepoints)
            except Contention:
                # Large groups hold locks longer, so they collide more: be small for a while.
                self._group_limit = max(2, self._group_limit // 4)
                return False
            except RetryWithSavepoints:
                self._savepoint_groups_left = _SAVEPOINT_GROUPS
                if savepoints:
                    return False
            except OutcomeUnknownError as error:
                _fail_all(jobs, error)
                return True
            except Exception:
                _log.debug("a group failed as a whole; each operation runs alone", exc_info=True)
                return False
            else:
                self._group_limit = min(_LARGEST_GROUP, self._group_limit + 1)
                return True
        return False

    def _run_alone(self, job: Job[Any]) -> None:
        """Run one operation in a transaction of its own, retrying errors that are not its fault."""
        for attempt in range(self._retries + 1):
            try:
                self._commit_group([job], savepoints=False)
            except (RetryWithSavepoints, Contention):
                pass  # job.error says why; there is no neighbour to protect
            except Exception as error:
                _fail_all([job], error)
            else:
                return
            assert job.error is not None
            last = attempt == self._retries or job.flags & ONCE
            if last or not self.connection.retryable(job.error, together=False):
                return
            time.sleep(random.uniform(0, min(0.5, 0.002 * 2**attempt)))  # noqa: S311 (jitter, not a secret)

    def _commit_group(self, jobs: list[Job[Any]], *, savepoints: bool) -> None:
        """Run these jobs in one transaction; their results are filled in, but not delivered yet.

        Raises RetryWithSavepoints, Contention, or what a hook or the commit raised; nothing is written then.
        """
        connection = self.connection
        tx = connection.tx
        tx.reset()
        try:
            connection.begin(serializable=bool(jobs[0].flags & SERIALIZABLE), together=len(jobs) > 1)
        except Exception as error:  # no lock, no server: nothing ran, so no job in particular is at fault
            if connection.retryable(error, together=False):
                raise
            return _fail_all(jobs, error)
        try:
            if not self._run_operations(jobs, savepoints=savepoints):
                return connection.rollback()
            self.hooks.run_commit_hooks(tx)
            began = time.perf_counter()
            connection.commit()
            self._commit_times.append(time.perf_counter() - began)
        except BaseException:
            connection.rollback()
            raise
        for hook in self.hooks.after_commit:
            try:
                hook(tx.notes)
            except Exception:  # the work is durable: its callers must not be told otherwise
                _log.exception("an after_commit hook failed; the commit stands")
        return None

    def _run_operations(self, jobs: list[Job[Any]], *, savepoints: bool) -> int:
        """Run one operation after the other and return how many succeeded.

        With savepoints a failing operation is rolled back to its own. Without, it costs nothing if it did not write.
        Raises RetryWithSavepoints where the writes of a failed one cannot be taken out alone.
        """
        connection = self.connection
        tx = connection.tx
        successes = 0
        for job in jobs:
            mark = connection.mark()
            try:
                if savepoints:
                    connection.savepoint()
                if not job.flags & UNGATED:
                    for gate in self.hooks.gate:
                        gate(tx)
                result = job.fn(tx)
                # One that swallows a database error fails all the same: PostgreSQL aborts the transaction by then.
                if tx.broken is not None:
                    raise tx.broken
                if savepoints:
                    connection.settle()
                    connection.release()
            except BaseException as error:
                self._record_failure(job, error, together=len(jobs) > 1)
                if not connection.restore() if savepoints else connection.wrote(mark):
                    raise RetryWithSavepoints from error
            else:
                tx.accept_notes()
                if type(result) is Refused:  # its writes are committed, its caller gets the error
                    job.fail(result.error)
                else:
                    job.result = result
                    job.error = None
                successes += 1
            self.progress += 1
        return successes

    def _record_failure(self, job: Job[Any], error: BaseException, *, together: bool) -> None:
        self.connection.tx.discard_notes()
        job.fail(error)
        if self.connection.retryable(error, together=together):
            raise Contention from error


def _fail_all(jobs: list[Job[Any]], error: BaseException) -> None:
    for job in jobs:
        job.fail(error)
