"""One connection in libpq's pipeline mode: statements are queued, results come back in order, errors are typed."""

import select
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple

from psycopg import Error, OperationalError, pq
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from holdproof.db.postgres import engine
from holdproof.db.postgres.text import dump, loader
from holdproof.db.sql import Query
from holdproof.db.tx import APPLICATION_SCHEMA, Refusal, Row
from holdproof.errors import (
    BusyError,
    ConfigError,
    ConnectionLostError,
    ConstraintError,
    DatabaseError,
    DiskFullError,
    ExpectationError,
    ForbiddenSqlError,
    HoldproofError,
    InvalidInputError,
    MissingPrivilegeError,
    QueryError,
    ReadLimitError,
    ReadOnlyError,
    SerializationError,
    UnavailableError,
)

_PER_HOST: Final = ("host", "hostaddr", "port")
_CONNECT_TIMEOUT_S: Final = 5.0
_SHORTEST_TIMEOUT_S: Final = 2.0
_POLL_EVENTS: Final = {pq.PollingStatus.READING: select.POLLIN, pq.PollingStatus.WRITING: select.POLLOUT}
_OLDEST = 140000
_GRACE_MS = 1000
NO_OPTIONS: Final = "unsupported startup parameter"
"""What a pooler says that refuses the settings of a connection."""
_UNLOCK: Final = "SELECT pg_catalog.pg_advisory_unlock_all()"
_FATAL: Final = frozenset({b"FATAL", b"PANIC"})
_MOST_PARAMETERS = 65_535

# By SQLSTATE, the longest prefix that fits.
_TYPED: dict[str, type[HoldproofError]] = {
    "08": UnavailableError,
    "23": ConstraintError,
    "25006": ReadOnlyError,
    "25P02": DatabaseError,
    "40": SerializationError,
    "42501": ForbiddenSqlError,
    "42": QueryError,
    "22": QueryError,
    "53100": DiskFullError,
    "53": UnavailableError,
    "55P03": BusyError,
    "57014": ReadLimitError,
    "57P": UnavailableError,
    "58": UnavailableError,
}


_NO_PRIVILEGE: Final = frozenset({"42501", "3F000"})
# The connection is closed by the server after these.
_LOST = {"57P01", "57P02", "57P03", "57P05", "08003", "08006"}


class OptionsRefusedError(Exception):
    """A pooler refuses the settings of a connection; `Connector` then sends them with each transaction."""


class _Slot(NamedTuple):
    """What the next result in the pipeline belongs to."""

    query: Query | None
    expect: int | None
    prepares: int | None
    op: int
    refusal: Refusal = ExpectationError


