"""What every store makes anew by the same migrations, made once a process and copied.

The migrations run for the first store, as shipped. They take fifty milliseconds in memory and half a second on
PostgreSQL, more than most tests do beside. HOLDPROOF_THOROUGH=1 runs them for every store.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, NoReturn

import apsw
import pytest

from holdproof.db import MEMORY, Database, Migration, Tx, migrate, open_database, sql
from holdproof.db.sql import sql_postgres
from holdproof.db.sqlite.reader import MemoryWorker
from holdproof.upkeep.verification import schema_check

_migrate = migrate.migrate
_scratch = schema_check._scratch

_STAMP = sql("UPDATE schema_migrations SET applied_at = :now")
# What the schema that verification compares with may depend on: the server, who may create it, and what others planted.
_CIRCUMSTANCES = sql_postgres(
    "SELECT pg_postmaster_start_time(), current_user, has_database_privilege(current_database(), 'CREATE'),"
    " current_setting('transaction_read_only'), (SELECT count(*) FROM pg_event_trigger),"
    " (SELECT count(*) FROM pg_proc WHERE pronamespace = 'public'::regnamespace),"
    " (SELECT count(*) FROM pg_operator WHERE oid >= 16384), (SELECT count(*) FROM pg_cast WHERE oid >= 16384)"
)


@contextmanager
def copied() -> Iterator[None]:
    """Copy what migrations made before, while this lasts."""
    built: dict[tuple[Any, ...], dict[str, str]] = {}

    def scratch(tx: Tx) -> NoReturn:
        row = tx.one(_CIRCUMSTANCES)
        assert row is not None
        # Tests of an upgrade ship another migration.
        circumstances = (*row, *(step.name for step in migrate.shipped("kernel")))
        if circumstances not in built:
            try:
                _scratch(tx)
            except schema_check._BuiltError as error:
                built[circumstances] = error.objects
        raise schema_check._BuiltError(dict(built[circumstances]))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(migrate, "migrate", _copy_or_migrate)
        patch.setattr(schema_check, "_scratch", scratch)
        yield


def _copy_or_migrate(database: Database, migrations: Sequence[Migration]) -> list[str]:
    """Migrate a database; a new one in memory, by the migrations of a kernel, becomes a copy of one that has them."""
    (worker, *_) = database.backend.writer.workers
    if not isinstance(worker, MemoryWorker) or not database.first_run or list(migrations) != _shipped():
        return _migrate(database, migrations)
    with worker._connection.backup("main", _template(), "main") as copy:
        copy.step()
    database.write(lambda tx: tx.execute(_STAMP, now=tx.now), ungated=True).result()
    return [migration.name for migration in migrations]


@cache
def _shipped() -> list[Migration]:
    return migrate.shipped("kernel")


@cache
def _template() -> apsw.Connection:
    """A kernel in memory that was migrated; nobody uses it but to copy it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(migrate, "migrate", _migrate)
        database = open_database(MEMORY)
    (worker, *_) = database.backend.writer.workers
    assert isinstance(worker, MemoryWorker)
    template = apsw.Connection(":memory:")
    with template.backup("main", worker._connection, "main") as copy:
        copy.step()
    database.close()
    return template
