"""Open a PostgreSQL database: its schema, workers, notifications and facts."""

import socket
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from holdproof.db import row_security
from holdproof.db.clock import Clock, Ids, Random
from holdproof.db.group_commit import GroupWriter, Hooks
from holdproof.db.postgres import engine, login
from holdproof.db.postgres.borrowed import Borrower, driver_of
from holdproof.db.postgres.commit_marks import ProcessMarks
from holdproof.db.postgres.connection import PostgresConnection, PostgresTx, ServerClock
from holdproof.db.postgres.connector import Connector
from holdproof.db.postgres.login import SERVED
from holdproof.db.postgres.reader import PostgresReader
from holdproof.db.postgres.wire import Wire
from holdproof.db.sql import Dialect, sql_postgres, statements
from holdproof.db.topics import Topics
from holdproof.db.tx import APPLICATION_SCHEMA, NOT_RUN, NotRun, Refused, Tx
from holdproof.db.worker_pool import WorkerPool
from holdproof.errors import (
    ConfigError,
    ConstraintError,
    ForeignFileError,
    HoldproofError,
    MissingPrivilegeError,
    QueryError,
    ReadOnlyError,
)

T = TypeVar("T")


class PostgresBackend:
    """The parts of one PostgreSQL database."""

    dialect: Dialect = "postgres"

    def __init__(
        self,
        connector: Connector,
        *,
        writer: WorkerPool,
        reader: WorkerPool,
        listener: "Listener | None",
        borrower: Borrower | None = None,
        confines: bool = False,
    ) -> None:
        self.writer = writer
        self.reader = reader
        self.notifies = listener is not None
        self._connector = connector
        self._listener = listener
        self._borrower = borrower
        self._confines = confines

    def write_in(
        self, connection: Any, fn: Callable[[Tx], T | Refused], hooks: Hooks, confirm: Callable[[], None]
    ) -> T:
        """See Backend."""
        if self._borrower is None:
            raise ReadOnlyError("the store was opened to read only")
        return self._borrower.run(connection, fn, hooks, confirm)

    def driver_of(self, connection: Any) -> Any:
        """See Backend."""
        return driver_of(connection)

    def peek(self, fn: Callable[[Tx], T], budget_s: float) -> T | NotRun:
        """See Backend; a server cannot be read without waiting."""
        del fn, budget_s
        return NOT_RUN

    def facts(self) -> dict[str, Any]:
        """See Backend."""
        wire = self._connector.wire("holdproof-status", reads=True, patience_s=1, catalog_only=True)
        try:
            wire.send(_SIZE, {"space": self._connector.space})
            [(database, size)] = wire.sync()
            return {
                "backend": "postgres",
                "version": f"{wire.version // 10000}.{wire.version % 10000}",
                "path": f"{database}/{self._connector.space}",
                "pooled": self._connector.pooled,
                "row_security": self._confines,
                "bytes": {"database": size},
            }
        finally:
            wire.close()

    def check(self) -> list[str]:
        """See Backend; the server checks its pages itself, so this only checks that it answers."""
        try:
            self.facts()
        except HoldproofError as error:
            return [str(error)]
        return []

    def compact(self) -> None:
        """See Backend; VACUUM makes the space of dead rows reusable and returns free pages at the end of a table."""
        wire = self._connector.wire("holdproof-compact", patience_s=2, catalog_only=True)
        try:
            wire.send(_NAMES, {"space": self._connector.space})
            for (name,) in wire.sync():
                wire.text(f'VACUUM "{self._connector.space}"."{name}"', alone=True)
                wire.sync()
        finally:
            wire.close()

    def disown(self) -> None:
        """See Backend; nothing to do: the child opens connections of its own and never uses the parent's."""

    def close(self) -> None:
        """See Backend."""
        if self._listener is not None:
            self._listener.close()


