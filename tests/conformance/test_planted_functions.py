"""SQL of applications on PostgreSQL gains no right of the owner, and holds no lock that the store needs."""

import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from holdproof import errors, sync
from holdproof.db import open_database
from holdproof.db.sql import QUERIES
from holdproof.db.tx import APPLICATION_SCHEMA
from holdproof.executors import SyncExecutor
from holdproof.storage.relational import Relational

_CALLS = re.compile(r"\b([a-z_]\w*)\s*\(", re.IGNORECASE)
# Whatever a parameter or a literal is taken for, one of these is its exact type.
_TYPES = ("integer", "bigint", "text", "timestamptz", "boolean")
_SCHEMAS_OF_OTHERS = ("membrane", "kernel", "telemetry", "public")


@pytest.fixture
def application(postgres_url: str) -> Iterator[Relational[SyncExecutor]]:
    store = Relational(SyncExecutor(open_database(postgres_url, space="membrane", workers=1, readers=1)))
    yield store
    store.close()


def _login(url: str) -> str:
    with psycopg.connect(url) as owner:
        [(name, password)] = owner.execute("SELECT name, password FROM membrane.membrane_login").fetchall()
    return make_conninfo(url, user=name, password=password)


def _called_functions(url: str) -> dict[str, set[int]]:
    """Every function of the server that a statement of the registry calls, with the numbers of its arguments."""
    names = {name.lower() for query in QUERIES for name in _CALLS.findall(query.postgres)}
    with psycopg.connect(url) as owner:
        rows = owner.execute(
            "SELECT proname, pronargs FROM pg_proc"
            " WHERE pronamespace = 'pg_catalog'::regnamespace AND proname = ANY(%s)",
            (sorted(names),),
        ).fetchall()
    functions: dict[str, set[int]] = {}
    for name, arguments in rows:
        functions.setdefault(name, set()).add(arguments)
    return functions


def _traps(functions: dict[str, set[int]]) -> str:
    """A script that plants a function of each name, for each number of arguments and each type."""
    trap = "RETURNS integer LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'planted'; END $$"
    signatures = {
        f'"{name}"({", ".join([kind] * number)})'
        for name, numbers in functions.items()
        for number in numbers
        for kind in _TYPES
    }
    return ";\n".join(f"CREATE FUNCTION {signature} {trap}" for signature in sorted(signatures))


def test_a_function_planted_under_any_name_that_the_store_calls_is_never_called(
    postgres_url: str, application: Relational[SyncExecutor], tmp_path: Path
) -> None:
    functions = _called_functions(postgres_url)
    assert {"pg_advisory_xact_lock", "hashtextextended", "pg_notify", "now", "count"} <= set(functions)
    application.execute(_traps(functions))
    application.close()

    with sync.open(url=postgres_url, home=tmp_path) as store:
        store.agents.register("trader", version="1.0.0")
        flow = store.flows.start("trader")
        store.blobs.put("report", b"bytes")
        assert store.blobs.get("report") == b"bytes"
        assert store.relational.fetch_one("SELECT 1 AS one") == {"one": 1}
        store.blobs.put("letter", b"dear", subject="ada")
        store.erase.subject("ada")
        assert str(store.verify.run(full=True, lock=False).verdict) == "VALID"
        store.database.backend.compact()
        assert store.flows.get(flow.flow_id).flow_id == flow.flow_id


@pytest.mark.parametrize("schema", _SCHEMAS_OF_OTHERS)
def test_sql_of_applications_creates_nothing_outside_its_own_schema(
    postgres_url: str, application: Relational[SyncExecutor], schema: str
) -> None:
    open_database(postgres_url, space="telemetry", workers=1).close()
    trap = f"CREATE FUNCTION {schema}.lower(integer) RETURNS integer LANGUAGE sql AS 'SELECT 1'"
    with pytest.raises(errors.QueryError):
        application.execute(trap)
    application.execute("CREATE TABLE mine (x TEXT)")
    with psycopg.connect(postgres_url) as owner:
        row = owner.execute("SELECT schemaname FROM pg_tables WHERE tablename = 'mine'").fetchone()
    assert row == (APPLICATION_SCHEMA,)


