"""Transactions on PostgreSQL, the server's time, and the writing connection of a worker."""

import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar

from holdproof.db import row_security
from holdproof.db.clock import Clock, Ids, Random
from holdproof.db.postgres.commit_marks import WorkerMark
from holdproof.db.postgres.connector import Connector, pooled_name
from holdproof.db.postgres.wire import Wire
from holdproof.db.sql import Dialect, Query, first_word, sql_postgres, statements
from holdproof.db.topics import short
from holdproof.db.tx import SECRET_TABLES, WAKE, Notes, Refusal, Row, SqlResult, Tx, bounded_rows
from holdproof.errors import (
    BusyError,
    ConnectionLostError,
    ForbiddenSqlError,
    HoldproofError,
    SerializationError,
)

# A notification holds 8,000 bytes at most; a little is left for multi-byte characters.
_PAYLOAD = 7_000
_GROUP_LOCK_TIMEOUT = "SET LOCAL lock_timeout = '50ms'"


class PostgresTx(Tx):
    """A transaction on one connection (a `Wire`)."""

    dialect: ClassVar[Dialect] = "postgres"
    __slots__ = ("confines", "wire")

    def __init__(self, clock: Clock, random: Random, ids: Ids | None = None, *, lock_seed: int = 0) -> None:
        super().__init__(clock, random, ids)
        self.lock_seed = lock_seed
        self.confines = False
        """Whether the login can take on the role of tenants."""
        self.wire: Wire

    def execute(self, query: Query, /, *, expect: int | None = None, **params: Any) -> None:
        """See Tx."""
        self.wire.send(query, params, expect)

    def guard(self, query: Query, refusal: Refusal, /, **params: Any) -> None:
        """See Tx."""
        self.wire.send(query, params, 1, refusal)

    def count(self, query: Query, /, **params: Any) -> int:
        """See Tx."""
        self.wire.send(query, params)
        self.settle()
        return self.wire.touched

    def fetch(self, query: Query, params: Mapping[str, Any], /) -> list[Row]:
        """See Tx."""
        self.wire.send(query, params)
        return self.settle()

    def confine(self, ns: str | None) -> None:
        """See Tx; both statements are pipelined, so they cost no wait."""
        # In a transaction that the server aborted nothing runs any more, and the roll-back ends the role.
        if not self.confines or not self.wire.alive or self.wire.failed:
            return
        if ns is None:
            self.wire.send(row_security.LAY_DOWN, {})
        else:
            self.wire.send(row_security.TAKE_ON, {"ns": ns})

    def many(self, query: Query, rows: Iterable[Mapping[str, Any]], /) -> None:
        """See Tx."""
        for number, row in enumerate(rows, 1):
            self.wire.send(query, row)
            if number % 1000 == 0:
                self.settle()

    def script(self, text: str, /) -> None:
        """See Tx."""
        for statement in statements(text):
            self.wire.text(statement)
        self.wire.wrote += 1
        self.settle()

    def split(self, text: str, /) -> Iterable[str]:
        """See Tx."""
        return statements(text)

    def run_statement(self, statement: str, params: Mapping[str, Any], /) -> SqlResult:
        """See Tx; the server counts rows that were only read too, so the count is dropped for a read."""
        if any(
            name in statement.lower() for name in SECRET_TABLES
        ):  # rights cannot forbid it: Holdproof's statements use the same login
            raise ForbiddenSqlError("this statement names a table that holds secrets", statement=first_word(statement))
        query = Query(statement, statement, "statement", -1)
        self.wire.ask(query, params)
        rows = bounded_rows(self.settle())
        return SqlResult(self.wire.columns if rows else (), rows, 0 if query.kind == "read" else self.wire.touched)

    def settle(self) -> list[Row]:
        """Wait for everything sent; returns the rows of the last statement."""
        try:
            return self.wire.sync()
        except HoldproofError as error:
            self.broken = error
            raise


class ServerClock:
    """The server's time, as an offset to this machine's monotonic clock, measured again every minute."""

    def __init__(self) -> None:
        self._offset = 0
        self._measured = -1e9

    def __call__(self) -> int:
        """Return microseconds since 1970, by the server."""
        return time.monotonic_ns() // 1000 + self._offset

    def measure(self, wire: Wire) -> None:
        """Measure the offset, unless that was done within a minute; the error is half a round trip at most."""
        before = time.monotonic_ns() // 1000
        if before / 1e6 - self._measured < 60:
            return
        wire.send(_NOW, {})
        [(micros,)] = wire.sync()
        after = time.monotonic_ns() // 1000
        self._offset = micros - (before + after) // 2
        self._measured = after / 1e6


_NOW = sql_postgres("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint")
_HANG_UP = sql_postgres(
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = :name AND pid <> pg_backend_pid()",
)
# Behind a pooler a session that ended its transaction is somebody else's, whatever name it still has.
_HANG_UP_POOLED = sql_postgres(
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE starts_with(application_name, :name)"
    " AND state <> 'idle' AND pid <> pg_backend_pid()",
)
_NOTIFY = sql_postgres("SELECT pg_notify(:channel, :payload)")


