"""Operations inside a transaction that the caller owns, on a connection of psycopg or SQLAlchemy.

Rules:
- The connection is one to the same database: a mark of this very process has to be found there (commit_marks.py). It is
  in a transaction, or begins one; in autocommit mode nothing would roll back, so that is refused, and so is any other
  isolation than READ COMMITTED, under which guards see what was committed before them.
- Entries of the log wait in `log_pending` like any others, in the caller's transaction: a sequencer takes what is
  committed, whatever its order, and sees nothing of what was rolled back. No worker and no group commit is involved.
- An operation that fails is rolled back alone, to a savepoint: the caller's transaction goes on.
- Settings of the connection are as before afterwards, except that the commit is durable.
- Locks that an operation takes are held until the caller commits: others who need the same flow wait so long, ten
  seconds at most.
- Who waits for what the operation brings is notified by the commit itself.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from psycopg import AsyncConnection, Connection, Error, IsolationLevel, pq

from holdproof.db.group_commit import Hooks
from holdproof.db.postgres.commit_marks import ProcessMarks
from holdproof.db.postgres.connection import PostgresTx, send_notifications
from holdproof.db.postgres.connector import Connector
from holdproof.db.postgres.text import dump
from holdproof.db.postgres.wire import Wire
from holdproof.db.sql import Query, sql_postgres
from holdproof.db.tx import Refusal, Refused, Tx
from holdproof.errors import ExpectationError, ForeignTransactionError, HoldproofError, MissingPrivilegeError

T = TypeVar("T")
Driver = Connection[Any] | AsyncConnection[Any]

_SAVEPOINT: Final = "holdproof"
_PATIENCE_S: Final = 60.0


class _BorrowedWire(Wire):
    """A connection of the caller's in pipeline mode for a while; nothing is prepared on it."""

    def __init__(self, connection: pq.abc.PGconn) -> None:
        # A server that works on a statement of ours is waited for: the caller's own settings limit that.
        self._use(connection, silence_s=_PATIENCE_S, is_active=lambda _: True)

    def send(
        self, query: Query, params: Mapping[str, Any], expect: int | None = None, refusal: Refusal = ExpectationError
    ) -> None:
        """See Wire; without a prepared statement, whose name would stay on a connection that is not ours."""
        dumped = [dump(name, params[name]) for name in query.names]
        values = [value for value, _ in dumped]
        self.query(query, values, [form for _, form in dumped], expect=expect, refusal=refusal)

    def give_back(self) -> None:
        """Leave pipeline mode, so that the caller's driver can use the connection again."""
        if self.alive:
            self.abandon()
            self._pg.exit_pipeline_mode()


_SETTINGS: Final = ("search_path", "lock_timeout", "TimeZone", "DateStyle", "bytea_output", "extra_float_digits")
_READ_SETTINGS = sql_postgres(
    "SELECT " + ", ".join(f"pg_catalog.current_setting('{name}')" for name in (*_SETTINGS, "transaction_isolation"))
)
_SET = sql_postgres("SELECT pg_catalog.set_config(:name, :value, true)")
_FIND_MARK = sql_postgres("SELECT 1 FROM commit_marks WHERE starts_with(worker, :prefix) LIMIT 1")


