"""Reads: a batch shares one snapshot."""

from typing import Any

from holdproof.db.postgres.connection import Connector, PostgresTx, ServerClock
from holdproof.db.postgres.wire import Wire
from holdproof.db.worker_pool import Job, deliver
from holdproof.errors import ConnectionLostError, HoldproofError, UnavailableError


class PostgresReader:
    """The worker for reads: a batch shares one snapshot; a read whose connection broke runs again."""

    def __init__(self, connector: Connector, tx: PostgresTx, clock: ServerClock) -> None:
        self.progress, self._connector, self._tx, self._clock = 0, connector, tx, clock
        self._wire: Wire | None = None

    def pause_s(self, waiting: int) -> float:
        """Reads start at once."""
        del waiting
        return 0.0

    def handle(self, jobs: list[Job[Any]]) -> list[Job[Any]]:
        """Run a batch on one snapshot; after a failure the next job gets a new one."""
        live = [job for job in jobs if job.claim()]
        fresh, gone = True, None
        for job in live:
            if gone is None:
                fresh, gone = self._one(job, fresh=fresh)
            else:  # what one waited for in vain, the others need not wait for again
                job.error = gone
            self.progress += 1
        deliver(live)
        if not fresh:
            self._end("COMMIT")
        return []

    def _one(self, job: Job[Any], *, fresh: bool) -> tuple[bool, UnavailableError | None]:
        """One read; whether the next one needs a new snapshot, and why there will be none."""
        for _ in range(3):
            try:
                wire = self._ready(fresh=fresh)
            except ConnectionLostError as error:
                job.error, fresh = error, True
                continue
            except UnavailableError as error:
                job.error = error
                return True, error
            try:
                self._tx.broken = None
                job.result, job.error = job.fn(self._tx), None
                if self._tx.broken is not None:
                    raise self._tx.broken
                wire.sync()
            except ConnectionLostError as error:
                job.result, job.error, fresh = None, error, True
            except BaseException as error:
                job.result, job.error = None, error
                self._end("ROLLBACK")
                return True, None
            else:
                return False, None
        return True, None

    def _ready(self, *, fresh: bool) -> Wire:
        wire = self._wire
        if wire is None or not wire.alive:
            wire = self._wire = self._tx.wire = self._connector.wire("holdproof-reader", reads=True)
            fresh = True
        if fresh:
            self._clock.measure(wire)
            self._tx.reset()
            wire.text("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        return wire

    def _end(self, how: str) -> None:
        """Leave the transaction, so that no snapshot is held while nothing is read."""
        wire = self._wire
        if wire is None or not wire.alive:
            return
        try:
            wire.abandon()
            wire.text(how)
            wire.sync()
        except HoldproofError:
            wire.close()

    def close(self) -> None:
        """Hang up."""
        if self._wire is not None:
            self._wire.close()
