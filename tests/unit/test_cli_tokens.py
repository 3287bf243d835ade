"""The commands of tokens, through click's runner; always a real store."""

from pathlib import Path

import pytest

from holdproof import errors, sync
from tests.unit.test_cli_evidence import home, parsed, run

__all__ = ["home"]  # every test has a home of its own


def test_a_token_is_made_listed_and_revoked(home: Path) -> None:
    made = parsed(
        "tokens", "create", "grafana", "--role", "auditor", "--resources", "log", "--resources", "flows", "--ttl-s", "9"
    )
    token = made["token"]
    assert (token["role"], token["resources"], token["ns"]) == ("auditor", ["flows", "log"], "*")
    assert made["secret"].startswith("hp_")
    [listed] = parsed("tokens", "list")["items"]
    assert listed == token
    shown = run("tokens", "list").stdout
    assert "grafana" in shown
    assert made["secret"] not in shown
    ended = parsed("tokens", "revoke", token["token_id"], "--by", "ann")
    assert ended["revoked_by"] == "ann"
    assert parsed("tokens", "list")["items"] == []
    assert parsed("tokens", "list", "--all")["items"] == [ended]
    with sync.open(home) as store, pytest.raises(errors.UnauthenticatedError):
        store.tokens.authenticate(made["secret"])


def test_a_token_may_last_until_it_is_revoked() -> None:
    assert parsed("tokens", "create", "for-ever", "--ttl-s", "null")["token"]["expires_at"] is None


def test_what_is_no_token_is_refused_with_its_exit_code() -> None:
    run("tokens", "create", "x", "--role", "god", code=2)
    run("tokens", "create", "x", "--role", "agent", code=2)
    run("tokens", "create", "x", "--role", "agent", "--agent-id", "nobody", code=3)
    run("tokens", "create", "x", "--ttl-s", "-1", code=2)
    run("tokens", "revoke", "nothing", code=3)
    run("logins", "create-link", "--token-id", "nothing", code=3)
    run("logins", "create-link", "--role", "agent", code=2)


def test_a_link_opens_once(home: Path) -> None:
    made = parsed("logins", "create-link", "--name", "ann", "--ttl-s", "300")
    with sync.open(home) as store:
        session = store.logins.exchange(made["secret"])
        assert session.login.name == "ann"
        with pytest.raises(errors.UnauthenticatedError):
            store.logins.exchange(made["secret"])


def test_links_and_sessions_are_listed_and_ended(home: Path) -> None:
    made = parsed("logins", "create-link", "--name", "ann")
    [listed] = parsed("logins", "list")["items"]
    assert listed == made["login"]
    assert "ann" in run("logins", "list").stdout
    ended = parsed("logins", "end", listed["login_id"])
    assert ended["ended_at"]
    assert parsed("logins", "list")["items"] == []
    assert parsed("logins", "list", "--all")["items"] == [ended]
    run("logins", "end", "nobody", code=3)
    run("logins", "create-link", "--ttl-s", "3660", code=2)
    with sync.open(home) as store, pytest.raises(errors.UnauthenticatedError):
        store.logins.exchange(made["secret"])


def test_what_happened_at_the_door_is_listed() -> None:
    run("db", "migrate")
    assert parsed("access-log", "list", "--event", "denied", "--since", "2026-01-01T00:00:00Z")["items"] == []
