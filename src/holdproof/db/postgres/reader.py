"""The reader of PostgreSQL: a batch of reads shares one snapshot."""

from typing import Any

from holdproof.db.postgres.connection import PostgresTx, ServerClock
from holdproof.db.postgres.connector import Connector
from holdproof.db.postgres.wire import Wire
from holdproof.db.worker_pool import Job, deliver
from holdproof.errors import ConnectionLostError, HoldproofError, UnavailableError

# A read is retried on a new connection this often.
_ATTEMPTS = 3
# Less than a connection costs, and more than the end of a transaction takes.
_CONNECTING_PAUSE_S = 0.002


class PostgresReader:
    """The worker for reads: a batch shares one snapshot; a read whose connection broke runs again."""

    def __init__(self, connector: Connector, tx: PostgresTx, clock: ServerClock) -> None:
        self.progress = 0
        self._connector = connector
        self._tx = tx
        self._clock = clock
        self._wire: Wire | None = None

    def pause_s(self, waiting: int) -> float:
        """Return 0: reads start at once. One that has to connect first leaves a single one to its neighbour.

        A reader delivers its results before it has ended its transaction, so the next call finds it busy for a moment.
        """
        return _CONNECTING_PAUSE_S if self._wire is None and waiting == 1 else 0.0

    def handle(self, jobs: list[Job[Any]]) -> list[Job[Any]]:
        """Run a batch on one snapshot; after a failure the next job gets a new one."""
        live = [job for job in jobs if job.claim()]
        needs_snapshot = True
        unavailable: UnavailableError | None = None
        for job in live:
            if unavailable is None:
                needs_snapshot, unavailable = self._run_job(job, needs_snapshot=needs_snapshot)
            else:  # the first one waited for the server; the others need not wait again
                job.error = unavailable
            self.progress += 1
        deliver(live)
        if not needs_snapshot:
            self._end(failed=False)
        return []

    def _run_job(self, job: Job[Any], *, needs_snapshot: bool) -> tuple[bool, UnavailableError | None]:
        """Run one read; returns whether the next one needs a new snapshot, and the error if the server is down."""
        for _ in range(_ATTEMPTS):
            try:
                wire = self._ready(needs_snapshot=needs_snapshot)
            except ConnectionLostError as error:
                job.fail(error)
                needs_snapshot = True
                continue
            except UnavailableError as error:
                job.error = error
                return True, error
            try:
                self._tx.broken = None
                job.result = job.fn(self._tx)
                job.error = None
                if self._tx.broken is not None:
                    raise self._tx.broken
                wire.sync()
            except ConnectionLostError as error:
                job.fail(error)
                needs_snapshot = True
            except BaseException as error:
                job.fail(error)
                self._end(failed=True)
                return True, None
            else:
                return False, None
        return True, None

    def _ready(self, *, needs_snapshot: bool) -> Wire:
        wire = self._wire
        if wire is None or not wire.alive:
            wire = self._wire = self._tx.wire = self._connector.wire("holdproof-reader", reads=True)
            needs_snapshot = True
        if needs_snapshot:
            self._clock.measure(wire)
            self._tx.reset()
            wire.begin("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        return wire

    def _end(self, *, failed: bool) -> None:
        """End the transaction: an open snapshot would keep the server from removing dead rows."""
        wire = self._wire
        if wire is None or not wire.alive:
            return
        try:
            if failed:
                wire.rollback()
            else:
                wire.text("COMMIT")
                wire.sync()
        except HoldproofError:
            wire.close()

    def close(self) -> None:
        """Close the connection."""
        if self._wire is not None:
            self._wire.close()
