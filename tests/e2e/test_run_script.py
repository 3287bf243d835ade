"""`holdproof run`: a script under recording behaves as under Python, and `hook` commands as a person meets them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from holdproof import sync
from holdproof.adapters import captured
from tests.conformance.hook_sessions import repository

SCRIPT = """
import sys, httpx, helper
from pathlib import Path
def answer(request):
    return httpx.Response(200, json={"model": "m-1", "choices": [], "usage": {"prompt_tokens": 1}})
client = httpx.Client(transport=httpx.MockTransport(answer))
client.post("http://model/v1/chat/completions", json={"model": "m", "messages": []})
print(__name__, helper.WORD, sys.argv[1:])
if "--fail" in sys.argv: raise RuntimeError("mine")
if "--exit" in sys.argv: sys.exit(4)
"""


def run(home: Path, *words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "holdproof", "--home", str(home), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd)


@pytest.mark.parametrize(("words", "code"), [([], 0), (["--fail"], 1), (["--exit"], 4)])
def test_a_script_runs_as_under_python_and_its_calls_are_recorded(tmp_path: Path, words: list[str], code: int) -> None:
    (tmp_path / "script.py").write_text(SCRIPT, encoding="utf-8")
    (tmp_path / "helper.py").write_text("WORD = 'word'\n", encoding="utf-8")
    home = tmp_path / "home"
    done = run(home, "run", "--agent", "reporter", str(tmp_path / "script.py"), "--", *words)
    assert (done.returncode, done.stdout.strip()) == (code, f"__main__ word {words}")
    assert ("RuntimeError: mine" in done.stderr) == (code == 1)
    with sync.open(home, create=False) as store:
        events = list(reversed(store.audit.list().items))
    kinds = [each.event_type for each in events]
    assert kinds == [captured.STARTED, "model.requested", "model.answered", captured.STOPPED]
    assert events[2].detail["tokens"] == {"input": 1, "output": None}


def test_a_script_that_is_not_there_is_a_mistake_of_the_caller(tmp_path: Path) -> None:
    done = run(tmp_path / "home", "run", "nothing.py", cwd=tmp_path)
    assert (done.returncode, "there is no script nothing.py" in done.stderr) == (2, True)


def test_hooks_are_shown_before_they_are_written(tmp_path: Path) -> None:
    home = tmp_path / "home"
    shown = run(home, "hook", "install", "claude-code", "--dry-run", cwd=tmp_path)
    assert (shown.returncode, "PreToolUse" in shown.stderr) == (0, True)
    assert not (tmp_path / ".claude").exists()
    # There is no terminal to ask on.
    refused = run(home, "hook", "install", "claude-code", cwd=tmp_path)
    assert (refused.returncode, "--yes" in refused.stderr) == (2, True)
    written = run(home, "hook", "install", "claude-code", "--yes", "--gate", cwd=tmp_path)
    assert written.returncode == 0
    settings = json.loads((tmp_path / ".claude" / "settings.local.json").read_text(encoding="utf-8"))
    command = settings["hooks"]["PreToolUse"][0]["hooks"][0]["command"]
    assert f"hook claude-code --state {home}/state/hooks --home {home} --gate" in command
    assert run(home, "hook", "uninstall", "claude-code", "--yes", cwd=tmp_path).returncode == 0
    assert not (tmp_path / ".claude" / "settings.local.json").exists()


def test_a_url_with_a_password_does_not_go_into_an_agents_settings(tmp_path: Path) -> None:
    done = run(tmp_path, "--url", "postgresql://u:secret@h/db", "hook", "install", "codex", "--yes", cwd=tmp_path)
    assert (done.returncode, "secret" in done.stderr) == (2, False)
    assert not (tmp_path / ".codex").exists()


def test_a_commit_nobody_recorded_is_shown_so_and_fails_where_asked(tmp_path: Path) -> None:
    tree = repository(tmp_path / "work")
    home = tmp_path / "home"
    sync.open(home).close()
    shown = run(home, "hook", "blame", "--json", cwd=tree)
    assert shown.returncode == 0
    assert json.loads(shown.stdout)["hunks"][0]["flow_id"] is None
    assert run(home, "hook", "blame", "--strict", cwd=tree).returncode == 1
    assert run(home, "hook", "blame", "nonsense", cwd=tree).returncode == 3


def test_status_says_what_waits_without_a_store(tmp_path: Path) -> None:
    done = run(tmp_path / "home", "hook", "status", "--json")
    assert json.loads(done.stdout) == {
        "recorder": "not running",
        "waiting": 0,
        "damaged": 0,
        "error": None,
        "state": str(tmp_path / "home" / "state" / "hooks"),
    }
    assert not (tmp_path / "home").exists()
