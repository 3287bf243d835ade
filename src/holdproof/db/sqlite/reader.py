"""Reads: on separate connections, or between groups where there is only one connection (memory)."""

import time
from collections.abc import Callable
from math import inf
from typing import Any, TypeVar

import apsw
import apsw.sqlite_extra

from holdproof.db.group_commit import GroupWriter
from holdproof.db.sqlite.page_checksums import ToleratedPageError
from holdproof.db.sqlite.tx import SqliteTx, typed
from holdproof.db.tx import NOT_RUN, NotRun, Tx
from holdproof.db.worker_pool import READS, Job, deliver
from holdproof.errors import ReadLimitError

T = TypeVar("T")

# A snapshot in use keeps the write-ahead log from being recycled, so a batch shares one only briefly.
_SNAPSHOT_S = 0.005


def reading(fn: Callable[[Tx], T], tx: Tx) -> T:
    """Run a read; raises the database error that it may have swallowed."""
    tx.broken = None
    result = fn(tx)
    if tx.broken is not None:
        raise tx.broken
    return result


class SqliteReader:
    """The worker for reads: a batch shares one snapshot, for a few milliseconds at most."""

    def __init__(self, connection: apsw.Connection, tx: SqliteTx, *, limit_s: float) -> None:
        self.progress = 0
        self._tx = tx
        self._connection = connection
        self._run = connection.cursor().execute
        self._limit_s = limit_s
        self._until = inf
        connection.set_progress_handler(self._overdue, 20_000)

    def _overdue(self) -> bool:
        return time.monotonic() > self._until

    def pause_s(self, waiting: int) -> float:
        """Return 0: reads start at once."""
        del waiting
        return 0.0

    def handle(self, jobs: list[Job[Any]]) -> list[Job[Any]]:
        """Run a batch on one snapshot; returns the jobs that remain when the snapshot is too old."""
        self._tx.reset()
        finished: list[Job[Any]] = []
        handled = 0
        began = time.monotonic()
        now = began
        try:
            self._run("BEGIN")
            for job in jobs:
                handled += 1
                if job.claim():
                    self._until = now + self._limit_s
                    self._run_job(job)
                    finished.append(job)
                now = time.monotonic()
                if now - began > _SNAPSHOT_S:
                    break
        except apsw.Error as error:
            raise typed(error, "read") from error
        finally:
            self._until = inf
            if self._connection.in_transaction:
                self._run("ROLLBACK")
        deliver(finished)
        return jobs[handled:]

    def _run_job(self, job: Job[Any]) -> None:
        self.progress += 1
        try:
            try:
                job.result = reading(job.fn, self._tx)
            except ToleratedPageError:
                if not self._connection.in_transaction:  # a failed read ends the transaction
                    self._run("BEGIN")
                job.result = reading(job.fn, self._tx)
        except BaseException as error:
            job.error = error

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


class InlineReaders:
    """Short reads on the caller's thread: a few spare connections, each used by one thread at a time."""

    def __init__(self, make: Callable[[], tuple[apsw.Connection, SqliteTx]], *, most: int) -> None:
        self._make = make
        self._spare = most
        self._free: list[_InlineReader] = []
        self._open = True

    def run(self, fn: Callable[[Tx], T], budget_s: float) -> T | NotRun:
        """See Backend.peek."""
        try:
            # No lock: pop and append of a list are atomic, and whoever pops owns the connection.
            reader = self._free.pop()
        except IndexError:
            if not self._open or self._spare <= 0:
                return NOT_RUN
            self._spare -= 1
            reader = _InlineReader(*self._make())
        try:
            return reader.run(fn, budget_s)
        finally:
            self._free.append(reader)
            if not self._open:
                self.close()

    def close(self) -> None:
        """Close the free connections now; those in use are closed when their read ends."""
        self._open = False
        while self._free:
            self._free.pop().connection.close()


class _InlineReader:
    """One spare connection."""

    def __init__(self, connection: apsw.Connection, tx: SqliteTx) -> None:
        self.connection = connection
        self._tx = tx
        self._run = connection.cursor().execute
        self._until = inf
        connection.set_progress_handler(self._overdue, 2_000)

    def _overdue(self) -> bool:
        return time.monotonic() > self._until

    def run(self, fn: Callable[[Tx], T], budget_s: float) -> T | NotRun:
        self._tx.reset()
        self._run("BEGIN")
        self._until = time.monotonic() + budget_s  # only now: waiting for a lock does not count as a slow read
        try:
            return reading(fn, self._tx)
        except (ReadLimitError, ToleratedPageError):
            return NOT_RUN
        finally:
            self._until = inf
            if self.connection.in_transaction:  # failing I/O may have ended it already
                self._run("ROLLBACK")


class MemoryWorker:
    """Runs reads and writes on the one connection of a database in memory; reads see committed state only."""

    def __init__(self, connection: apsw.Connection, writer: GroupWriter, reader: SqliteReader) -> None:
        self._connection = connection
        self._writer = writer
        self._reader = reader

    @property
    def progress(self) -> int:
        """See Worker."""
        return self._writer.progress + self._reader.progress

    def pause_s(self, waiting: int) -> float:
        """Return 0: there is no disk to wait for."""
        del waiting
        return 0.0

    def handle(self, jobs: list[Job[Any]]) -> list[Job[Any]]:
        """Run the reads first, then the writes as a group."""
        reads = [job for job in jobs if job.flags & READS]
        if reads:
            self._connection.pragma("query_only", True)
            try:
                while reads:
                    reads = self._reader.handle(reads)
            finally:
                self._connection.pragma("query_only", False)
        writes = [job for job in jobs if not job.flags & READS]
        return self._writer.handle(writes) if writes else []

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()
