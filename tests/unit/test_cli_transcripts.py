"""The commands of transcripts: what they print, and the codes they exit with."""

import os
from pathlib import Path

import pytest

from holdproof import paging, sync
from tests.unit.test_cli_memory import answer, run


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in [name for name in os.environ if name.startswith(("HOLDPROOF", "XDG_"))]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOLDPROOF_HOME", str(tmp_path / "home"))
    with sync.open() as store:
        store.transcripts.append("chat/ada", ["a", "b", "c"], state={"n": 1})
        store.transcripts.put_state("other", {})
    return tmp_path


def test_transcripts_are_listed_shown_and_removed() -> None:
    assert [each["name"] for each in answer("transcripts", "list")["items"]] == ["chat/ada", "other"]
    assert [each["name"] for each in answer("transcripts", "list", "--prefix", "o")["items"]] == ["other"]
    assert "chat/ada" in run("transcripts", "list").stdout
    assert answer("transcripts", "get", "chat/ada")["state"] == {"n": 1}
    assert [item["value"] for item in answer("transcripts", "list-items", "chat/ada", "--limit", "2")["items"]] == [
        "c",
        "b",
    ]
    rest = answer("transcripts", "list-items", "chat/ada", "--cursor", paging.encode(2))
    assert [item["seq"] for item in rest["items"]] == [1]
    assert answer("transcripts", "delete", "chat/ada") is True
    assert answer("transcripts", "delete", "chat/ada") is False
    run("transcripts", "get", "chat/ada", code=3)
    run("transcripts", "list", "--limit", "0", code=2)
