"""`--tenant NAME` on the command line: every command works on that tenant's store, and on nothing else."""

import json
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from click.testing import CliRunner

from harness.servers import Postgres
from holdproof import sync
from holdproof.cli.app import app


def run(*words: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, [*words])
    return done.exit_code, done.stdout, done.stderr


def answer(*words: str) -> Any:
    code, out, err = run(*words, "--json")
    assert code == 0, (words, out, err)
    return json.loads(out)


def test_commands_on_files_and_on_the_open_store_mean_the_tenant(tmp_path: Path) -> None:
    home = str(tmp_path / "parent")
    assert answer("--home", home, "tenants", "create", "acme")["status"] == "active"
    assert answer("--home", home, "--tenant", "acme", "agents", "register", "trader", "--version", "1.0.0")
    assert answer("--home", home, "agents", "list")["items"] == []
    own = answer("--home", home, "--tenant", "acme", "status")
    assert own["paths"]["data"] == str(tmp_path / "parent" / "tenants" / "acme")
    assert answer("--home", home, "--tenant", "acme", "verify")["verdict"] == "VALID"
    assert answer("--home", home, "--tenant", "acme", "backup", str(tmp_path / "copy"))["store_id"] == own["store_id"]
    assert answer("--home", home, "tenants", "record-heads")[0]["state"] == "recorded"
    code, _, err = run("--home", home, "--tenant", "acne", "status")
    assert (code, "did you mean acme" in err) == (3, True)
    code, _, err = run("--home", str(tmp_path / "none"), "--tenant", "acme", "status")
    assert (code, (tmp_path / "none").exists()) == (3, False)
    assert run("--home", home, "tenants", "delete", "acme", "--reason", "over", "--yes")[0] == 0
    assert answer("--home", home, "tenants", "list")["items"] == []


def test_a_finding_is_an_exit_code_and_the_tenant_can_still_be_verified(tmp_path: Path) -> None:
    home = str(tmp_path)
    answer("--home", home, "tenants", "create", "acme")
    (tmp_path / "tenants" / "acme" / "kernel.db").unlink()
    code, out, _ = run("--home", home, "tenants", "record-heads")
    assert (code, "GONE" in out) == (20, True)
    assert run("--home", home, "--tenant", "acme", "agents", "list")[0] == 20
    code, _, err = run("--home", home, "--tenant", "acme", "verify")
    assert code == 20, err
    assert run("--home", home, "tenants", "accept", "acme", "--reason", "x")[0] == 4
    assert run("--home", home, "tenants", "delete", "acme", "--reason", "lost", "--yes")[0] == 0


def test_a_url_in_the_environment_is_the_parents_and_never_the_tenants(
    postgres: Postgres, postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = urlsplit(postgres_url).path.removeprefix("/")
    home = str(tmp_path)
    monkeypatch.setenv("HOLDPROOF_DATABASE_URL", postgres_url)
    try:
        made = answer("--home", home, "tenants", "create", "acme")
        assert made["place"] == f"{name}_acme"
        own = answer("--home", home, "--tenant", "acme", "doctor")
        assert own is not None
        monkeypatch.setenv("HOLDPROOF_DATABASE_URL", postgres_url)
        assert answer("--home", home, "--tenant", "acme", "verify")["verdict"] == "VALID"
        monkeypatch.setenv("HOLDPROOF_DATABASE_URL", postgres_url)
        with sync.open(home) as parent, sync.open(home, tenant="acme") as tenant:
            assert parent.status().store_id != tenant.status().store_id
            assert tenant.status().database["path"] == f"{name}_acme/kernel"
    finally:
        postgres.sql(f'DROP DATABASE IF EXISTS "{name}_acme" WITH (FORCE)')
