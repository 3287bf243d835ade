"""The commands of notes: what they print, and the codes they exit with."""

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
        store.notes.put(["users", "ada"], "food", {"likes": "pizza"})
        store.notes.put(["users", "bob"], "food", {"likes": "soup"}, ttl_s=3600)
        store.notes.put(["gone"], "k", {}, ttl_s=0.000001)
    return tmp_path


def test_notes_are_listed_shown_and_removed() -> None:
    assert answer("notes", "paths")["items"] == [["users", "ada"], ["users", "bob"]]
    assert answer("notes", "paths", "--prefixes", '[["users", "ada"]]')["items"] == [["users", "ada"]]
    found = answer("notes", "search", "users")["items"]
    assert [each["path"] for each in found] == [["users", "bob"], ["users", "ada"]]
    assert "ada" in run("notes", "search").stdout
    assert answer("notes", "get", "users.ada", "food")["value"] == {"likes": "pizza"}
    assert answer("notes", "delete", "users.ada", "food") is True
    assert answer("notes", "delete", "users.ada", "food") is False
    assert answer("sweep", "run")["notes"] == 1
    run("notes", "get", "users.ada", "food", code=3)
    run("notes", "get", "users..ada", "food", code=2)
    run("notes", "search", "--limit", "-1", code=2)