class Wire:
    """One connection in pipeline mode: statements are queued, results come back in order.

    A server that sends nothing for `silence_s` counts as lost unless `is_active(backend_pid)` says that it is working.

    Behind a pooler each transaction may run on another session of the server, so nothing is left in a session:
    `settings`, a statement that holds for one transaction, is sent with each of them, and nothing is prepared. Where
    the session has its settings, it is empty.
    """

    def __init__(
        self,
        conninfo: str,
        *,
        silence_s: float,
        is_active: Callable[[int], bool] = lambda _: False,
        settings: str = "",
    ) -> None:
        self._use(connect(conninfo), silence_s=silence_s, is_active=is_active, settings=settings)
        engine.refuse_by_name(self._pg)
        if self._pg.server_version < _OLDEST:
            raise ConfigError(f"PostgreSQL 14 or newer is needed, this is {self._pg.server_version // 10000}")

    def _use(
        self, connection: pq.abc.PGconn, *, silence_s: float, is_active: Callable[[int], bool], settings: str = ""
    ) -> None:
        """Use a connection, in pipeline mode from here on."""
        self._settings = settings
        self.silence_s = silence_s
        self.is_active = is_active
        self.op = 0
        self.wrote = 0
        self.touched = 0
        self.columns: tuple[str, ...] = ()
        self._slots: list[_Slot] = []
        self._prepared: set[int] = set()
        self._loaders: dict[int, list[Callable[[bytes], Any]]] = {}
        self._pg = connection
        self._pg.nonblocking = 1
        self._pg.enter_pipeline_mode()
        self._poll = select.poll()
        self._poll.register(self._pg.socket, select.POLLIN)

    @property
    def alive(self) -> bool:
        """Whether the connection is usable."""
        return self._pg.status == pq.ConnStatus.OK

    @property
    def version(self) -> int:
        """The server's version, as 180004."""
        return self._pg.server_version

    @property
    def failed(self) -> bool:
        """Whether the server has aborted the transaction."""
        return self._pg.transaction_status == pq.TransactionStatus.INERROR

    @property
    def pooled(self) -> bool:
        """Whether a pooler stands before the server."""
        return bool(self._settings)

    def begin(self, how: str = "BEGIN") -> None:
        """Queue the start of a transaction, and the settings that the session does not have."""
        self._queue(how)
        if self._settings:
            self._queue(self._settings)

    def rollback(self) -> None:
        """Roll back and wait; what SQL of an application left in a session that others will use is undone."""
        self.abandon()
        self._queue("ROLLBACK")
        if self._settings:
            # In the same exchange: after it the session belongs to somebody else.
            self._queue(_UNLOCK)
        self.sync()

    def new_op(self) -> None:
        """Count what is written from here on for a new operation."""
        self.op += 1
        self.wrote = 0

    def op_wrote(self) -> bool:
        """Return whether the current operation wrote anything, or may have."""
        return self.wrote > 0 or any(
            slot.op == self.op and slot.query is not None and slot.query.kind != "read" for slot in self._slots
        )

    def send(
        self,
        query: Query,
        params: Mapping[str, Any],
        expect: int | None = None,
        refusal: Refusal = ExpectationError,
    ) -> None:
        """Queue a statement, prepared at its first use on this connection."""
        if self._settings:
            self._set_outside_transaction()
        name = b"q%d" % query.number
        values = []
        formats = []
        for parameter in query.names:
            value, form = dump(parameter, params[parameter])
            values.append(value)
            formats.append(form)
        if self._settings:
            self.query(query, values, formats, expect=expect, refusal=refusal)
            return
        try:
            if query.number not in self._prepared:
                self._pg.send_prepare(name, query.postgres.encode())
                self._slots.append(_Slot(None, None, query.number, self.op))
                self._prepared.add(query.number)
            self._pg.send_query_prepared(name, values, formats)
        except Error as error:
            raise self._lost(error) from error
        self._slots.append(_Slot(query, expect, None, self.op, refusal))

    def look(self, query: Query) -> list[Row]:
        """Run a query without parameters and wait; it is not prepared, whatever stands before the server."""
        self.query(query, [], [])
        return self.sync()

    def ask(self, query: Query, params: Mapping[str, Any]) -> None:
        """Queue SQL of an application; it is not prepared.

        Bare names mean its own schema first, for this statement only: Holdproof's own statements on this connection
        must never call a function that an application created. Afterwards settings that it changed are reset, and
        advisory locks of the session released.
        """
        if len(query.names) > _MOST_PARAMETERS:
            raise InvalidInputError(f"PostgreSQL takes {_MOST_PARAMETERS} parameters at most, not {len(query.names)}")
        dumped = [dump(name, params.get(name)) for name in query.names]
        scope = "LOCAL " if self._settings else ""
        self.text(f"SET {scope}search_path TO {APPLICATION_SCHEMA}, membrane, pg_temp")
        self.query(query, [value for value, _ in dumped], [form for _, form in dumped])
        self._queue("RESET ALL")
        self._queue(_UNLOCK)
        if self._settings:
            # RESET went back to what the server gives the login.
            self._queue(self._settings)

    def query(
        self,
        query: Query,
        values: list[Any],
        formats: list[Any],
        *,
        expect: int | None = None,
        refusal: Refusal = ExpectationError,
    ) -> None:
        """Queue a statement that is not prepared, with its parameters as they are sent."""
        try:
            self._pg.send_query_params(query.postgres.encode(), values, None, formats)
        except Error as error:
            raise self._lost(error) from error
        self._slots.append(_Slot(query, expect, None, self.op, refusal))

    def text(self, statement: str, *, alone: bool = False) -> None:
        """Queue a statement without parameters and without preparing it; `alone` is for those that allow no other."""
        if self._settings and not alone:
            self._set_outside_transaction()
        self._queue(statement)

    def _set_outside_transaction(self) -> None:
        """Give statements outside of a transaction their settings: all up to the next wait are one to the server."""
        if not self._slots and self._pg.transaction_status == pq.TransactionStatus.IDLE:
            self._queue(self._settings)

    def _queue(self, statement: str) -> None:
        try:
            self._pg.send_query_params(statement.encode(), None)
        except Error as error:
            raise self._lost(error) from error
        self._slots.append(_Slot(None, None, None, self.op))

    def sync(self) -> list[Row]:
        """Wait for everything queued; returns the rows of the last statement, or raises the first failure."""
        slots = self._slots
        self._slots = []
        rows: list[Row] = []
        failure: HoldproofError | None = None
        try:
            self._pg.pipeline_sync()
            self._flush()
            for slot in slots:
                is_prepared = slot.prepares is not None
                while (result := self._next()) is not None:
                    is_prepared = is_prepared and result.status == pq.ExecStatus.COMMAND_OK
                    if failure is None:
                        slot_rows, failure = self._read(result, slot)
                        rows = rows if slot.query is None and failure is None else slot_rows
                # After a failure the server skips the rest; after a refusal of ours (`guard`) it has gone on.
                if slot.prepares is not None and not is_prepared:
                    self._prepared.discard(slot.prepares)
            while (result := self._next()) is None or result.status != pq.ExecStatus.PIPELINE_SYNC:
                pass
        except Error as error:
            raise self._lost(error) from (failure or error)
        if failure is not None:
            self.wrote += 1  # which operation's statement it was is unknown here: the group must re-run to find out
            raise failure
        return rows

    def scrambled(self, name: str, password: str) -> str:
        """Return the SCRAM verifier that a server stores in place of a password."""
        return self._pg.encrypt_password(password.encode(), name.encode(), b"scram-sha-256").decode()

    def abandon(self) -> None:
        """Wait for what is queued and ignore failures."""
        with suppress(HoldproofError):
            self.sync()

    def notifications(self, wakeup: int) -> list[str]:
        """Wait for notifications and return their payloads; empty if the file descriptor `wakeup` is readable first."""
        poll = select.poll()
        poll.register(self._pg.socket, select.POLLIN)
        poll.register(wakeup, select.POLLIN)
        try:
            poll.poll()
            self._pg.consume_input()
            payloads = []
            while (note := self._pg.notifies()) is not None:
                payloads.append(note.extra.decode())
        except Error as error:
            raise self._lost(error) from error
        return payloads

    def close(self) -> None:
        """Close the connection."""
        self._pg.finish()

    def _read(self, result: Any, slot: _Slot) -> tuple[list[Row], HoldproofError | None]:
        query = slot.query
        if result.status not in (pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK):
            return [], _typed(result, query)
        if query is None:
            return [], None
        self.touched = result.command_tuples or 0
        if slot.op == self.op and query.kind != "read":
            self.wrote += self.touched if query.kind == "write" else 1
        if slot.expect is not None and self.touched != slot.expect:
            return [], slot.refusal(f"{query} touched {self.touched} rows, expected {slot.expect}")
        if not result.ntuples:
            return [], None
        loaders = self._loaders.get(query.number) if query.number >= 0 else None
        if loaders is None:
            loaders = self._loaders[query.number] = [loader(result.ftype(i)) for i in range(result.nfields)]
            self.columns = tuple((result.fname(i) or b"").decode() for i in range(result.nfields))
        columns = list(enumerate(loaders))
        get_value = result.get_value
        return [
            tuple(None if (data := get_value(row, column)) is None else load(data) for column, load in columns)
            for row in range(result.ntuples)
        ], None

    def _flush(self) -> None:
        while self._pg.flush():
            self._poll.modify(self._pg.socket, select.POLLIN | select.POLLOUT)
            for _, event in self._wait_readable():
                if event & ~select.POLLOUT:
                    self._pg.consume_input()
            self._poll.modify(self._pg.socket, select.POLLIN)

    def _next(self) -> Any:
        while self._pg.is_busy():
            self._wait_readable()
            self._pg.consume_input()
        return self._pg.get_result()

    def _wait_readable(self) -> list[tuple[int, int]]:
        """Wait for the server; raises OperationalError once it is silent and not working on our statement."""
        while not (events := self._poll.poll(self.silence_s * 1000)):
            if not self.is_active(self._pg.backend_pid) and not self._poll.poll(_GRACE_MS):
                raise OperationalError(f"the server has sent nothing for {self.silence_s:g} s")
        return events

    def _lost(self, error: Exception) -> ConnectionLostError:
        self._slots = []
        self._pg.finish()
        return ConnectionLostError(f"the connection to PostgreSQL broke: {words(error)}")


