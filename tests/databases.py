"""Databases of a real PostgreSQL, each for one test at a time, and put back afterwards.

A store has about a thousand relations, and copying their files took half the time of a test on PostgreSQL. So a test
gets a database that another has used: its rows are those of the template again. Where a test changed more than rows
(the catalogue, settings, statistics), or left the database in any doubt, it is dropped and the next one is a copy.
"""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import psycopg
from psycopg import sql

from harness.servers import Postgres

USES = 40
"""Deleted rows stay in the files, because nothing vacuums these servers: after so many tests a copy is cheaper."""

# What tells one catalogue from another: every row of it, by the transaction that wrote it. A copy has those of its
# template. A vacuum counts nothing here, for it changes rows in place.
_CATALOGUES = (
    "pg_class",
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
    "pg_namespace",
    "pg_statistic",
)
_FINGERPRINT = "SELECT " + ", ".join(
    f"(SELECT count(*) || ':' || coalesce(sum(hashint8(xmin::text::bigint)::bigint), 0) FROM {name})"
    for name in _CATALOGUES
)
_SETTINGS = """
    SELECT datdba, datacl::text, datconnlimit, datallowconn,
           (SELECT array_agg((setrole, setconfig)::text ORDER BY setrole)
              FROM pg_db_role_setting WHERE setdatabase = d.oid)
      FROM pg_database d WHERE datname = current_database()"""
_TABLES = """
    SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
     WHERE c.relkind = 'r' AND n.nspname <> 'information_schema' AND n.nspname NOT LIKE 'pg\\_%%' ORDER BY 1, 2"""
_SEQUENCES = "SELECT schemaname, sequencename, start_value, last_value FROM pg_sequences ORDER BY 1, 2"
_HANG_UP = """
    SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity
     WHERE datname = current_database() AND pid <> pg_backend_pid()"""

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
        if self._at_rest is None:
            self._at_rest = _AtRest.of(link)
        return _Used(name, link)

    def _is_restored(self, used: _Used) -> bool:
        assert self._at_rest is not None, "a database was taken before"
        if used.uses >= USES:
            return False
        try:
            return self._at_rest.restore(used.link)
        except psycopg.Error:
            return False  # the test dropped it, or ended its server


@dataclass(frozen=True)
class _AtRest:
    """What a database holds before a test."""

    fingerprint: list[_Row]
    rows: list[tuple[sql.Identifier, bytes]]
    """By table, as COPY writes them."""
    sequences: list[_Row]
    occupied: sql.Composed

    @classmethod
    def of(cls, link: psycopg.Connection[_Row]) -> "_AtRest":
        tables = [sql.Identifier(*name) for name in link.execute(_TABLES)]
        occupied = sql.SQL(" UNION ALL ").join(
            sql.SQL("SELECT {} WHERE EXISTS (SELECT 1 FROM {})").format(number, table)
            for number, table in enumerate(tables)
        )
        rows = [(table, _copy_out(link, table)) for table in tables]
        return cls(_catalogue(link), rows, link.execute(_SEQUENCES).fetchall(), occupied)

    def restore(self, link: psycopg.Connection[_Row]) -> bool:
        """Put the rows back; False where more than rows is different."""
        link.execute(_HANG_UP)
        if _catalogue(link) != self.fingerprint:
            return False
        occupied = {number for (number,) in link.execute(self.occupied, prepare=True)}
        with link.transaction():
            # Neither triggers nor references speak while rows are only put back.
            link.execute("SET LOCAL session_replication_role = replica")
            for number, (table, content) in enumerate(self.rows):
                if number in occupied:
                    link.execute(sql.SQL("DELETE FROM {}").format(table))
                if content:
                    _copy_in(link, table, content)
        for before, now in zip(self.sequences, link.execute(_SEQUENCES), strict=True):
            if before != now:
                _set_sequence(link, *before)
        return True


def _catalogue(link: psycopg.Connection[_Row]) -> list[_Row]:
    return [*link.execute(_FINGERPRINT, prepare=True), *link.execute(_SETTINGS, prepare=True)]


def _copy_out(link: psycopg.Connection[_Row], table: sql.Identifier) -> bytes:
    with link.cursor().copy(sql.SQL("COPY {} TO STDOUT").format(table)) as copy:
        return b"".join(bytes(block) for block in copy)


def _copy_in(link: psycopg.Connection[_Row], table: sql.Identifier, content: bytes) -> None:
    with link.cursor().copy(sql.SQL("COPY {} FROM STDIN").format(table)) as copy:
        copy.write(content)


def _set_sequence(link: psycopg.Connection[_Row], schema: str, name: str, start: int, last: int | None) -> None:
    value = start if last is None else last
    link.execute(
        "SELECT setval(format('%%I.%%I', %s::text, %s::text), %s, %s)", (schema, name, value, last is not None)
    )
