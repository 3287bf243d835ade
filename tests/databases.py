"""Databases of a real PostgreSQL, each for one test at a time, and put back afterwards.

A store has about a thousand relations, and copying their files took half the time of a test on PostgreSQL. So a test
gets a database that another has used: its rows are those of the template again. Where a test changed more than rows
(the catalogue, settings, statistics), or left the database in any doubt, it is dropped and the next one is a copy.
"""

import itertools
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import psycopg
from psycopg import sql

from harness.servers import Postgres

USES = 40
"""Deleted rows stay in the files, because nothing vacuums these servers: after so many tests a copy is cheaper."""

# What tells one catalogue from another: how many rows it has, and how many were written since the database was put
# back last. A vacuum counts nothing here, for it changes rows in place.
_CATALOGUES = (
    "pg_attribute",
    "pg_attrdef",
    "pg_proc",
    "pg_type",
    "pg_constraint",
    "pg_trigger",
    "pg_rewrite",
    "pg_policy",
    "pg_default_acl",
    "pg_extension",
    "pg_event_trigger",
    "pg_statistic",
)
_FINGERPRINT = "WITH made AS (SELECT age(%s::xid) AS ago)"
_FINGERPRINT += " SELECT (SELECT count(*) FROM pg_class), (SELECT count(*) FROM pg_namespace), " + ", ".join(
    f"(SELECT count(*) FROM {name}), (SELECT count(*) FROM {name}, made WHERE age({name}.xmin) < ago)"
    for name in _CATALOGUES
)
# Opening the application tables grants once more what was granted before, so what these rows say is compared.
_GRANTED = """
    SELECT 'pg_class', c.oid::bigint, c::text FROM pg_class c WHERE age(c.xmin) < {ago}
    UNION ALL SELECT 'pg_namespace', n.oid::bigint, n::text FROM pg_namespace n WHERE age(n.xmin) < {ago}"""
_SETTINGS = """
    SELECT datdba, datacl::text, datconnlimit, datallowconn,
           (SELECT array_agg((setrole, setconfig)::text ORDER BY setrole)
              FROM pg_db_role_setting WHERE setdatabase = d.oid)
      FROM pg_database d WHERE datname = current_database()"""
_TABLES = """
    SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
     WHERE c.relkind = 'r' AND n.nspname <> 'information_schema' AND n.nspname NOT LIKE 'pg\\_%%' ORDER BY 1, 2"""
_SEQUENCES = "SELECT schemaname, sequencename, start_value, last_value FROM pg_sequences ORDER BY 1, 2"
_SESSIONS = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
_PATIENCE_S = 0.05
_HANG_UP = """
    SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity
     WHERE datname = current_database() AND pid <> pg_backend_pid()"""

_NOW = "SELECT pg_current_xact_id()::xid::text"

_NUMBERS = itertools.count()  # each worker has servers of its own, so that numbers suffice as names of databases

_Row = tuple[Any, ...]