class Borrower:
    """Runs operations on connections of callers, for one open database."""

    def __init__(self, connector: Connector, marks: ProcessMarks, new_tx: Callable[[], PostgresTx]) -> None:
        self._connector = connector
        self._marks = marks
        self._new_tx = new_tx

    def run(self, driver: Driver, fn: Callable[[Tx], T | Refused], hooks: Hooks, confirm: Callable[[], None]) -> T:
        """Run a function of a transaction in that of the caller; returns its result, which the caller commits."""
        self._marks.refuse_lost()
        wire = _BorrowedWire(_ready(driver))
        try:
            with self._settings(wire), _savepoint(wire):
                self._check_database(wire)
                result = self._run(wire, fn, hooks)
                confirm()
        finally:
            wire.give_back()
        if isinstance(result, Refused):  # its writes are the caller's to commit, as is its error to handle
            raise result.error
        return result

    def _run(self, wire: Wire, fn: Callable[[Tx], T | Refused], hooks: Hooks) -> T | Refused:
        tx = self._new_tx()
        tx.wire = wire
        for gate in hooks.gate:
            gate(tx)
        result = fn(tx)
        if tx.broken is not None:
            raise tx.broken
        tx.accept_notes()
        hooks.run_commit_hooks(tx)
        # Nobody here hears of the caller's commit.
        for hook in hooks.on_borrowed:
            hook(tx)
        tx.accept_notes()
        send_notifications(wire, self._connector.channel, tx.notes)
        tx.settle()
        return result

    @contextmanager
    def _settings(self, wire: Wire) -> Iterator[None]:
        """Use the settings of this store's connections for a while; the caller's are restored."""
        wire.send(_READ_SETTINGS, {})
        [(*before, isolation)] = wire.sync()
        if isolation != "read committed":
            raise ForeignTransactionError(f"the transaction is {isolation.upper()}: use READ COMMITTED")
        ours = {name: value for name, value in self._connector.settings.items() if name in _SETTINGS}
        # Durable until the end of the transaction: what was committed without it could get lost with its entry.
        for name, value in {**ours, "synchronous_commit": "on"}.items():
            wire.send(_SET, {"name": name, "value": value})
        wire.sync()
        try:
            yield
        finally:
            # A failed transaction takes no statement; its settings end with it.
            if wire.alive and not wire.failed:
                for name, value in zip(_SETTINGS, before, strict=True):
                    wire.send(_SET, {"name": name, "value": value})
                wire.sync()

    def _check_database(self, wire: Wire) -> None:
        try:
            wire.send(_FIND_MARK, {"prefix": self._marks.prefix})
            if wire.sync():
                return
        except MissingPrivilegeError:
            raise
        except HoldproofError as error:
            raise _elsewhere() from error
        raise _elsewhere()


def _elsewhere() -> ForeignTransactionError:
    return ForeignTransactionError("the connection is one to another database than that of the store")


@contextmanager
def _savepoint(wire: Wire) -> Iterator[None]:
    """Roll an operation that fails back alone."""
    wire.text(f"SAVEPOINT {_SAVEPOINT}")
    try:
        yield
        wire.text(f"RELEASE {_SAVEPOINT}")
        wire.sync()
    except BaseException:
        if wire.alive:
            wire.abandon()
            wire.text(f"ROLLBACK TO {_SAVEPOINT}")
            wire.text(f"RELEASE {_SAVEPOINT}")
            wire.sync()
        raise


def driver_of(connection: Any) -> Driver:
    """Return the psycopg connection under a connection or session; ForeignTransactionError where there is none."""
    current = connection
    # A session of SQLAlchemy: its connection is the one that its transaction is on.
    if hasattr(current, "get_bind") and callable(getattr(current, "connection", None)):
        current = current.connection()
    if hasattr(current, "in_transaction") and hasattr(current, "dialect"):
        # SQLAlchemy commits only what it has begun itself.
        if not current.in_transaction():
            current.begin()
        current = getattr(current.connection, "driver_connection", None)
    if not isinstance(current, Connection | AsyncConnection):
        kind = type(connection).__name__
        raise ForeignTransactionError(f"{kind} is no connection of psycopg 3, nor one of SQLAlchemy over it")
    return current


def _ready(driver: Driver) -> pq.abc.PGconn:
    """Return the connection of a driver, in a transaction."""
    connection = driver.pgconn
    status = connection.transaction_status
    if driver.closed:
        raise ForeignTransactionError("the connection is closed")
    if connection.pipeline_status != pq.PipelineStatus.OFF:
        raise ForeignTransactionError("the connection is in pipeline mode: leave it before")
    if status == pq.TransactionStatus.INERROR:
        raise ForeignTransactionError("the transaction has failed: roll it back before")
    if driver.info.encoding != "utf-8":
        raise ForeignTransactionError(f"the connection is in {driver.info.encoding}: use UTF-8")
    if status != pq.TransactionStatus.IDLE:
        return connection
    if driver.autocommit:
        raise ForeignTransactionError("the connection is in autocommit mode: open a transaction before")
    if driver.isolation_level not in (None, IsolationLevel.READ_COMMITTED):
        raise ForeignTransactionError("the connection begins other transactions than READ COMMITTED")
    try:
        # As the driver does it before its first statement.
        result = connection.exec_(b"BEGIN")
    except Error as error:
        raise ForeignTransactionError(f"the connection is broken: {error}") from error
    if result.status != pq.ExecStatus.COMMAND_OK:
        raise ForeignTransactionError("no transaction could be begun on the connection")
    return connection