def test_a_schema_in_which_others_may_create_is_refused(empty_postgres_url: str) -> None:
    open_database(empty_postgres_url, workers=1).close()
    with psycopg.connect(empty_postgres_url, autocommit=True) as owner:
        owner.execute("GRANT CREATE ON SCHEMA kernel TO PUBLIC")
    with pytest.raises(errors.ConfigError, match="REVOKE CREATE ON SCHEMA kernel FROM PUBLIC"):
        open_database(empty_postgres_url, workers=1)


def test_advisory_locks_of_applications_stop_neither_the_log_nor_an_opening(
    postgres_url: str, application: Relational[SyncExecutor], tmp_path: Path
) -> None:
    application.execute("CREATE TABLE ready (x TEXT)")
    with closing(psycopg.connect(_login(postgres_url), autocommit=True)) as attacker:
        for name in ("sequencer", "schema", "migrations", "login"):
            attacker.execute("SELECT pg_advisory_lock(hashtext(%s))", (f"holdproof {name}",))
            attacker.execute("SELECT pg_advisory_lock(hashtext(%s), hashtext('kernel'))", (f"holdproof {name}",))
        for key in ("agent:trader", "flow:f", "ref:main"):
            attacker.execute("SELECT pg_advisory_lock(hashtextextended(%s, 0))", (key,))
        with sync.open(url=postgres_url, home=tmp_path) as store:
            store.agents.register("trader", version="1.0.0")
            store.flows.start("trader", flow_id="f")
            assert str(store.verify.run(full=True, lock=False).verdict) == "VALID"
        # Closing sequences what is pending: nothing would be in the tree if the lock could be held.
        with psycopg.connect(postgres_url) as owner:
            [(pending, size)] = owner.execute(
                "SELECT (SELECT count(*) FROM kernel.log_pending), (SELECT size FROM kernel.log_state)"
            ).fetchall()
        assert pending == 0
        assert size > 0


def test_an_advisory_lock_of_an_application_ends_with_its_statement(
    postgres_url: str, application: Relational[SyncExecutor]
) -> None:
    application.fetch_all("SELECT pg_advisory_lock(7)")
    with psycopg.connect(postgres_url) as owner:
        assert owner.execute("SELECT pg_try_advisory_lock(7)").fetchone() == (True,)


def test_a_login_that_changed_its_own_password_and_settings_opens_again(
    postgres_url: str, application: Relational[SyncExecutor]
) -> None:
    with psycopg.connect(_login(postgres_url), autocommit=True) as attacker:
        attacker.execute(f"ALTER ROLE {attacker.info.user} PASSWORD 'mine'".encode())
        attacker.execute(f"ALTER ROLE {attacker.info.user} SET statement_timeout = 1".encode())
    application.close()
    with closing(open_database(postgres_url, space="membrane", workers=1)) as database:
        assert SyncExecutor(database).read(lambda tx: tx.dialect) == "postgres"


def test_a_url_that_demands_a_server_for_writing_is_used_for_reading_too(postgres_url: str) -> None:
    joint = "&" if "?" in postgres_url else "?"
    with closing(open_database(f"{postgres_url}{joint}target_session_attrs=read-write")) as database:
        executor = SyncExecutor(database)
        assert executor.read(lambda tx: tx.dialect) == "postgres"
        assert database.backend.facts()["backend"] == "postgres"


def test_a_login_without_rights_is_told_which_one_to_grant(postgres_url: str) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as owner:
        owner.execute("DROP ROLE IF EXISTS nobody_here")
        owner.execute("CREATE ROLE nobody_here LOGIN")
    try:
        with pytest.raises(errors.MissingPrivilegeError, match="GRANT holdproof_kernel"):
            open_database(postgres_url.replace("postgres@", "nobody_here@"))
    finally:
        with psycopg.connect(postgres_url, autocommit=True) as owner:
            owner.execute("DROP ROLE nobody_here")
