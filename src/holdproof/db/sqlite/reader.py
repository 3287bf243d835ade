"""Reads: on connections of their own, or between groups where there is only one."""

import time
from collections.abc import Callable
from typing import Any, TypeVar

import apsw
import apsw.sqlite_extra

from holdproof.db.group_commit import GroupWriter
from holdproof.db.sqlite.tx import SqliteTx, typed
from holdproof.db.tx import NOTHING, Nothing, Tx
from holdproof.db.worker_pool import READS, Job, deliver
from holdproof.errors import ReadLimitError

T = TypeVar("T")

_SNAPSHOT_S = 0.005


def reading(fn: Callable[[Tx], T], tx: Tx) -> T:
    """Run a read; one that swallowed a database error fails with it all the same."""
    tx.broken = None
    result = fn(tx)
    if tx.broken is not None:
        raise tx.broken
    return result


class SqliteReader:
    """The worker for reads: a batch shares one snapshot, for a few milliseconds at most."""

    def __init__(self, connection: apsw.Connection, tx: SqliteTx, *, limit_s: float) -> None:
        self.progress, self._tx, self._connection = 0, tx, connection
        self._run = connection.cursor().execute
        self._limit_s, self._until = limit_s, float("inf")
        connection.set_progress_handler(self._overdue, 20_000)

    def _overdue(self) -> bool:
        return time.monotonic() > self._until

    def pause_s(self, waiting: int) -> float:
        """Reads start at once."""
        del waiting
        return 0.0

    def handle(self, jobs: list[Job[Any]]) -> list[Job[Any]]:
        """Run a batch on one snapshot; what is left when it has become old goes back."""
        self._tx.reset()
        done: list[Job[Any]] = []
        taken, began = 0, time.monotonic()
        now = began
        try:
            self._run("BEGIN")
            for job in jobs:
                taken += 1
                if job.claim():
                    self._until = now + self._limit_s
                    self._one(job)
                    done.append(job)
                now = time.monotonic()
                if now - began > _SNAPSHOT_S:
                    break
        except apsw.Error as error:
            raise typed(error, "read") from error
        finally:
            self._until = float("inf")
            if self._connection.in_transaction:
                self._run("ROLLBACK")
        deliver(done)
        return jobs[taken:]

    def _one(self, job: Job[Any]) -> None:
        self.progress += 1
        try:
            job.result = reading(job.fn, self._tx)
        except BaseException as error:
            job.error = error

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


class Peeks:
    """Short reads on the caller's own thread: a few spare connections, each used by one thread at a time."""

    def __init__(self, make: Callable[[], tuple[apsw.Connection, SqliteTx]], *, most: int) -> None:
        self._make, self._spare = make, most
        self._free: list[_Peek] = []
        self._open = True

    def run(self, fn: Callable[[Tx], T], budget_s: float) -> T | Nothing:
        """See Backend.peek."""
        try:
            peek = self._free.pop()
        except IndexError:
            if not self._open or self._spare <= 0:
                return NOTHING
            self._spare -= 1
            peek = _Peek(*self._make())
        try:
            return peek.run(fn, budget_s)
        finally:
            self._free.append(peek)
            if not self._open:
                self.close()

    def close(self) -> None:
        """Close what is free now; what is in use is closed when it is done."""
        self._open = False
        while self._free:
            self._free.pop().connection.close()


class _Peek:
    """One spare connection."""

    def __init__(self, connection: apsw.Connection, tx: SqliteTx) -> None:
        self.connection, self._tx = connection, tx
        self._run, self._until = connection.cursor().execute, float("inf")
        connection.set_progress_handler(self._overdue, 2_000)

    def _overdue(self) -> bool:
        return time.monotonic() > self._until

    def run(self, fn: Callable[[Tx], T], budget_s: float) -> T | Nothing:
        self._tx.reset()
        self._run("BEGIN")
        self._until = time.monotonic() + budget_s  # not before: a thread that waits for its turn is no slow read
        try:
            return reading(fn, self._tx)
        except ReadLimitError:
            return NOTHING
        finally:
            self._until = float("inf")
            if self.connection.in_transaction:  # failing I/O may have ended it by itself
                self._run("ROLLBACK")


class MemoryWorker:
    """Everything on one connection: reads see what is committed, between groups."""

    def __init__(self, connection: apsw.Connection, writer: GroupWriter, reader: SqliteReader) -> None:
        self._connection, self._writer, self._reader = connection, writer, reader

    @property
    def progress(self) -> int:
        """See Worker."""
        return self._writer.progress + self._reader.progress

    def pause_s(self, waiting: int) -> float:
        """Memory has no disk to wait for."""
        del waiting
        return 0.0

    def handle(self, jobs: list[Job[Any]]) -> list[Job[Any]]:
        """Reads first, then the writes as a group."""
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
