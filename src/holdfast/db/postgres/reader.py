"""Reads: a batch shares one snapshot."""

from typing import Any

from holdfast.db.postgres.link import Connector, PostgresTx, ServerClock
from holdfast.db.postgres.wire import LostError, Wire
from holdfast.db.pump import Job, deliver
from holdfast.errors import (
    HoldfastError,
)


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
        live = [job for job in jobs if job.box.claim(job.ticket)]
        fresh = True
        for job in live:
            fresh = self._one(job, fresh=fresh)
            self.progress += 1
        if not fresh and self._wire is not None and self._wire.alive:
            self._wire.text("COMMIT")
        deliver(live)
        return []

    def _one(self, job: Job[Any], *, fresh: bool) -> bool:
        """One read; answers whether the next one needs a new snapshot."""
        for attempt in range(3):
            try:
                wire = self._ready(fresh=fresh)
                job.result, job.error = job.fn(self._tx), None
                wire.sync()
            except LostError as error:
                job.error, fresh = error, True
                if attempt < 2:
                    continue
            except BaseException as error:
                job.error = error
                self._abandon()
                return True
            return job.error is not None
        return True

    def _ready(self, *, fresh: bool) -> Wire:
        wire = self._wire
        if wire is None or not wire.alive:
            wire = self._wire = self._tx.wire = self._connector.wire("holdfast-reader", reads=True)
            fresh = True
        if fresh:
            self._clock.measure(wire)
            self._tx.renew()
            wire.text("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        return wire

    def _abandon(self) -> None:
        wire = self._wire
        if wire is None or not wire.alive:
            return
        try:
            wire.abandon()
            wire.text("ROLLBACK")
            wire.sync()
        except HoldfastError:
            wire.close()

    def close(self) -> None:
        """Hang up."""
        if self._wire is not None:
            self._wire.close()