def connect(conninfo: str) -> pq.abc.PGconn:
    """Connect to the first host that accepts; UnavailableError says why the last one did not.

    libpq's own blocking connect would stop every thread of the interpreter; here only the calling thread waits. Each
    host has `connect_timeout` seconds, then the next one is tried.
    """
    reason = ""
    for host_conninfo, seconds in _hosts(conninfo):
        try:
            connection = pq.PGconn.connect_start(host_conninfo.encode())
            if _wait_connected(connection, time.monotonic() + seconds):
                return connection
            reason = connection.get_error_message() if connection.status == pq.ConnStatus.BAD else "timeout expired"
            connection.finish()
        except Error as error:
            reason = str(error)
    if NO_OPTIONS in words(reason):
        raise OptionsRefusedError(words(reason))
    raise UnavailableError(f"cannot connect to PostgreSQL: {words(reason)}")


def _hosts(conninfo: str) -> Iterator[tuple[str, float]]:
    """Yield connection strings for each host alone, with the seconds that may take."""
    parts: dict[str, Any] = conninfo_to_dict(conninfo)
    seconds = timeout_s(parts)
    listed = {name: str(parts[name]).split(",") for name in _PER_HOST if parts.get(name)}
    for number in range(max(map(len, listed.values()), default=1)):
        # A single port is meant for all hosts, so shorter lists are repeated.
        one_host = {name: values[number % len(values)] for name, values in listed.items()}
        yield make_conninfo(conninfo, **one_host), seconds