@contextmanager
def fresh_database(
    server: Postgres, *, name: str | None = None, template: str = "template1", drop: bool = True
) -> Iterator[str]:
    """A database that is made for the block, and dropped after it unless it is to stay."""
    name = name or f"t{next(_NUMBERS)}"
    # A copy of files: the default logs every block of the template a second time.
    server.sql(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy")
    try:
        yield server.url(name)
    finally:
        if drop:
            server.sql(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


@dataclass
class _Used:
    """A database of the pool, and the connection that puts it back."""

    name: str
    link: psycopg.Connection[_Row]
    restored_at: str
    """The transaction that put its rows back last; what is younger, a test wrote."""
    uses: int = 0


@dataclass
class DatabasePool:
    """Databases that are alike: copies of one template."""

    server: Postgres
    template: str
    _idle: list[_Used] = field(default_factory=list)
    _at_rest: "_AtRest | None" = None

    @contextmanager
    def database(self) -> Iterator[str]:
        """The URL of a database that is as the template, for one test."""
        used = self._idle.pop() if self._idle else self._copy()
        used.uses += 1
        try:
            yield self.server.url(used.name)
        finally:
            if self._is_restored(used):
                self._idle.append(used)
            else:
                used.link.close()
                self.server.sql(f"DROP DATABASE IF EXISTS {used.name} WITH (FORCE)")

    def close(self) -> None:
        """Hang up; the server goes with its databases."""
        for used in self._idle:
            used.link.close()

    def _copy(self) -> _Used:
        name = f"t{next(_NUMBERS)}"
        self.server.sql(f"CREATE DATABASE {name} TEMPLATE {self.template} STRATEGY file_copy")
        link = psycopg.connect(self.server.url(name), autocommit=True)
        used = _Used(name, link, _now(link))
        if self._at_rest is None:
            self._at_rest = _AtRest.of(used)
        return used

    def _is_restored(self, used: _Used) -> bool:
        assert self._at_rest is not None, "a database was taken before"
        if used.uses >= USES:
            return False
        try:
            return self._at_rest.restore(used)
        except psycopg.Error:
            return False  # the test dropped it, or ended its server


@dataclass(frozen=True)
class _AtRest:
    """What a database holds before a test."""

    fingerprint: list[_Row]
    granted: set[_Row]
    tables: list[str]
    contents: list[bytes]
    """By table, as COPY writes them."""
    sequences: list[_Row]
    changed: str
    """The statement that numbers the tables in which a test left something else."""

    @classmethod
    def of(cls, used: _Used) -> "_AtRest":
        link = used.link
        tables = [sql.Identifier(*name).as_string(link) for name in link.execute(_TABLES)]
        contents = [_copy_out(link, table) for table in tables]
        changed = " UNION ALL ".join(map(_is_changed, itertools.count(), tables, contents))
        changed = f"WITH restored AS (SELECT age(%s::xid) AS ago) {changed}"
        granted = set(link.execute(_GRANTED.format(ago="2147483647").encode()))
        return cls(_catalogue(used), granted, tables, contents, link.execute(_SEQUENCES).fetchall(), changed)

    def restore(self, used: _Used) -> bool:
        """Put the rows back; False where more than rows is different."""
        link = used.link
        _hang_up(link)
        if _catalogue(used) != self.fingerprint or not self.granted.issuperset(_granted(used)):
            return False
        changed = [number for (number,) in link.execute(self.changed.encode(), [used.restored_at], prepare=True)]
        if changed:
            # Neither triggers nor references speak while rows are only put back.
            deletions = "".join(f"; DELETE FROM {self.tables[number]}" for number in changed)
            link.execute(f"BEGIN; SET LOCAL session_replication_role = replica{deletions}".encode())
            for number in changed:
                if self.contents[number]:
                    _copy_in(link, self.tables[number], self.contents[number])
            used.restored_at = _now(link)
            link.execute("COMMIT")
        for before, now in zip(self.sequences, link.execute(_SEQUENCES, prepare=True), strict=True):
            if before != now:
                _set_sequence(link, *before)
        return True


def _is_changed(number: int, table: str, content: bytes) -> str:
    """A statement that returns the number where the table holds other rows than at rest."""
    if not content:
        return f"SELECT {number} WHERE EXISTS (SELECT 1 FROM {table})"
    rows = content.count(b"\n")
    young = f"count(*) FILTER (WHERE age({table}.xmin) < ago)"
    return f"SELECT {number} FROM {table}, restored HAVING count(*) <> {rows} OR {young} > 0"


def _hang_up(link: psycopg.Connection[_Row]) -> None:
    """End all other sessions; those whose clients hung up end by themselves, sooner than the server looks again."""
    deadline = time.monotonic() + _PATIENCE_S
    while link.execute(_SESSIONS, prepare=True).fetchone() != (0,):
        if time.monotonic() > deadline:
            link.execute(_HANG_UP)
            return
        time.sleep(0.003)


def _now(link: psycopg.Connection[_Row]) -> str:
    [(number,)] = link.execute(_NOW)
    return str(number)


def _granted(used: _Used) -> list[_Row]:
    """What was written to the rows of relations and schemas since the database was put back last."""
    ago = "(SELECT age(%(at)s::xid))"
    return used.link.execute(_GRANTED.format(ago=ago).encode(), {"at": used.restored_at}, prepare=True).fetchall()


def _catalogue(used: _Used) -> list[_Row]:
    fingerprint = used.link.execute(_FINGERPRINT.encode(), [used.restored_at], prepare=True)
    return [*fingerprint, *used.link.execute(_SETTINGS, prepare=True)]


def _copy_out(link: psycopg.Connection[_Row], table: str) -> bytes:
    with link.cursor().copy(f"COPY {table} TO STDOUT".encode()) as copy:
        return b"".join(bytes(block) for block in copy)


def _copy_in(link: psycopg.Connection[_Row], table: str, content: bytes) -> None:
    with link.cursor().copy(f"COPY {table} FROM STDIN".encode()) as copy:
        copy.write(content)


def _set_sequence(link: psycopg.Connection[_Row], schema: str, name: str, start: int, last: int | None) -> None:
    value = start if last is None else last
    link.execute(
        "SELECT setval(format('%%I.%%I', %s::text, %s::text), %s, %s)", (schema, name, value, last is not None)
    )
