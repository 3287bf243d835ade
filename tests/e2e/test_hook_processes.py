"""Hooks as agents run them: a process for each event, a recorder that starts by itself, stores that come and go."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from holdproof import sync
from holdproof.adapters import captured
from holdproof.adapters.hooks import client, service
from holdproof.cli.hooks import hook_program

_PATIENCE_S = 60.0


class Agent:
    """Runs hooks on a store at `home`."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.state = home / "state" / "hooks"

    def hook(
        self, event: dict[str, Any] | str, *words: str, program: list[str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a hook as the installed configuration has it, or by another program."""
        text = event if isinstance(event, str) else json.dumps(event)
        command = [*(program or shlex.split(hook_program())), "hook", "claude-code"]
        command += ["--state", str(self.state), "--home", str(self.home), *words]
        return subprocess.run(command, input=text, capture_output=True, text=True, check=False, timeout=_PATIENCE_S)

    def wait(self, ready: Any) -> None:
        until = time.monotonic() + _PATIENCE_S
        while not ready():
            assert time.monotonic() < until, "it did not happen in time"
            time.sleep(0.05)

    def waiting(self) -> int:
        return len(list((self.state / client.SPOOL).glob("*.json")))

    def stop(self) -> None:
        """End the recorder of this folder, whose lock and socket name it."""
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if b"holdproof.adapters.hooks.service" in words and os.fsencode(str(self.state)) in words:
                os.kill(int(entry.name), signal.SIGTERM)
        self.wait(lambda: not service.is_running(self.state))


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    if sys.platform != "linux":
        pytest.skip("finds the recorder's process in /proc")
    agent = Agent(tmp_path / "home")
    yield agent
    agent.stop()


def prompt(n: int, session: str = "s1") -> dict[str, Any]:
    return {"session_id": session, "cwd": "/", "hook_event_name": "UserPromptSubmit", "prompt": f"number {n}"}


def recorded(home: Path) -> list[Any]:
    with sync.open(home, create=False) as store:
        return list(reversed(store.audit.list(limit=500).items))


def test_the_first_hook_starts_a_recorder_and_nothing_is_lost(agent: Agent) -> None:
    first = agent.hook(prompt(1))
    assert (first.returncode, first.stdout, first.stderr) == (0, "", "")
    with ThreadPoolExecutor(4) as hooks:
        done = list(hooks.map(agent.hook, [prompt(n) for n in range(2, 13)]))
    assert {(each.returncode, each.stdout, each.stderr) for each in done} == {(0, "", "")}
    agent.wait(lambda: agent.waiting() == 0 and (agent.state / client.SOCKET).exists())
    after = agent.hook(prompt(13))
    assert after.stderr == ""
    agent.stop()
    events = recorded(agent.home)
    prompts = [each for each in events if each.event_type == "prompt"]
    assert sorted(each.detail["n"] for each in prompts) == list(range(1, 14))
    assert sorted(each.detail["event"]["prompt"] for each in prompts) == sorted(f"number {n}" for n in range(1, 14))
    own = [each.event_type for each in events if each.event_type.startswith("recorder.")]
    assert own == [captured.STARTED, captured.STOPPED]


def test_a_store_that_cannot_be_opened_breaks_nothing_and_loses_nothing(agent: Agent) -> None:
    agent.state.mkdir(parents=True)
    (agent.home / "kernel.db").mkdir()
    first = agent.hook(prompt(1))
    assert (first.returncode, first.stdout) == (0, "")
    agent.wait(lambda: (agent.state / client.ERROR).exists() and not service.is_running(agent.state))
    second = agent.hook(prompt(2))
    assert (second.returncode, second.stdout) == (0, "")
    assert "waits in the spool" in second.stderr
    agent.wait(lambda: not service.is_running(agent.state))
    assert agent.waiting() == 2
    (agent.home / "kernel.db").rmdir()
    agent.hook(prompt(3))
    agent.wait(lambda: agent.waiting() == 0)
    agent.stop()
    numbers = [each.detail["n"] for each in recorded(agent.home) if each.event_type == "prompt"]
    assert numbers == [1, 2, 3]


@pytest.mark.parametrize("text", ["", "no JSON", "[1]", '{"session_id": 7}', '{"a": "\\ud800"}', "[" * 9999, "{} {}"])
def test_whatever_comes_in_the_hook_succeeds(agent: Agent, text: str) -> None:
    assert agent.hook(text).returncode == 0
    agent.wait(lambda: agent.waiting() == 0)


def test_a_folder_that_cannot_be_written_is_said_in_one_line(agent: Agent, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    done = agent.hook(prompt(1), "--state", str(tmp_path / "file" / "state"))
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.startswith("holdproof: not recorded: ")
    assert done.stderr.count("\n") == 1


def test_a_gated_call_waits_for_the_recorder_to_start_and_is_decided(agent: Agent) -> None:
    with sync.open(agent.home) as store:
        store.policies.create(
            "none", '@id("none") forbid(principal, action == Action::"tool.call", resource);', by="ada"
        )
        store.policies.activate("none", by="ada")
    call = {**prompt(1), "hook_event_name": "PreToolUse", "tool_name": "Bash", "tool_input": {"command": "ls"}}
    done = agent.hook({**call, "tool_use_id": "c1"}, "--gate")
    assert done.returncode == 0
    assert json.loads(done.stdout)["hookSpecificOutput"]["permissionDecision"] == "deny"


def test_a_hook_by_hand_records_as_an_installed_one_does(agent: Agent) -> None:
    agent.hook(prompt(1))
    done = agent.hook(prompt(2), program=[sys.executable, "-m", "holdproof"])
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    agent.wait(lambda: agent.waiting() == 0 and (agent.state / client.SOCKET).exists())
    agent.stop()
    assert [each.detail["n"] for each in recorded(agent.home) if each.event_type == "prompt"] == [1, 2]


def imported(agent: Agent, source: str) -> set[str]:
    """The modules that a hook has imported at its end, its event recorded."""
    agent.hook(prompt(1))
    agent.wait(lambda: (agent.state / client.SOCKET).exists() and agent.waiting() == 0)
    source = f"import sys\ntry:\n    {source}\nfinally: print(*sys.modules, file=sys.stderr)"
    isolated = shlex.split(hook_program())[1:-2]
    words = [sys.executable, *isolated, source, str(Path(client.__file__).parent), "hook", "claude-code"]
    words += ["--state", str(agent.state)]
    done = subprocess.run(words, input=json.dumps(prompt(2)), capture_output=True, text=True, check=True)
    assert agent.waiting() == 0
    return set(done.stderr.split())


def test_an_installed_hook_imports_a_file_and_parts_of_python_in_c(agent: Agent) -> None:
    """A hook runs at every tool call: what it imports is what it costs."""
    modules = imported(agent, client.LAUNCH.partition("; ")[2])
    assert not {name for name in modules if name.startswith("holdproof")}
    assert not modules & {"json", "socket", "re", "enum", "typing", "collections", "importlib", "site", "dataclasses"}


def test_a_hook_by_hand_imports_the_hook_and_no_command_line(agent: Agent) -> None:
    by_hand = "import site; site.main(); del sys.argv[1]; from holdproof.__main__ import main; main()"
    modules = imported(agent, by_hand)
    assert not modules & {"click", "apsw", "asyncio", "subprocess", "hashlib", "dataclasses", "holdproof.errors", "ssl"}
    assert {name for name in modules if name.startswith("holdproof")} == {
        "holdproof",
        "holdproof.__main__",
        "holdproof.adapters",
        "holdproof.adapters.hooks",
        "holdproof.adapters.hooks.client",
    }


def test_a_gated_call_that_cannot_even_be_numbered_is_asked_about(agent: Agent, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    call = {**prompt(1), "hook_event_name": "PreToolUse", "tool_name": "Bash", "tool_input": {"command": "ls"}}
    done = agent.hook(call, "--gate", "--state", str(tmp_path / "file" / "state"))
    assert done.returncode == 0
    assert done.stderr.startswith("holdproof: not recorded: ")
    assert json.loads(done.stdout)["hookSpecificOutput"]["permissionDecision"] == "ask"


def test_a_hook_whose_package_is_gone_ends_with_a_code_that_stops_no_agent(agent: Agent, tmp_path: Path) -> None:
    """Coding agents take code 2, which Python has for a script that is not there, for a refusal."""
    program = [*shlex.split(hook_program())[:-1], str(tmp_path / "gone")]
    done = agent.hook(prompt(1), program=program)
    assert (done.returncode, done.stdout) == (1, "")


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32"])
@pytest.mark.parametrize("indent", [None, 2])
def test_an_event_is_read_in_any_encoding_and_any_layout_of_json(encoding: str, indent: int | None) -> None:
    event = prompt(1) | {"prompt": "zwei\nZeilen\u2028 \U0001f600 \x7f", "numbers": [1.5, -0.0, 10**30]}
    text = json.dumps(event, indent=indent, ensure_ascii=False) + "\r\n"
    for each in (encoding, "utf-8"):
        read, line = client._event(text.encode(each))
        assert read == event
        assert json.loads(line) == event
        assert "\n" not in line
