"""Group commit: many operations, one durable commit.

Rules:
- A caller hears back only after the commit that holds its work.
- A failing operation never harms its neighbours. Optimistic: a group runs without savepoints; an operation that raises
  before it wrote costs nothing; one that raises after a write makes the group roll back and run again with a savepoint
  each; if the commit itself or a commit hook fails, every operation runs again alone.
- Operations can therefore run more than once; only one run is ever committed.
- An error that says nothing of the operation (a deadlock, a lost connection before commit) is tried again, bounded.
"""

import logging
import random
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from holdproof.db.tx import Notes, Refused, Tx
from holdproof.db.worker_pool import ONCE, SERIALIZABLE, UNGATED, Job, deliver
from holdproof.errors import OutcomeUnknownError

_log = logging.getLogger("holdproof.db")

_SLOW_SYNC_S = 0.0003
_CAUTIOUS_GROUPS = 32
_CROWD = 512


@dataclass
class Hooks:
    """What upper layers register: the log head, the schema leaf, the lockdown."""

    gate: list[Callable[[Tx], None]] = field(default_factory=list)
    """Called before each operation; raising refuses it. Ungated jobs pass."""
    before_commit: list[Callable[[Tx], None]] = field(default_factory=list)
    """Called once a group, inside its transaction, after all operations; raising rolls back."""
    after_commit: list[Callable[[Notes], None]] = field(default_factory=list)
    """Called once a group is durable, before its callers hear back; must not raise."""


class Link(Protocol):
    """A connection in the hands of the group writer."""

    @property
    def tx(self) -> Tx:
        """The transaction that operations are given; one object, renewed."""
        ...

    def begin(self, *, serializable: bool, together: bool) -> None:
        """Start a transaction, reconnecting or waiting for the lock within bounds; `together` with others."""
        ...

    def settle(self) -> None:
        """Wait for every pipelined statement; raises the first failure."""
        ...

    def commit(self) -> None:
        """Wait for every statement, then make all durable; OutcomeUnknownError only if nobody can tell."""
        ...

    def rollback(self) -> None:
        """Undo everything since begin; never raises, harmless without a transaction."""
        ...

    def savepoint(self) -> None:
        """Mark a place to return to."""
        ...

    def release(self) -> None:
        """Forget the mark, keep the work."""
        ...

    def restore(self) -> bool:
        """Return to the mark; False if the whole transaction is gone."""
        ...

    def mark(self) -> int:
        """A number that `wrote` compares with."""
        ...

    def wrote(self, mark: int) -> bool:
        """Has anything been written, or the transaction been broken, since that mark?"""
        ...

    def retryable(self, error: BaseException, *, together: bool) -> bool:
        """Does this error say nothing about the operation, so that it may simply run again?"""
        ...

    def tidy(self) -> None:
        """Housekeeping after callers were answered; never raises."""
        ...

    def close(self) -> None:
        """Close the connection."""
        ...


class _AgainError(Exception):
    """A neighbour's work is at stake: roll back and run again more carefully."""


class _CollisionError(Exception):
    """Another transaction was in the way, or the connection broke: it says nothing about the operation."""


