"""`db roles`: four logins with no more rights than their work needs, on a real server."""

from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest
from click.testing import CliRunner

from harness.filling import settled, submit
from harness.servers import Postgres
from holdproof import errors, sync
from holdproof.cli.app import app
from holdproof.model.verdicts import Verdict
from holdproof.model.verify import Report

_LOGINS = ("holdproof_owner", "holdproof_app", "holdproof_services", "holdproof_reader")


@pytest.fixture
def server(postgres: Postgres, empty_postgres_url: str) -> tuple[Postgres, str]:
    """A server and the name of an empty database; its logins last as long as the server."""
    return postgres, urlsplit(empty_postgres_url).path.removeprefix("/")


def as_login(server: tuple[Postgres, str], login: str) -> str:
    postgres, database = server
    return postgres.url(database).replace("postgres@", f"{login}@")


def configure(home: Path, services: str) -> None:
    """Give the application tables a login of their own."""
    text = f'providers:\n  relational: {{type: postgres, connection: "{services}", fallback: []}}\n'
    (home / "config" / "config.yaml").write_text(text)


def sound_but_for_the_schema(report: Report) -> bool:
    """Whether nothing was found but that comparing the schema takes the right to create one: the owner's."""
    return [(each.verdict, each.table) for each in report.findings] == [(Verdict.INCOMPLETE, "schema")]


def denied(url: str, statement: str) -> bool:
    with closing(psycopg.connect(url, autocommit=True)) as connection:
        try:
            connection.execute(statement.encode())
        except psycopg.errors.InsufficientPrivilege:
            return True
    return False


def test_the_four_logins_do_their_work_and_nothing_else(server: tuple[Postgres, str], tmp_path: Path) -> None:
    owner, application, services, reader = (as_login(server, login) for login in _LOGINS)
    admin = as_login(server, "postgres")
    first = sync.roles(tmp_path, admin, apply=True)
    assert first.applied
    sync.migrate(tmp_path, owner)
    # Opened once by the owner: the tables of services.
    with sync.open(tmp_path, owner) as store:
        store.relational.execute("SELECT 1")
    assert sync.roles(tmp_path, admin, apply=True).statements == first.statements, "it may be run again"
    configure(tmp_path, services)
    with sync.open(tmp_path, application) as store:
        submit(store, "scored", 0.5, subject="Ada")
        store.relational.execute("CREATE TABLE carts (item TEXT)")
        store.relational.execute("INSERT INTO carts VALUES ('pear')")
        settled(store)
    assert sound_but_for_the_schema(sync.verify(tmp_path, reader, readonly=True))
    assert sync.verify(tmp_path, owner, full=True).verdict is Verdict.VALID
    for login, statement in (
        (application, "CREATE TABLE kernel.planted (x INTEGER)"),
        (application, "CREATE SCHEMA planted"),
        (application, "DROP TABLE kernel.battles"),
        (application, "SELECT * FROM membrane.membrane_login"),
        (services, "SELECT * FROM kernel.battles"),
        (services, "SELECT * FROM membrane.membrane_login"),
        (services, "DELETE FROM membrane.schema_migrations"),
        (reader, "DELETE FROM kernel.battles"),
        (reader, "SELECT * FROM membrane.membrane_login"),
        (reader, "CREATE TABLE kernel.planted (x INTEGER)"),
    ):
        assert denied(login, statement), (login, statement)
    assert not denied(reader, "SELECT count(*) FROM kernel.battles")


def test_a_store_that_another_login_created_is_given_to_the_owner(server: tuple[Postgres, str], tmp_path: Path) -> None:
    admin = as_login(server, "postgres")
    with sync.open(tmp_path, admin) as store:
        submit(store, "before", 0.5)
        store.relational.execute("SELECT 1")
    sync.roles(tmp_path, admin, apply=True)
    with closing(psycopg.connect(admin)) as connection:
        owners = connection.execute("SELECT DISTINCT tableowner FROM pg_tables WHERE schemaname = 'kernel'").fetchall()
    assert owners == [("holdproof_owner",)]
    configure(tmp_path, as_login(server, "holdproof_services"))
    with sync.open(tmp_path, as_login(server, "holdproof_app")) as store:
        submit(store, "after", 0.5)
        settled(store)
        assert sound_but_for_the_schema(store.verify.run(full=True))


def test_a_login_without_the_right_is_told_who_must_run_it(server: tuple[Postgres, str], tmp_path: Path) -> None:
    sync.roles(tmp_path, as_login(server, "postgres"), apply=True)
    with pytest.raises(errors.MissingPrivilegeError, match="holdproof db roles --apply"):
        sync.roles(tmp_path, as_login(server, "holdproof_app"), apply=True)


@pytest.mark.parametrize("name", ["", "Ada", "a b", "x'; DROP ROLE y", "$$", "a" * 64])
def test_a_name_that_would_need_quotes_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(errors.InvalidInputError, match="lower-case"):
        sync.roles(tmp_path, "postgresql://ada@nowhere/shop", owner=name)


def test_without_apply_the_script_is_printed_and_no_server_is_asked(tmp_path: Path) -> None:
    url = "postgresql://ada:secret@nowhere/shop"
    done = CliRunner().invoke(app, ["--home", str(tmp_path), "--url", url, "db", "roles", "--owner", "keeper"])
    assert done.exit_code == 0, done.output
    assert 'GRANT CREATE ON DATABASE "shop" TO keeper;' in " ".join(done.output.split())
    assert "secret" not in done.output


def test_a_store_in_files_has_no_logins(tmp_path: Path) -> None:
    with pytest.raises(errors.InvalidInputError, match="--url"):
        sync.roles(tmp_path)