class Listener:
    """A thread that receives the notifications of other processes and signals their topics in this one."""

    def __init__(self, connector: Connector, topics: Topics) -> None:
        self._connector = connector
        self._topics = topics
        self._closing = threading.Event()
        # `close` writes one byte to the second socket, which ends the wait on the first.
        self._wakeup, self._waker = socket.socketpair()
        self._thread = threading.Thread(target=self._listen, name="holdproof-listener", daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        wire: Wire | None = None
        while not self._closing.is_set():
            try:
                if wire is None:
                    wire = self._connector.wire("holdproof-listener", patience_s=1, catalog_only=True)
                    wire.text(f"LISTEN {self._connector.channel}")
                    wire.sync()
                for payload in wire.notifications(self._wakeup.fileno()):
                    self._topics.signal(payload.split("\n"))
            except HoldproofError:  # waiters look by themselves meanwhile, so a lost connection only costs time
                wire = None
                self._closing.wait(0.2)
        if wire is not None:
            wire.close()

    def close(self) -> None:
        """Stop listening."""
        self._closing.set()
        self._waker.send(b"!")
        self._thread.join(5)
        self._waker.close()
        if not self._thread.is_alive():
            self._wakeup.close()


_NAMES = sql_postgres(
    "SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = :space"
    " AND c.relkind IN ('r', 'p') AND NOT c.relispartition ORDER BY c.relname",
)
_SIZE = sql_postgres(
    "SELECT current_database(), coalesce(sum(pg_total_relation_size(c.oid)), 0) FROM pg_class c"  # noqa: S608
    # What applications created counts for the space that they use.
    " JOIN pg_namespace n ON n.oid = c.relnamespace WHERE (n.nspname = :space"
    f" OR (n.nspname = '{APPLICATION_SCHEMA}' AND :space::text = '{SERVED}'))"
    " AND c.relkind IN ('r', 'v', 'm', 'p', 'f')",
)


def open_postgres(
    url: str,
    *,
    space: str,
    hooks: Hooks,
    topics: Topics,
    clock: Clock | None,
    random: Random,
    workers: int = 4,
    readers: int = 2,
    connect_s: float = 30.0,
    lock_s: float = 10.0,
    read_limit_s: float = 30.0,
    silence_s: float | None = None,
    owner: bool = True,
    readonly: bool = False,
    direct_url: str | None = None,
) -> tuple[PostgresBackend, bool, Clock]:
    """Open a database of a server; returns the backend, whether its schema is new, and the clock in use.

    With `owner=False` it is used under the login of the application tables, which has fewer rights; with `readonly`
    nothing is created, and no connection writes. `direct_url` names the same server without the pooler before it.
    """
    connector = Connector(
        url,
        space,
        connect_s=connect_s,
        lock_s=lock_s,
        read_s=read_limit_s,
        silence_s=silence_s,
        direct_url=direct_url,
    )
    server_clock = ServerClock()
    wire = connector.wire("holdproof-open", patience_s=2, catalog_only=True)
    try:
        _refuse_other_server(connector, wire)
        engine.refuse_unable(wire, random)
        server_clock.measure(wire)
        # A store that is only read takes no advisory lock, so that it needs no seed for their keys.
        new, seed = (False, 0) if readonly else _prepare(wire, space, random)
        confines = _confines(wire, space)
        if not owner:
            renew = partial(_renew_login, connector, random)
            connector = connector.for_applications(login.ensure(wire, random), renew)
    finally:
        wire.close()
    used_clock = clock or server_clock
    ids = Ids(random)  # shared by all connections, so that later ids of this process sort later
    marks = ProcessMarks(hooks.history_lost)
    new_tx = partial(PostgresTx, used_clock, random, ids, lock_seed=seed)
    connections = [PostgresConnection(connector, new_tx(), server_clock, marks.new_worker()) for _ in range(workers)]
    for connection in connections:
        connection.tx.confines = confines
    # A mark is a row: a store that is only read has none.
    if not readonly:
        for connection in connections:
            connection.mark_commits()
        # One is stored now, by which a borrowed connection is recognised. The others connect when they are needed:
        # the pool wakes the last worker first, and most stores are closed before a second one had anything to write.
        connections[-1].connect()
    writer = WorkerPool("writer", [GroupWriter(connection, hooks) for connection in connections], batch=128)
    reading_txs = [PostgresTx(used_clock, random) for _ in range(readers)]
    for tx in reading_txs:
        tx.confines = confines
    reading = [PostgresReader(connector, tx, server_clock) for tx in reading_txs]
    reader = WorkerPool("reader", reading, batch=128)
    # A notification needs a session that lasts; without one, waiters look for themselves more often.
    sessions = connector.for_sessions
    listener = None if sessions is None else Listener(sessions, topics)
    borrower = None if readonly else Borrower(connector, marks, new_tx)
    backend = PostgresBackend(
        connector, writer=writer, reader=reader, listener=listener, borrower=borrower, confines=confines
    )
    return backend, new, used_clock


def _confines(wire: Wire, space: str) -> bool:
    """Return whether operations of a bound client can be kept in their namespace by the server."""
    if space != "kernel":
        return False
    wire.send(row_security.IS_READY, {})
    return wire.sync() == [(True,)]


_SERVER = sql_postgres(
    "SELECT d.oid::bigint, extract(epoch FROM pg_postmaster_start_time())::text FROM pg_database d"
    " WHERE d.datname = current_database()"
)


def _refuse_other_server(connector: Connector, wire: Wire) -> None:
    """Raise ConfigError where the direct URL names another database: notifications would never arrive."""
    sessions = connector.for_sessions
    if sessions is None or sessions is connector:
        return
    wire.send(_SERVER, {})
    pooled = wire.sync()
    direct = sessions.wire("holdproof-open", patience_s=2, catalog_only=True)
    try:
        direct.send(_SERVER, {})
        if direct.sync() != pooled:
            raise ConfigError("the direct URL names another database than the one behind the pooler")
        if sessions.pooled:
            raise ConfigError("the direct URL names a pooler as well; name the server itself")
    finally:
        direct.close()


def _renew_login(owner: Connector, random: Random) -> tuple[str, str] | None:
    """Undo what the login of applications changed about itself, while a store is open."""
    wire = owner.wire("holdproof-login", patience_s=0, catalog_only=True)
    try:
        return login.ensure(wire, random)
    finally:
        wire.close()


_TABLES = sql_postgres(
    "SELECT count(*), coalesce(sum((c.relname = 'commit_marks')::int), 0) FROM pg_class c"
    " JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = :space"
    " AND c.relkind IN ('r', 'v', 'm', 'p', 'f')",
)
_USABLE = sql_postgres("SELECT has_schema_privilege(n.oid, 'USAGE') FROM pg_namespace n WHERE n.nspname = :space")
_CREATORS = sql_postgres(
    "SELECT CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE pg_get_userbyid(a.grantee)::text END"
    " FROM pg_namespace n, aclexplode(n.nspacl) a WHERE n.nspname = :space AND a.privilege_type = 'CREATE'"
    " AND a.grantee <> n.nspowner AND pg_get_userbyid(a.grantee) <> current_user"
)
_CREATE_ATTEMPTS = 5
_RACED = (ConstraintError, QueryError)


def _prepare(wire: Wire, space: str, random: Random) -> tuple[bool, int]:
    """Create the schema if it is missing; returns whether it was, and the seed of its advisory locks.

    ForeignFileError if it has tables of others, MissingPrivilegeError if this login may not use it.
    """
    for attempts_left in reversed(range(_CREATE_ATTEMPTS)):
        try:
            return _prepare_once(wire, space, random)
        except _RACED:
            # Another process created or exchanged the schema at the same moment; the next look finds it.
            wire.abandon()
            wire.text("ROLLBACK")
            wire.sync()
            if not attempts_left:
                raise
    raise AssertionError("the last attempt raises")


def _prepare_once(wire: Wire, space: str, random: Random) -> tuple[bool, int]:
    wire.begin()
    wire.send(_TABLES, {"space": space})
    [(tables, ours)] = wire.sync()
    # commit_marks is created with the schema, so a schema of ours always has it.
    if tables and not ours:
        raise ForeignFileError(f"the schema {space} holds tables that are not Holdproof's", schema=space)
    if not ours:
        for statement in statements(_SCHEMA.format(space=space)):
            wire.text(statement)
    _refuse_creators(wire, space)
    wire.text(f"LOCK TABLE {space}.commit_marks IN SHARE UPDATE EXCLUSIVE MODE")
    # Only now, when nobody else can create anything there.
    wire.text(f"SET LOCAL search_path TO {space}, pg_temp")
    wire.send(_SWEEP, {})
    seed = _lock_seed(wire, space, random)
    wire.text("COMMIT")
    wire.sync()
    return not ours, seed


def _refuse_creators(wire: Wire, space: str) -> None:
    """Refuse a schema that this login may not use, or in which others could plant functions for its owner to call."""
    wire.send(_USABLE, {"space": space})
    if wire.sync() == [(False,)]:
        raise MissingPrivilegeError(
            f"this login may not use the schema {space}; as its owner run: GRANT holdproof_{space} TO the login"
            " (`holdproof db roles` prints the rights of all logins)",
            schema=space,
        )
    wire.send(_CREATORS, {"space": space})
    if creators := [str(role) for (role,) in wire.sync()]:
        raise ConfigError(
            f"{', '.join(creators)} may create objects in the schema {space}, which its owner's statements would call;"
            f" run: REVOKE CREATE ON SCHEMA {space} FROM {', '.join(creators)}",
            schema=space,
        )


def _lock_seed(wire: Wire, space: str, random: Random) -> int:
    """Return the number that is hashed into advisory keys, stored with the marks; drawn at the first opening."""
    # The login of applications may change the marks of its schema: processes that read different seeds would not
    # exclude each other. What it holds up there is its own.
    if space == SERVED:
        return 0
    wire.send(_ADD_SEED, {"worker": _SEED, "seed": str(int.from_bytes(random(8), "big") >> 1)})
    wire.send(_READ_SEED, {"worker": _SEED})
    [(seed,)] = wire.sync()
    return int(seed)


_SEED = "lock seed"
_ADD_SEED = sql_postgres(
    "INSERT INTO commit_marks (worker, mark, at) VALUES (:worker, :seed, 'infinity') ON CONFLICT (worker) DO NOTHING"
)
_READ_SEED = sql_postgres("SELECT mark FROM commit_marks WHERE worker = :worker")
# The mark of a worker that is connected stays, however old: without it its next commit would look lost.
_SWEEP = sql_postgres(
    "DELETE FROM commit_marks WHERE at < now() - interval '7 days' AND NOT EXISTS"
    " (SELECT 1 FROM pg_stat_activity a WHERE a.application_name = worker)"
)


def is_there(url: str, space: str) -> bool:
    """Return whether the schema of a space exists and is ours; creates nothing."""
    connector = Connector(url, space, connect_s=30.0, lock_s=10.0, read_s=30.0)
    wire = connector.wire("holdproof-look", reads=True, patience_s=2)
    try:
        wire.send(_TABLES, {"space": space})
        [(_, ours)] = wire.sync()
        return bool(ours)
    finally:
        wire.close()


_SCHEMA = """
CREATE SCHEMA IF NOT EXISTS {space};
REVOKE ALL ON SCHEMA {space} FROM PUBLIC;
CREATE TABLE {space}.commit_marks (worker TEXT PRIMARY KEY, mark TEXT NOT NULL, at TIMESTAMPTZ NOT NULL);
-- A role for each space, to be granted to logins; without the right to make roles
-- those that an administrator made get their rights, else the schema's owner works alone.
DO $$ BEGIN
  BEGIN
    CREATE ROLE holdproof_{space} NOLOGIN;
  EXCEPTION WHEN duplicate_object OR unique_violation OR insufficient_privilege THEN NULL;
  END;
  GRANT USAGE ON SCHEMA {space} TO holdproof_{space};
  GRANT SELECT, INSERT, UPDATE, DELETE ON {space}.commit_marks TO holdproof_{space};
  ALTER DEFAULT PRIVILEGES IN SCHEMA {space} GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO holdproof_{space};
  ALTER DEFAULT PRIVILEGES IN SCHEMA {space} GRANT USAGE ON SEQUENCES TO holdproof_{space};
EXCEPTION WHEN insufficient_privilege OR undefined_object THEN NULL;
END $$
"""
