"""Tenants of a store behind a real PgBouncer, in session and in transaction mode."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from click.testing import CliRunner

from harness.filling import running, settled
from harness.servers import PgBouncer, Postgres
from holdproof import errors, sync
from holdproof.cli.app import app
from holdproof.model.verdicts import Verdict


@pytest.fixture(scope="module", params=["session", "transaction"])
def pooler(request: pytest.FixtureRequest, postgres: Postgres) -> Iterator[PgBouncer]:
    pooler = PgBouncer(postgres, str(request.param))
    yield pooler
    pooler.stop()


@dataclass
class Pooled:
    """A parent behind a pooler, by the addresses that its operator has in the environment."""

    home: Path
    database: str
    direct_url: str
    pooler: PgBouncer

    @property
    def url(self) -> str:
        return self.pooler.url(self.database)

    def open(self, tenant: str | None = None) -> sync.Holdproof:
        return sync.open(self.home, self.url, tenant=tenant)

    def run(self, *words: str) -> str:
        """Run a command; return what it prints."""
        # A command changes its environment, which the runner puts back.
        environment = {"HOLDPROOF_DATABASE_URL": self.url, "HOLDPROOF_DIRECT_URL": self.direct_url}
        result = CliRunner(env=environment).invoke(app, ["--home", str(self.home), *words])
        assert result.exit_code == 0, result.output
        return result.stdout

    def use(self, tenant: str) -> None:
        with self.open(tenant) as store:
            if not store.agents.list().items:
                store.agents.register("trader", version="1.0.0")
            running(store)
            settled(store)
            assert store.status().database["pooled"] is True
            assert store.verify.run(full=True).verdict is Verdict.VALID


@pytest.fixture
def pooled(
    pooler: PgBouncer, postgres: Postgres, postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Pooled]:
    database = urlsplit(postgres_url).path.removeprefix("/")
    monkeypatch.setenv("HOLDPROOF_DATABASE_URL", pooler.url(database))
    monkeypatch.setenv("HOLDPROOF_DIRECT_URL", postgres.url(database))
    with sync.open(tmp_path / "parent", pooler.url(database)) as store:
        store.agents.register("trader", version="1.0.0")
    yield Pooled(tmp_path / "parent", database, postgres.url(database), pooler)
    for each in ("acme", "moved"):
        postgres.sql(f'DROP DATABASE IF EXISTS "{database}_{each}" WITH (FORCE)')


def test_a_tenant_is_created_recorded_exported_moved_and_deleted_behind_a_pooler(
    pooled: Pooled, tmp_path: Path
) -> None:
    with pooled.open() as parent:
        assert parent.tenants.create("acme").place == f"{pooled.database}_acme"
        pooled.use("acme")
        assert [each.state for each in parent.tenants.record_heads()] == ["recorded"]
        assert parent.tenants.export("acme", tmp_path / "backup").size > 0
        pooled.pooler.reconnect(f"{pooled.database}_acme")
        moved = parent.tenants.move("acme", f"{pooled.database}_moved")
        assert (moved.place, moved.verdict) == (f"{pooled.database}_moved", "VALID")
        pooled.use("acme")
        assert [each.state for each in parent.tenants.record_heads("acme")] == ["recorded"]
        pooled.pooler.reconnect(f"{pooled.database}_moved")
        assert parent.tenants.delete("acme", reason="the contract ended").status == "deleted"


def test_commands_work_on_a_tenant_behind_a_pooler(pooled: Pooled) -> None:
    """They read the parent's row by the parent's addresses, and open the tenant by its own."""
    with pooled.open() as parent:
        parent.tenants.create("acme")
    pooled.run("--tenant", "acme", "agents", "register", "buyer", "--version", "1.0.0")
    status = json.loads(pooled.run("--tenant", "acme", "status", "--json"))
    assert (status["database"]["pooled"], status["database"]["path"]) == (True, f"{pooled.database}_acme/kernel")
    pooled.run("--tenant", "acme", "verify")
    with pooled.open() as parent:
        assert not [each.agent_id for each in parent.agents.list().items if each.agent_id == "buyer"]


def test_heads_are_recorded_without_a_session_that_the_pooler_keeps(pooled: Pooled, postgres: Postgres) -> None:
    with pooled.open() as parent:
        parent.tenants.create("acme")
        pooled.pooler.reconnect(f"{pooled.database}_acme")
        query = f"SELECT count(*) FROM pg_stat_activity WHERE datname = '{pooled.database}_acme'"
        parent.tenants.record_heads()
        assert parent.tenants.delete("acme", reason="the contract ended").status == "deleted"
        assert postgres.value(query) == 0


def test_sessions_that_a_pooler_keeps_are_named_where_they_are_in_the_way(pooled: Pooled) -> None:
    with pooled.open() as parent:
        parent.tenants.create("acme")
        pooled.use("acme")
        with pytest.raises(errors.BusyError, match="RECONNECT"):
            parent.tenants.delete("acme", reason="the contract ended")
        assert parent.tenants.get("acme").status == "active"
        pooled.use("acme")


def test_without_a_direct_url_a_tenant_is_not_created_and_the_error_names_the_setting(
    pooled: Pooled, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HOLDPROOF_DIRECT_URL")
    with pooled.open() as parent:
        with pytest.raises(errors.ConfigError, match=r"a tenant's own.*HOLDPROOF_DIRECT_URL"):
            parent.tenants.create("acme")
        assert not parent.tenants.list().items
