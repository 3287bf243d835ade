"""Errors that people and models meet first say what is wrong, and the one thing that cures it."""

import socket
from pathlib import Path

import pytest
from click.testing import CliRunner

from holdproof import errors, sync
from holdproof.cli.app import app


def run(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, [*words])
    return result.exit_code, result.output


@pytest.mark.parametrize(
    ("words", "suggestion"),
    [(("statsu",), "'status'"), (("flows", "strat"), "'start'"), (("status", "--jsno"), "--json")],
)
def test_a_misspelt_command_or_option_is_answered_with_the_nearest_one(words: tuple[str, ...], suggestion: str) -> None:
    code, output = run(*words)
    assert code == 2
    assert "Did you mean" in output
    assert suggestion in output


def test_help_shows_that_an_argument_is_optional() -> None:
    assert "verify [OPTIONS] [TARGET]" in run("verify", "--help")[1]
    assert "restore [OPTIONS] SRC" in run("restore", "--help")[1]


def test_a_file_as_home_is_refused_with_its_cure(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    code, output = run("--home", str(tmp_path / "file"), "status")
    assert code == errors.ConfigError.exit_code
    assert "is a file, not a folder; give --home or HOLDPROOF_HOME a folder" in output


def test_a_used_port_is_one_error_with_one_cure(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        code, output = run("--home", str(tmp_path), "up", "--port", port, "--log-level", "info")
    output += capfd.readouterr().err
    assert code == errors.ConfigError.exit_code
    assert output.count("in use") == 1
    assert output.count("--port") == 1
    assert "stopped:" not in output


def test_a_local_client_without_a_tool_to_offer_is_refused(tmp_path: Path) -> None:
    with sync.open(tmp_path) as store:
        store.agents.register("trader", version="1.0.0")
    code, output = run("--home", str(tmp_path), "mcp", "--agent", "trader", "--resource", "tokens")
    assert code == errors.InvalidInputError.exit_code
    assert "no tool is left" in output
    assert "--resource" in output


def test_a_token_that_contradicts_the_named_caller_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with sync.open(tmp_path) as store:
        secret = store.tokens.create("watcher", role="auditor").secret
    monkeypatch.setenv("HOLDPROOF_TOKEN", secret)
    for words, named in ((("--operator",), "--operator"), (("--agent", "trader"), "--agent trader")):
        code, output = run("--home", str(tmp_path), "mcp", *words)
        assert code == errors.InvalidInputError.exit_code
        assert f"{named} contradicts the token" in " ".join(output.split())
        assert "HOLDPROOF_TOKEN" in output


def test_misspelt_sql_is_a_syntax_error_without_words_of_the_inside(tmp_path: Path) -> None:
    with sync.open(tmp_path) as store:
        for statement in ("SELCT 1", "SELECT 1 FRM x"):
            with pytest.raises(errors.QueryError, match="syntax error") as raised:
                store.relational.fetch_all(statement)
            assert not isinstance(raised.value, errors.ForbiddenSqlError)
            assert "(statement)" not in str(raised.value)
            assert raised.value.status == 400
        with pytest.raises(errors.ForbiddenSqlError, match="ATTACH is not allowed"):
            store.relational.execute("ATTACH 'x' AS y")


def test_a_block_of_statements_ends_at_its_total_limit_even_while_it_is_busy(tmp_path: Path) -> None:
    with sync.open(tmp_path) as store:
        store.relational.execute("CREATE TABLE mine (x INTEGER)")
        block = store.relational.transaction(idle_s=60, total_s=0.2)
        with pytest.raises(errors.TransactionLimitError, match="total_s"), block as transaction:  # noqa: PT012
            while True:
                transaction.execute("INSERT INTO mine VALUES (1)")
        assert store.relational.fetch_all("SELECT x FROM mine") == []
        with pytest.raises(errors.InvalidInputError, match="total_s"):
            store.relational.transaction(total_s=301).__enter__()


def test_a_step_of_a_flow_that_waits_for_a_person_says_so(tmp_path: Path) -> None:
    with sync.open(tmp_path) as store:
        store.agents.register("trader", version="1.0.0")
        waits = pytest.raises(errors.FlowWaitingError, match="waiting for a person's decision")
        with waits, store.flows.run("trader") as flow:
            store.escalations.request(flow.flow_id, reason="may I?")
            flow.step("buy", lambda: None)