class GroupWriter:
    """The worker that turns batches of jobs into commits."""

    def __init__(self, link: Link, hooks: Hooks, *, retries: int = 10) -> None:
        self.link, self.hooks, self.progress = link, hooks, 0
        self._retries = retries
        self._syncs: deque[float] = deque([0.0], maxlen=16)
        self._company = 1.0
        self._caution, self._crowd = 0, _CROWD

    def pause_s(self, waiting: int) -> float:
        """On a slow disk it pays to wait for company, if more than is there has been usual."""
        sync = min(self._syncs)
        if sync < _SLOW_SYNC_S or waiting >= 0.9 * self._company:
            return 0.0
        return min(sync / 8, 0.0005)

    def handle(self, jobs: list[Job[Any]]) -> list[Job[Any]]:
        """Run a batch as one group, or as many as its failures ask for, then answer everybody."""
        live = [job for job in jobs if job.claim()]
        self._company += (len(live) - self._company) / 8
        together = [job for job in live if not job.flags & SERIALIZABLE]
        if together:
            self._together(together)
            deliver(together)
        for job in live:  # one of these may be a block that takes its time: the others need not wait for its end
            if job.flags & SERIALIZABLE:
                self._alone(job)
                deliver([job])
        self.link.tidy()
        return []

    def close(self) -> None:
        """Close the connection."""
        self.link.close()

    def _together(self, jobs: list[Job[Any]]) -> None:
        """As few transactions as work: groups of up to `_crowd`, which shrinks while groups collide."""
        start = 0
        while crowd := jobs[start : start + self._crowd]:
            start += len(crowd)
            if len(crowd) == 1 or not self._agreed(crowd):
                for job in crowd:
                    self._alone(job)

    def _agreed(self, jobs: list[Job[Any]]) -> bool:
        """Whether a group could be carried out together, boldly or with care; else each must run alone."""
        careful = self._caution > 0
        self._caution = max(0, self._caution - 1)
        for cautious in (careful, True):
            try:
                self._group(jobs, careful=cautious)
            except _CollisionError:
                self._crowd = max(2, self._crowd // 4)
                return False
            except _AgainError:
                self._caution = _CAUTIOUS_GROUPS
                if cautious:
                    return False
            except OutcomeUnknownError as error:
                _answer_all(jobs, error)
                return True
            except Exception:
                _log.debug("a group failed as a whole; each operation runs alone", exc_info=True)
                return False
            else:
                self._crowd = min(_CROWD, self._crowd + 1)
                return True
        return False

    def _alone(self, job: Job[Any]) -> None:
        """One operation, one transaction; tried again where the error says nothing about it."""
        for attempt in range(self._retries + 1):
            try:
                self._group([job], careful=False)
            except (_AgainError, _CollisionError):
                pass  # the job carries its own error, and it was alone
            except Exception as error:
                _answer_all([job], error)
            else:
                return
            assert job.error is not None
            if attempt == self._retries or job.flags & ONCE or not self.link.retryable(job.error, together=False):
                return
            time.sleep(random.uniform(0, min(0.5, 0.002 * 2**attempt)))  # noqa: S311 (jitter, not a secret)

    def _group(self, jobs: list[Job[Any]], *, careful: bool) -> None:
        """One transaction over these jobs; their answers are filled in, but not delivered."""
        link, tx = self.link, self.link.tx
        tx.renew()
        try:
            link.begin(serializable=bool(jobs[0].flags & SERIALIZABLE), together=len(jobs) > 1)
        except Exception as error:  # no lock, no server: nothing was tried, nobody in particular is at fault
            if link.retryable(error, together=False):
                raise
            return _answer_all(jobs, error)
        try:
            kept = self._carefully(jobs) if careful else self._boldly(jobs)
            if not kept:
                return link.rollback()
            for hook in self.hooks.before_commit:
                hook(tx)
                tx.keep()
            began = time.perf_counter()
            link.commit()
            self._syncs.append(time.perf_counter() - began)
        except BaseException:
            link.rollback()
            raise
        self._after(tx.notes)
        return None

    def _boldly(self, jobs: list[Job[Any]]) -> int:
        """Run one operation after the other; how many succeeded. A failure that taints the others is _AgainError."""
        link, tx, kept = self.link, self.link.tx, 0
        for job in jobs:
            mark = link.mark()
            try:
                result = self._operate(job, tx)
            except BaseException as error:
                self._failed(job, error, together=len(jobs) > 1)
                if link.wrote(mark):
                    raise _AgainError from error
            else:
                _succeeded(job, tx, result)
                kept += 1
            self.progress += 1
        return kept

    def _carefully(self, jobs: list[Job[Any]]) -> int:
        """The same with a savepoint each, to which a failing operation is taken back."""
        link, tx, kept = self.link, self.link.tx, 0
        for job in jobs:
            try:
                link.savepoint()
                result = self._operate(job, tx)
                link.settle()
                link.release()
            except BaseException as error:
                self._failed(job, error, together=len(jobs) > 1)
                if not link.restore():
                    raise _AgainError from error
            else:
                _succeeded(job, tx, result)
                kept += 1
            self.progress += 1
        return kept

    def _operate(self, job: Job[Any], tx: Tx) -> Any:
        if self.hooks.gate and not job.flags & UNGATED:
            for gate in self.hooks.gate:
                gate(tx)
        result = job.fn(tx)
        if tx.broken is not None:  # swallowed by the operation; PostgreSQL would not go on, so neither do we
            raise tx.broken
        return result

    def _failed(self, job: Job[Any], error: BaseException, *, together: bool) -> None:
        self.link.tx.drop()
        job.result, job.error = None, error
        if self.link.retryable(error, together=together):
            raise _CollisionError from error

    def _after(self, notes: Notes) -> None:
        for hook in self.hooks.after_commit:
            try:
                hook(notes)
            except Exception:
                _log.exception("an after_commit hook failed; the commit stands")


def _succeeded(job: Job[Any], tx: Tx, result: Any) -> None:
    tx.keep()
    if type(result) is Refused:
        job.result, job.error = None, result.error
    else:
        job.result, job.error = result, None


def _answer_all(jobs: list[Job[Any]], error: BaseException) -> None:
    for job in jobs:
        job.result, job.error = None, error
