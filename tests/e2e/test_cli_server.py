"""`--server URL --token TOKEN`: commands that are written by hand, what they refuse, and which store is meant."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from holdproof import sync
from holdproof.cli import index
from holdproof.cli.app import app
from tests.web import Web, running


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    with running(tmp_path_factory.mktemp("server")) as served:
        yield served


@pytest.fixture(scope="module")
def token(web: Web) -> str:
    return web.store.tokens.create("ann").secret


def command(web: Web, token: str, *words: str, stdin: str | None = None) -> Result:
    """Run a command on the store of a server."""
    return CliRunner().invoke(app, ["--server", web.listening.address, "--token", token, *words], input=stdin)


def answer(web: Web, token: str, *words: str, stdin: str | None = None) -> Any:
    """Return the answer of a command that succeeds."""
    done = command(web, token, *words, "--json", stdin=stdin)
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def refusal(*words: str) -> tuple[int, str, str]:
    """Return the exit code of a command that fails, its error's code and its message."""
    done = CliRunner().invoke(app, [*words, "--json"])
    error = json.loads(done.stdout)["error"]
    return done.exit_code, error["code"], error["message"]


def test_commands_written_by_hand_work_on_the_store_of_a_server(web: Web, token: str, tmp_path: Path) -> None:
    assert answer(web, token, "agents", "register", "trader", "--version", "1.0.0")["agent"]["agent_id"] == "trader"
    flow = answer(web, token, "flows", "start", "trader")["flow_id"]
    assert web.store.flows.get(flow).agent_id == "trader"
    assert answer(web, token, "status")["store_id"] == web.store.status().store_id
    assert answer(web, token, "verify")["verdict"] == "VALID"
    assert answer(web, token, "db", "check")["ok"] is True
    assert flow in {entry["flow_id"] for entry in answer(web, token, "audit", "--since", "1h")["items"]}
    assert answer(web, token, "watch", "--once")["counts"] == {"CREATED": 1}
    assert command(web, token, "watch", "--rounds", "1").exit_code == 0
    events = '{"event_type": "x", "timestamp": "2026-01-01T00:00:00Z"}\n'
    assert answer(web, token, "telemetry", "append", "-", stdin=events) == {"appended": 1}
    vector = json.dumps({"id": "v", "vector": [0.5] * 384})
    assert answer(web, token, "import", "vectors", "-", stdin=vector) == {"imported": 1}
    source = tmp_path / "source"
    source.write_bytes(bytes(range(256)) * 8192)  # two pieces
    assert answer(web, token, "blobs", "put", "b", str(source))["size"] == 2 << 20
    assert command(web, token, "blobs", "get", "b", str(tmp_path / "copy")).exit_code == 0
    assert (tmp_path / "copy").read_bytes() == source.read_bytes()
    lines = command(web, token, "export", "flows").stdout.splitlines()
    assert flow in lines[-1]


def test_a_command_that_needs_the_files_of_the_store_says_where_to_run_it(web: Web, token: str) -> None:
    through = ("--server", web.listening.address, "--token", token)
    for words in (
        ("doctor",),
        ("worker", "app"),
        ("up",),
        ("keys", "export-root", "--recovery", "-"),
        ("keys", "join"),
        ("backup", "create", "there"),
        ("flows", "replay", "app", "--all"),
        ("mcp", "--operator"),
    ):
        code, error, message = refusal(*through, *words)
        name = " ".join(word for word in words[:2] if index.commands()[words[0]].get("commands")) or words[0]
        assert (code, error) == (2, "use.remote"), words
        assert f"`holdproof {name}`" in message
        assert "on the machine of the server" in message


def test_which_store_is_meant_is_never_guessed(
    web: Web, token: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = web.listening.address
    assert refusal("flows", "list", "--server", address, "--home", "x")[1] == "input.invalid"
    assert "name the server" in refusal("flows", "list", "--token", token)[2]
    assert "http://" in refusal("flows", "list", "--server", "localhost:8420")[2]
    assert refusal("flows", "list", "--server", address, "--token", "wrong")[1] == "access.unauthenticated"
    assert refusal("flows", "list", "--server", "http://127.0.0.1:9")[1] == "network.unreachable"

    monkeypatch.setenv("HOLDPROOF_SERVER", address)
    monkeypatch.setenv("HOLDPROOF_TOKEN", token)
    monkeypatch.setenv("HOLDPROOF_HOME", str(tmp_path / "elsewhere"))
    status = json.loads(CliRunner().invoke(app, ["status", "--json"]).stdout)
    assert status["store_id"] == web.store.status().store_id
    # An option counts before the environment: here a store of this machine is meant.
    with sync.open(tmp_path / "here") as store:
        here = store.status().store_id
    beside = ["--home", str(tmp_path / "here"), "status", "--json"]
    assert json.loads(CliRunner().invoke(app, beside).stdout)["store_id"] == here


def test_a_command_that_needs_no_store_does_not_care_about_servers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDPROOF_SERVER", "http://127.0.0.1:9")
    assert CliRunner().invoke(app, ["init", str(tmp_path)]).exit_code == 0
    assert CliRunner().invoke(app, ["hook", "status"]).exit_code == 0


def test_an_agent_sees_through_a_server_what_it_may_see(web: Web) -> None:
    store = web.store
    store.agents.register("bot", version="1.0")
    secret = store.tokens.create("bot", role="agent", agent_id="bot").secret
    assert command(web, secret, "flows", "start", "bot").exit_code == 0
    refused = command(web, secret, "tokens", "list")
    assert (refused.exit_code, "tokens" in refused.output) == (5, True), refused.output


def test_the_token_is_in_no_output(web: Web, token: str) -> None:
    done = command(web, token, "flows", "get", "nothing")
    assert done.exit_code == 3
    assert token not in done.output
