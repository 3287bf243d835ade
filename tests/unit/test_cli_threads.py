"""The commands of threads: what they print, and the codes they exit with."""

import os
from pathlib import Path

import pytest

from holdproof import sync
from tests.unit.test_cli_memory import answer, run


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in [name for name in os.environ if name.startswith(("HOLDPROOF", "XDG_"))]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOLDPROOF_HOME", str(tmp_path / "home"))
    with sync.open() as store:
        for number in range(5):
            store.threads.put_checkpoint(
                "chat", {"messages": ["hi"] * number, "n": number}, facts={"user": "ada"}, status="error"
            )
        store.threads.put_checkpoint("other", {})
    return tmp_path


def test_threads_are_listed_by_facts_and_status() -> None:
    assert [each["thread_id"] for each in answer("threads", "list")["items"]] == ["other", "chat"]
    found = answer("threads", "list", "--facts", '{"user": "ada"}', "--status", "error")["items"]
    assert [(each["thread_id"], each["checkpoints"]) for each in found] == [("chat", 5)]
    assert "chat" in run("threads", "list").stdout
    run("threads", "list", "--facts", "[]", code=2)


def test_a_thread_is_shown_with_a_checkpoint() -> None:
    assert answer("threads", "get", "chat")["checkpoints"] == 5
    assert answer("threads", "get-checkpoint", "chat")["channels"] == {"messages": ["hi"] * 4, "n": 4}
    listed = answer("threads", "list-checkpoints", "chat", "--limit", "2")
    assert [each["channels"]["n"] for each in listed["items"]] == [4, 3]
    older = listed["items"][1]["checkpoint_id"]
    assert answer("threads", "get-checkpoint", "chat", "--checkpoint-id", older)["channels"]["n"] == 3
    run("threads", "get", "none", code=3)
    run("threads", "get-checkpoint", "none", code=3)


def test_a_thread_is_copied_pruned_and_deleted() -> None:
    assert answer("threads", "copy", "chat", "copy") == 5
    assert answer("threads", "prune", "--thread-ids", "copy", "--keep", "1", "--dry-run")["checkpoints"] == 4
    assert answer("threads", "prune", "--keep", "2")["checkpoints"] == 6
    assert answer("threads", "delete", "chat")["threads"] == 1
    assert answer("threads", "delete", "chat")["threads"] == 0
    run("threads", "prune", code=2)


def test_an_official_file_is_imported(tmp_path: Path) -> None:
    saver = pytest.importorskip("langgraph.checkpoint.sqlite").SqliteSaver
    with saver.from_conn_string(str(tmp_path / "checkpoints.sqlite")) as official:
        made = {
            "v": 1,
            "id": "1",
            "ts": "",
            "channel_values": {"a": 1},
            "channel_versions": {"a": 1},
            "versions_seen": {},
        }
        config = {"configurable": {"thread_id": "theirs", "checkpoint_ns": ""}}
        official.put_writes(official.put(config, made, {"source": "input"}, {"a": 1}), [("a", 2)], "task")
    words = ("import", "langgraph", "checkpoints.sqlite", "--ns", "taken")
    assert answer(*words, "--dry-run")["checkpoints"] == 1
    done = answer(*words)
    assert (done["threads"], done["checkpoints"], done["writes"], done["deleted"]) == (1, 1, 1, [])
    assert answer("threads", "get", "theirs", "--ns", "taken")["checkpoints"] == 1
    run("import", "langgraph", "none.sqlite", code=3)