def timeout_s(parts: Mapping[str, Any]) -> float:
    """Return how long connecting to one host may take."""
    return max(_SHORTEST_TIMEOUT_S, float(parts.get("connect_timeout") or _CONNECT_TIMEOUT_S))


def _wait_connected(connection: pq.abc.PGconn, deadline: float) -> bool:
    """Return whether a connection was established before the deadline."""
    while connection.status != pq.ConnStatus.BAD:
        status = connection.connect_poll()
        if status not in _POLL_EVENTS:
            return status == pq.PollingStatus.OK
        poll = select.poll()  # a new one each time: libpq may have opened another socket
        poll.register(connection.socket, _POLL_EVENTS[pq.PollingStatus(status)])
        if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
            return False
    return False


def _typed(result: Any, query: Query | None) -> HoldproofError:
    state = (result.error_field(pq.DiagnosticField.SQLSTATE) or b"").decode()
    message = words(result.get_error_message())
    # SQL of applications has no number in the registry; every other statement is Holdproof's, and its text is right.
    if state in _NO_PRIVILEGE and (query is None or query.number >= 0):
        return MissingPrivilegeError(f"the login of the database URL lacks a right: {message}", sqlstate=state)
    # A pooler has one code for all that ends a connection, and says only here that it does.
    if state in _LOST or result.error_field(pq.DiagnosticField.SEVERITY) in _FATAL:
        return ConnectionLostError(f"the server closed the connection: {message}", sqlstate=state)
    kind = next((_TYPED[state[:n]] for n in range(5, 1, -1) if state[:n] in _TYPED), DatabaseError)
    # Whoever wrote SQL of an application has it before them; of Holdproof's own the place is what helps to find it.
    place = f" ({query})" if query is not None and query.number >= 0 else ""
    return kind(f"{message}{place}", sqlstate=state, tables=query.tables if query else ())


def words(error: object) -> str:
    """Return an error's message on one line."""
    return " ".join(str(error).split())
