"""Opening a PostgreSQL database: its schema, its workers, its facts."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from holdproof.db.clock import Clock, Ids, Random
from holdproof.db.group_commit import GroupWriter, Hooks
from holdproof.db.postgres import login
from holdproof.db.postgres.connection import Connector, PostgresConnection, PostgresTx, ServerClock
from holdproof.db.postgres.listener import Listener
from holdproof.db.postgres.reader import PostgresReader
from holdproof.db.postgres.wire import Wire
from holdproof.db.sql import Dialect, sql_postgres, statements
from holdproof.db.topics import Topics
from holdproof.db.tx import NOTHING, Nothing, Tx
from holdproof.db.worker_pool import WorkerPool
from holdproof.errors import (
    ForeignFileError,
    HoldproofError,
)

T = TypeVar("T")


class PostgresBackend:
    """The parts of one PostgreSQL database."""

    dialect: Dialect = "postgres"
    notifies = True

    def __init__(
        self,
        connector: Connector,
        links: Sequence[PostgresConnection],
        pools: tuple[WorkerPool, WorkerPool],
        ear: Listener,
    ):
        self.writer, self.reader = pools
        self._connector, self._links, self._ear = connector, links, ear

    def peek(self, fn: Callable[[Tx], T], budget_s: float) -> T | Nothing:
        """See Backend: a server is always a wait away."""
        del fn, budget_s
        return NOTHING

    def facts(self) -> dict[str, Any]:
        """See Backend."""
        wire = self._connector.wire("holdproof-status", reads=True, patience_s=1)
        try:
            wire.send(_SIZE, {"space": self._connector.space})
            [(database, size)] = wire.sync()
            return {
                "backend": "postgres",
                "version": f"{wire.version // 10000}.{wire.version % 10000}",
                "path": f"{database}/{self._connector.space}",
                "bytes": {"database": size},
            }
        finally:
            wire.close()

    def check(self) -> list[str]:
        """See Backend: the server checks its own pages; here only that it answers."""
        try:
            self.facts()
        except HoldproofError as error:
            return [str(error)]
        return []

    def compact(self) -> None:
        """See Backend: dead rows become room for new ones, and what is free at the end of a table goes back."""
        wire = self._connector.wire("holdproof-compact", patience_s=2)
        try:
            wire.send(_NAMES, {"space": self._connector.space})
            for (name,) in wire.sync():
                wire.text(f'VACUUM "{self._connector.space}"."{name}"')
                wire.sync()
        finally:
            wire.close()

    def disown(self) -> None:
        """See Backend: the child opens connections of its own; the parent's are left alone."""

    def close(self) -> None:
        """See Backend."""
        self._ear.close()


_NAMES = sql_postgres(
    "SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = :space"
    " AND c.relkind = 'r' ORDER BY c.relname",
)
_SIZE = sql_postgres(
    "SELECT current_database(), coalesce(sum(pg_total_relation_size(c.oid)), 0) FROM pg_class c"
    " JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = :space"
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
) -> tuple[PostgresBackend, bool, Clock]:
    """Open a database of a server; also whether its schema is new, and the clock in use.

    Not as the `owner` of the schema means: under the membrane's own login.
    """
    connector = Connector(url, space, connect_s=connect_s, lock_s=lock_s, read_s=read_limit_s, silence_s=silence_s)
    steady = ServerClock()
    wire = connector.wire("holdproof-open", patience_s=2)
    try:
        steady.measure(wire)
        new = _prepare(wire, space)
        acting = None if owner else login.ensure(wire, random)
    finally:
        wire.close()
    if acting is not None:
        connector = connector.acting(*acting)
    moment = clock or steady
    ids = Ids(random)  # one maker: what this process makes later sorts later, whichever connection made it
    links = [PostgresConnection(connector, PostgresTx(moment, random, ids), steady) for _ in range(workers)]
    for link in links:
        link.mark_commits()
    writer = WorkerPool("writer", [GroupWriter(link, hooks) for link in links], batch=128)
    reading = [PostgresReader(connector, PostgresTx(moment, random), steady) for _ in range(readers)]
    reader = WorkerPool("reader", reading, batch=128)
    return PostgresBackend(connector, links, (writer, reader), Listener(connector, topics)), new, moment


_TABLES = sql_postgres(
    "SELECT count(*), coalesce(sum((c.relname = 'commit_marks')::int), 0) FROM pg_class c"
    " JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = :space"
    " AND c.relkind IN ('r', 'v', 'm', 'p', 'f')",
)


def _prepare(wire: Wire, space: str) -> bool:
    """Make our schema if it is missing; refuses one that somebody else filled."""
    wire.text("BEGIN")
    wire.send(_LOCK, {})
    wire.send(_TABLES, {"space": space})
    [(tables, ours)] = wire.sync()
    if tables and not ours:
        raise ForeignFileError(f"the schema {space} holds tables that are not Holdproof's", schema=space)
    if not ours:
        for statement in statements(_SCHEMA.format(space=space)):
            wire.text(statement)
    wire.send(_SWEEP, {})
    wire.text("COMMIT")
    wire.sync()
    return not ours


_LOCK = sql_postgres("SELECT pg_advisory_xact_lock(hashtext('holdproof schema'))")
_SWEEP = sql_postgres("DELETE FROM commit_marks WHERE at < now() - interval '7 days'")
_SCHEMA = """
CREATE SCHEMA IF NOT EXISTS {space};
REVOKE ALL ON SCHEMA {space} FROM PUBLIC;
CREATE TABLE {space}.commit_marks (worker TEXT PRIMARY KEY, mark TEXT NOT NULL, at TIMESTAMPTZ NOT NULL);
-- A role for each space, to be granted to logins; without the right to make roles the schema's owner works alone.
DO $$ BEGIN
  BEGIN
    CREATE ROLE holdproof_{space} NOLOGIN;
  EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL;
  END;
  GRANT USAGE ON SCHEMA {space} TO holdproof_{space};
  GRANT SELECT, INSERT, UPDATE, DELETE ON {space}.commit_marks TO holdproof_{space};
  ALTER DEFAULT PRIVILEGES IN SCHEMA {space} GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO holdproof_{space};
EXCEPTION WHEN insufficient_privilege THEN NULL;
END $$
"""
