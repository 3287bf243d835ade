"""Reads: on connections of their own, or between groups where there is only one."""

import time
from typing import Any

import apsw
import apsw.sqlite_extra

from holdfast.db.groups import GroupWriter
from holdfast.db.pump import Job, deliver
from holdfast.db.sqlite.tx import SqliteTx, typed

_SNAPSHOT_S = 0.005


class SqliteReader:
    """The worker for reads: a batch shares one snapshot, for a few milliseconds at most."""

    def __init__(self, connection: apsw.Connection, tx: SqliteTx, *, limit_s: float) -> None:
        self.progress, self._tx, self._connection = 0, tx, connection
        self._run = connection.cursor().execute
        self._limit_s, self._until = limit_s, float("inf")
        connection.set_progress_handler(self._overdue, 20_000)

    def _overdue(self) -> bool:
        return time.monotonic() > self._until

    def pause_s(self) -> float:
        """Reads start at once."""
        return 0.0

    def handle(self, jobs: list[Job[Any]]) -> list[Job[Any]]:
        """Run a batch on one snapshot; what is left when it has become old goes back."""
        self._tx.renew()
        done: list[Job[Any]] = []
        taken, began = 0, time.monotonic()
        now = began
        try:
            self._run("BEGIN")
            for job in jobs:
                taken += 1
                if job.box.claim(job.ticket):
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
            job.result = job.fn(self._tx)
        except BaseException as error:
            job.error = error

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


class MemoryWorker:
    """Everything on one connection: reads see what is committed, between groups."""

    def __init__(self, connection: apsw.Connection, writer: GroupWriter, reader: SqliteReader) -> None:
        self._connection, self._writer, self._reader = connection, writer, reader

    @property
    def progress(self) -> int:
        """See Worker."""
        return self._writer.progress + self._reader.progress

    def pause_s(self) -> float:
        """Memory has no disk to wait for."""
        return 0.0

    def handle(self, jobs: list[Job[Any]]) -> list[Job[Any]]:
        """Reads first, then the writes as a group."""
        reads = [job for job in jobs if job.reads]
        if reads:
            self._connection.pragma("query_only", True)
            try:
                while reads:
                    reads = self._reader.handle(reads)
            finally:
                self._connection.pragma("query_only", False)
        writes = [job for job in jobs if not job.reads]
        return self._writer.handle(writes) if writes else []

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()