class PostgresConnection:
    """The connection of a group writer; see WriteConnection."""

    def __init__(self, connector: Connector, tx: PostgresTx, clock: ServerClock, mark: WorkerMark) -> None:
        self.tx: PostgresTx = tx
        self._connector = connector
        self._clock = clock
        self._mark = mark
        self._worker = mark.worker
        self._wire: Wire | None = None
        self._marked = False
        self._begun = False  # whether the first mark of this worker is stored

    def _connected(self) -> Wire:
        wire = self._wire
        if wire is None or not wire.alive:
            wire = self._connect()
        if self._marked and not self._begun:
            self._mark.begin(wire)
            self._begun = True
        return wire

    def _connect(self) -> Wire:
        reconnecting = self._wire is not None
        wire = self._wire = self.tx.wire = self._connector.wire(self._worker)
        if reconnecting:  # the server may still run the old session, which would keep its locks
            if wire.pooled:
                wire.send(_HANG_UP_POOLED, {"name": pooled_name(self._worker)})
            else:
                wire.send(_HANG_UP, {"name": self._worker})
            wire.sync()
            if self._begun:
                # It may be another server now, promoted without the end of what the old one acknowledged.
                self._mark.reconnected(wire)
        return wire

    def begin(self, *, serializable: bool, together: bool) -> None:
        """See WriteConnection."""
        self._mark.refuse_lost()
        wire = self._connected()
        self._clock.measure(wire)
        wire.new_op()
        wire.begin(f"BEGIN ISOLATION LEVEL {'SERIALIZABLE' if serializable else 'READ COMMITTED'}")
        if (
            together
        ):  # groups that lock rows in opposite order give up early instead of waiting for the deadlock timeout
            wire.text(_GROUP_LOCK_TIMEOUT)

    def settle(self) -> None:
        """See WriteConnection."""
        self.tx.settle()

    def commit(self) -> None:
        """See WriteConnection; one wait for all statements and the mark, one for the commit."""
        wire = self.tx.wire
        send_notifications(wire, self._connector.channel, self.tx.notes)
        mark = self._mark.send(wire) if self._marked else ""
        try:
            wire.sync()
        except HoldproofError:
            self._mark.abandoned()
            raise
        try:
            wire.text("COMMIT")
            wire.sync()
        except ConnectionLostError as error:
            if not self._marked:
                raise
            self._mark.outcome(self._connected, mark, error)
        if self._marked:
            self._mark.committed(mark)

    def mark_commits(self) -> None:
        """Let every commit store its mark; called before the first one, once the table exists."""
        self._marked = True

    def connect(self) -> None:
        """Connect now, and store the first mark, rather than with the first job."""
        self._connected()

    def rollback(self) -> None:
        """See WriteConnection."""
        wire = self._wire
        if wire is None or not wire.alive:
            return
        try:
            wire.rollback()
        except HoldproofError:
            wire.close()

    def savepoint(self) -> None:
        """See WriteConnection."""
        self.tx.wire.text("SAVEPOINT op")

    def release(self) -> None:
        """See WriteConnection."""
        self.tx.wire.text("RELEASE op")

    def restore(self) -> bool:
        """See WriteConnection."""
        wire = self.tx.wire
        if not wire.alive:
            return False
        try:
            wire.abandon()
            wire.text("ROLLBACK TO op")
            wire.text("RELEASE op")
            wire.sync()
        except HoldproofError:
            return False
        return True

    def mark(self) -> int:
        """See WriteConnection."""
        self.tx.wire.new_op()
        return 0

    def wrote(self, mark: int) -> bool:
        """See WriteConnection."""
        del mark
        wire = self.tx.wire
        return not wire.alive or wire.failed or wire.op_wrote()

    def retryable(self, error: BaseException, *, together: bool) -> bool:
        """See WriteConnection."""
        return isinstance(error, ConnectionLostError | SerializationError) or (
            together and isinstance(error, BusyError)
        )

    def tidy(self) -> None:
        """See WriteConnection."""

    def close(self) -> None:
        """See WriteConnection."""
        if self._wire is not None:
            self._wire.close()


def send_notifications(wire: Wire, channel: str, notes: Notes) -> None:
    """Queue what wakes others at the commit of a transaction, given its notes."""
    for payload in _payloads(notes.get(WAKE, [])):
        wire.send(_NOTIFY, {"channel": channel, "payload": payload})


def _payloads(topics: Iterable[str]) -> Iterator[str]:
    """Join topics into as few notifications as their size allows."""
    batch: list[str] = []
    size = 0
    for topic in dict.fromkeys(map(short, topics)):
        length = len(topic.encode()) + 1
        if batch and size + length > _PAYLOAD:
            yield "\n".join(batch)
            batch = []
            size = 0
        batch.append(topic)
        size += length
    if batch:
        yield "\n".join(batch)
