"""The login of services and the schema of their tables: what services, strangers and restores can do to them."""

from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import psycopg
import pytest

from holdproof import errors, sync
from holdproof.db.tx import APPLICATION_SCHEMA
from holdproof.model.verdicts import Verdict
from tests.store_locations import submit


def test_a_strangers_schema_named_application_is_left_alone(postgres_url: str, tmp_path: Path) -> None:
    with closing(psycopg.connect(postgres_url, autocommit=True)) as stranger:
        stranger.execute("CREATE SCHEMA application")
        stranger.execute("CREATE TABLE application.invoices AS SELECT 7 AS number")
        with sync.open(postgres_url, home=tmp_path / "home") as store:
            store.relational.execute("CREATE TABLE mine (x INTEGER)")
            store.relational.execute("INSERT INTO mine VALUES (1)")
            assert store.verify.run(lock=False).verdict is Verdict.VALID
            store.backup.create(tmp_path / "backup")
        sync.restore(tmp_path / "backup", tmp_path / "home", postgres_url)
        with sync.open(postgres_url, home=tmp_path / "home") as store:
            assert store.relational.fetch_all("SELECT x FROM mine") == [{"x": 1}]
            store.relational.execute("DROP TABLE mine")
        sync.move(postgres_url, tmp_path / "home")
        assert stranger.execute("SELECT number FROM application.invoices").fetchall() == [(7,)]
        schemas = stranger.execute("SELECT nspname FROM pg_namespace WHERE nspname ~ 'application'").fetchall()
        assert ("application",) in schemas
        assert (APPLICATION_SCHEMA,) in schemas
    assert "invoices" not in str(sorted(path.name for path in (tmp_path / "backup").rglob("*")))


def test_services_cannot_write_statements_about_roles(postgres_url: str, tmp_path: Path) -> None:
    with sync.open(postgres_url, home=tmp_path) as store:
        for statement in (
            "ALTER ROLE CURRENT_USER SET default_transaction_read_only = on",
            "alter /* quietly */ user current_user password 'x'",
            "CREATE ROLE other",
            "DROP ROLE IF EXISTS other",
        ):
            with pytest.raises(errors.ForbiddenSqlError, match=r"ROLE|USER"):
                store.relational.execute(statement)


def test_what_a_service_changes_about_its_login_has_no_effect_on_the_next_connection(
    postgres_url: str, tmp_path: Path
) -> None:
    with sync.open(postgres_url, home=tmp_path) as store, closing(psycopg.connect(postgres_url)) as owner:
        owner.autocommit = True
        store.relational.execute("CREATE TABLE mine (x INTEGER)")
        # A function is not read by the filter of statements.
        store.relational.execute(
            "CREATE FUNCTION spoil() RETURNS void LANGUAGE plpgsql AS $$ BEGIN"
            " ALTER ROLE CURRENT_USER SET default_transaction_read_only = on;"
            " ALTER ROLE CURRENT_USER SET statement_timeout = '1ms';"
            " ALTER ROLE CURRENT_USER SET work_mem = '64kB';"
            " ALTER ROLE CURRENT_USER PASSWORD 'other'; END $$"
        )
        store.relational.execute("SELECT spoil()")
        [(name,)] = owner.execute("SELECT name FROM membrane.membrane_login").fetchall()
        settings = "SELECT count(*) FROM pg_db_role_setting WHERE setrole = %s::regrole"
        assert owner.execute(settings, (name,)).fetchall() == [(1,)]
        owner.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = %s", (name,))
        store.relational.execute("INSERT INTO mine VALUES (1)")
        assert store.relational.fetch_all("SELECT x, current_setting('work_mem') <> '64kB' AS usual FROM mine") == [
            {"x": 1, "usual": True}
        ]
        assert owner.execute(settings, (name,)).fetchall() == [(0,)]


@pytest.fixture
def owner_url(empty_postgres_url: str) -> Iterator[str]:
    """The URL of a login that owns its database and may create roles until a test takes that from it."""
    name = psycopg.conninfo.conninfo_to_dict(empty_postgres_url)["dbname"]
    role = f"owner_of_{name}"
    with closing(psycopg.connect(empty_postgres_url, autocommit=True)) as admin:
        admin.execute(f"CREATE ROLE {role} LOGIN CREATEROLE".encode())
        admin.execute(f"ALTER DATABASE {name} OWNER TO {role}".encode())
        with suppress(psycopg.errors.UndefinedObject):
            for space in ("kernel", "membrane", "telemetry"):
                admin.execute(f"GRANT holdproof_{space} TO {role} WITH ADMIN OPTION".encode())
        parts = psycopg.conninfo.conninfo_to_dict(empty_postgres_url)
        yield f"postgresql://{role}@/{name}?host={parts['host']}"
        admin.execute(f"ALTER DATABASE {name} OWNER TO postgres".encode())
        admin.execute(f"DROP OWNED BY {role} CASCADE".encode())
        admin.execute(f"DROP ROLE {role}".encode())


def test_a_restore_by_an_owner_who_may_not_create_roles_keeps_the_rights_of_services(
    empty_postgres_url: str, owner_url: str, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    with sync.open(owner_url, home=home) as store:
        submit(store, "e1")
        store.blobs.put("k", b"v")
        store.backup.create(tmp_path / "plain")
        store.relational.execute("CREATE TABLE mine (x INTEGER)")
        store.backup.create(tmp_path / "tables")
    role = psycopg.conninfo.conninfo_to_dict(owner_url)["user"]
    with closing(psycopg.connect(empty_postgres_url, autocommit=True)) as admin:
        admin.execute(f"ALTER ROLE {role} NOCREATEROLE".encode())
        with pytest.raises(errors.ConfigError, match="ALTER ROLE … CREATEROLE"):
            sync.restore(tmp_path / "tables", home, owner_url)
        sync.restore(tmp_path / "plain", home, owner_url)
        for what, expected in (
            ("has_schema_privilege('holdproof_membrane', 'membrane', 'USAGE')", True),
            (f"has_schema_privilege('holdproof_membrane', '{APPLICATION_SCHEMA}', 'CREATE')", True),
            ("has_table_privilege('holdproof_membrane', 'membrane.blobs', 'INSERT')", True),
            ("has_table_privilege('holdproof_membrane', 'membrane.schema_migrations', 'INSERT')", False),
            ("has_table_privilege('holdproof_kernel', 'kernel.store_facts', 'SELECT')", True),
        ):
            assert admin.execute(f"SELECT {what}".encode()).fetchall() == [(expected,)], what
        admin.execute(f"ALTER ROLE {role} CREATEROLE".encode())
    with sync.open(owner_url, home=home) as store:
        assert store.blobs.get("k") == b"v"
