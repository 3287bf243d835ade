"""The command line in a shell: ids that are offered at Tab, and colours that NO_COLOR takes away."""

import os
import pty
import subprocess
import sys
from pathlib import Path

import click
import pytest

from holdproof import sync
from holdproof.cli import complete
from holdproof.cli.app import app

HOLDPROOF = [sys.executable, "-m", "holdproof"]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("HOLDPROOF_DATABASE_URL", raising=False)
    monkeypatch.setenv("HOLDPROOF_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def context(**params: str) -> click.Context:
    made = app.make_context("holdproof", [], resilient_parsing=True)
    made.params |= params
    return made


def offered(offer: complete.Offer, incomplete: str, **params: str) -> list[tuple[str, str | None]]:
    return [(each.value, each.help) for each in offer(context(**params), None, incomplete)]


def furnish(home: Path) -> tuple[str, int]:
    with sync.open(home) as store:
        store.agents.register("trader", version="1.0.0")
        flow = store.flows.start("trader")
        store.flows.transition(flow.flow_id, "RUNNING")
        asked = store.escalations.request(flow.flow_id, reason="may\nI \x1b[31m?")
        store.evaluations.submit({}, evaluation_id="b-1", score=0.5, intent=[1.0])
    return flow.flow_id, asked.id


def test_ids_are_offered_with_a_word_about_each(home: Path) -> None:
    flow_id, asked = furnish(home)
    assert offered(complete.flows, flow_id[:4]) == [(flow_id, "WAITING_ESCALATION")]
    assert offered(complete.agents, "tr") == [("trader", "ACTIVE")]
    assert offered(complete.agents, "x") == []
    assert offered(complete.escalations, "") == [(str(asked), "may")]
    assert [name for name, _ in offered(complete.evaluations, "b%")] == ["b-1"]


def test_a_shell_is_offered_ids_of_the_store_that_the_words_name(home: Path) -> None:
    furnish(home)
    ask = {"_HOLDPROOF_COMPLETE": "bash_complete", "COMP_WORDS": f"holdproof --home {home} agents get tr"}
    words = [*HOLDPROOF]
    env = {**os.environ, **ask, "COMP_CWORD": "5", "HOLDPROOF_HOME": str(home.parent / "other")}
    done = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["plain,trader"], done.stderr
    assert not (home.parent / "other").exists()


def test_nothing_is_offered_and_nothing_is_made_where_no_store_is(home: Path) -> None:
    assert offered(complete.flows, "") == []
    assert not home.exists()
    home.mkdir()
    (home / "kernel.db").write_bytes(b"no database " * 100)
    assert offered(complete.flows, "") == []
    assert offered(complete.flows, "", shared_url="postgresql://127.0.0.1:1/x") == [], "a server is not asked"


def on_a_terminal(*words: str, **env: str) -> bytes:
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [*HOLDPROOF, *words], stdout=theirs, stderr=theirs, env={**os.environ, "TERM": "xterm-256color", **env}
    ):
        os.close(theirs)
        data = b""
        while True:
            try:
                chunk = os.read(ours, 1 << 16)
            except OSError:  # Linux: nobody has the other end any more
                chunk = b""
            if not chunk:
                break
            data += chunk
    os.close(ours)
    return data


def test_a_terminal_has_colours_unless_no_color_says_otherwise(home: Path) -> None:
    furnish(home)
    assert b"\x1b[3" in on_a_terminal("agents", "list"), "green for ACTIVE"
    plain = on_a_terminal("agents", "list", NO_COLOR="1")
    assert b"trader" in plain
    assert b"\x1b[3" not in plain


def test_long_work_is_one_line_on_a_terminal_and_the_verdict_comes_last(home: Path) -> None:
    furnish(home)
    shown = on_a_terminal("verify", "--full")
    assert shown.count(b"\x1b[1A") <= 1, "a display of several lines moves up to draw itself again; one, to vanish"
    assert shown.rstrip().splitlines()[-1].strip() == b"\x1b[1mVALID (full)\x1b[0m"
