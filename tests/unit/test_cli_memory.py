"""The commands of memory: what they print, and the codes they exit with."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from holdproof import paging, sync
from holdproof.cli.app import app


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in [name for name in os.environ if name.startswith(("HOLDPROOF", "XDG_"))]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOLDPROOF_HOME", str(tmp_path / "home"))
    return tmp_path


@pytest.fixture
def existing(home: Path) -> None:
    """A store that is there already: commands that read create none."""
    sync.open(home / "home").close()


def run(*words: str, code: int = 0, **options: Any) -> Result:
    done = CliRunner().invoke(app, words, **options)
    assert done.exit_code == code, done.output
    return done


def answer(*words: str, **options: Any) -> Any:
    return json.loads(run(*words, "--json", **options).stdout)


def test_an_object_is_put_shown_and_deleted() -> None:
    put = answer("objects", "put", "a", "--type", "note", "--content", "hello", "--attributes", '{"n": 1.5}')
    assert (put["content"], put["attributes"], put["version"]) == ("hello", {"n": 1.5}, 1)
    assert answer("objects", "get", "a") == put
    assert answer("objects", "put", "a", "--type", "note", "--content", "-", input="from stdin")["version"] == 2
    Path("text").write_text("from a file")
    words = ("objects", "put", "a", "--type", "note", "--content", "@text", "--meta", '{"seen": 1}')
    assert answer(*words)["content"] == "from a file"
    assert [each["version"] for each in answer("objects", "history", "a")["items"]] == [3, 2, 1]
    assert answer("objects", "delete", "a") is True
    assert answer("objects", "list")["items"] == []
    run("objects", "get", "a", code=3)


@pytest.mark.parametrize("words", [("--attributes", "x"), ("--attributes", "[]"), ("--meta", "1"), ("--type", "")])
def test_what_cannot_be_put_is_refused(words: tuple[str, ...]) -> None:
    run("objects", "put", "a", "--type", "t", *words, code=2)


def test_a_file_that_is_not_there_is_not_found_by_any_command() -> None:
    for words in (
        "objects put a --type t --content @none",
        "evaluations submit none --evaluation-id b --score 1",
        "verify none",
    ):
        assert "none: no such file" in run(*words.split(), code=3).stderr


def test_an_expected_version_is_kept_to() -> None:
    run("objects", "put", "a", "--type", "t", "--expected-version", "0")
    run("objects", "put", "a", "--type", "t", "--content", "x", "--expected-version", "0", code=4)


def test_a_tree_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    run("objects", "put", "inbox", "--type", "folder", "--children", "b", "--children", "gone")
    run("objects", "put", "a", "--type", "note", "--content", "x\ny" * 40, "--parent", "inbox")
    run("objects", "put", "b", "--type", "note", "--parent", "inbox")
    run("objects", "put", "c", "--type", "note", "--parent", "b")
    lines = run("graph", "subtree", "inbox").stdout.splitlines()
    assert lines[:3] == ["inbox  folder  v1", "├─ b  note  v1", "│  └─ c  note  v1"]
    assert lines[3].startswith("├─ a  note  v1  x\\nyx")
    assert lines[3].endswith("…")
    assert lines[4] == "└─ gone  (not there)"
    assert run("graph", "subtree", "inbox", "--depth", "0").stdout == "inbox  folder  v1\n└─ there is more below\n"
    run("graph", "subtree", "none", code=3)


@pytest.mark.usefixtures("existing")
def test_an_empty_store_has_no_tree() -> None:
    assert run("graph", "roots").stdout == "none\n"


def test_a_diff_is_pleasant_to_read() -> None:
    run("objects", "put", "a", "--type", "t", "--content", "old", "--attributes", '{"n": 1, "m": 2}')
    run("objects", "put", "b", "--type", "t", "--content", "goes")
    run("snapshots", "create", "first", "--author", "ada")
    run("objects", "put", "a", "--type", "t", "--content", "new", "--attributes", '{"n": 3, "m": 2}')
    run("objects", "delete", "b")
    run("objects", "put", "c", "--type", "t", "--meta", '{"seen": true}')
    assert run("snapshots", "diff").stdout.splitlines() == [
        "~ a",
        "    - attributes.n: 1",
        "    + attributes.n: 3",
        "    - content: old",
        "    + content: new",
        "- b",
        "    - type: t",
        "    - content: goes",
        "+ c",
        "    + type: t",
        "    + meta: seen=yes",
    ]
    assert run("snapshots", "diff", "head", "head").stdout == "nothing differs\n"
    assert f"more: --cursor {paging.encode('a')}\n" in run("snapshots", "diff", "--limit", "1").stdout


def test_snapshots_are_taken_listed_and_returned_to() -> None:
    run("objects", "put", "a", "--type", "t", "--content", "old")
    first = answer("snapshots", "create", "--message", "first")
    run("objects", "put", "a", "--type", "t", "--content", "new")
    back = answer("snapshots", "rollback", first["rev"], "--reason", "wrong")
    assert (back["root"], back["reason"]) == (first["root"], "wrong")
    assert answer("objects", "get", "a")["content"] == "old"
    assert len(answer("snapshots", "list")["items"]) == 3
    assert answer("snapshots", "get")["cid"] == back["cid"]
    assert answer("objects", "get", "a", "--at", first["cid"])["content"] == "old"
    assert answer("objects", "list", "--at", first["cid"])["items"][0]["id"] == "a"
    run("snapshots", "get", "nothing", code=3)


def test_an_image_is_dumped_and_loaded() -> None:
    run("objects", "put", "a", "--type", "t")
    dumped = answer("image", "dump")
    assert (dumped["kind"], answer("image", "dump")["kind"]) == ("base", "nothing")
    assert answer("image", "load")["how"] == answer("image", "load", "--verify", "lazy")["how"] == "same"
    run("objects", "put", "a", "--type", "t", "--content", "x")
    run("image", "load", code=4)
    assert answer("image", "load", "--force")["how"] == "forced"
    run("image", "load", "nowhere", code=3)
    Path(dumped["path"]).write_text("x")
    run("image", "load", code=8)
    assert "put aside" in run("status").stderr


def test_an_archive_is_exported_and_imported() -> None:
    run("objects", "put", "a", "--type", "t")
    first = answer("snapshots", "create")
    assert answer("export", "car", "a.car", "--encrypt", "secret")["encrypted"]
    run("--home", "other", "import", "car", "a.car", "--did", first["did"], code=2)
    done = answer("--home", "other", "import", "car", "a.car", "--did", first["did"], "--passphrase", "secret")
    assert done["how"] == "forward"
    run("import", "car", "none.car", code=3)
    run("archive", "restore", first["cid"], "--node", "http://127.0.0.1:9", code=6)


def test_nothing_is_pushed_in_the_open_unasked() -> None:
    run("objects", "put", "a", "--type", "t")
    run("snapshots", "create")
    assert "public" in run("archive", "push", "--node", "http://127.0.0.1:9", code=2).stderr
    assert "public" in run("archive", "push", "--yes", "--node", "http://127.0.0.1:9", code=6).stderr
    run("archive", "push", "--mode", "file", "--encrypt", "x", "--node", "http://127.0.0.1:9", code=6)


def test_garbage_is_counted_then_removed() -> None:
    for content in "abc":
        run("objects", "put", "a", "--type", "t", "--content", content)
    found = answer("retention", "gc", "--dry-run")
    assert found["dry_run"]
    assert answer("retention", "gc")["blocks"] == found["blocks"] > 0


def test_a_lisp_memory_comes_in_and_goes_out() -> None:
    Path("in.sexp").write_text('((:ID "a" :TYPE :NOTE :CONTENT "x" :VERSION 7 :HASH "h"))')
    assert answer("import", "lisp", "in.sexp", "--dry-run")["new"] == 1
    assert answer("objects", "list")["items"] == []
    assert answer("import", "lisp", "in.sexp")["hashes"] == {"DIFFERS": 1}
    assert answer("import", "lisp", "in.sexp")["changed"] == 0
    assert answer("objects", "get", "a")["type"] == ":NOTE"
    assert answer("export", "lisp", "out.sexp")["objects"] == 1
    assert ':ID "a"' in Path("out.sexp").read_text()
    Path("bad.sexp").write_text("#.(quit)")
    assert "column" in run("import", "lisp", "bad.sexp", code=2).output
    run("import", "lisp", "none", code=3)


def test_objects_are_found_by_their_words() -> None:
    run("objects", "put", "a", "--type", "note", "--content", "buy milk")
    assert [each["id"] for each in answer("objects", "search", "Milk")] == ["a"]
    assert "buy milk" in run("objects", "search", "milk").stdout
    run("objects", "search", "*", code=2)
    assert answer("objects", "reindex") == 1


def test_objects_are_found_by_their_vectors(home: Path) -> None:
    (home / "toy.py").write_text("def embed(text):\n    return [text.count('a') + 0.1, text.count('b') + 0.1]\n")
    run("objects", "put", "a", "--type", "t", "--content", "aaa")
    run("objects", "put", "b", "--type", "t", "--meta", '{"vector": [0.0, 1.0]}')
    assert answer("objects", "embed", "--embedder", "toy:embed") == 1
    words = ("objects", "nearest", "--like", "aa", "--embedder", "toy:embed", "--limit", "1")
    assert [each["object"]["id"] for each in answer(*words)] == ["a"]
    [found] = answer("objects", "nearest", "--vector", "[0.0, 2.0]", "--limit", "1")
    assert (found["object"]["id"], found["distance"]) == ("b", 0.0)
    assert [each["object"]["id"] for each in answer("objects", "nearest", "--near", "b")] == ["a"]
    assert "DISTANCE" in run("objects", "nearest", "--near", "b").stdout
    run("objects", "search", code=2)
    run("objects", "nearest", code=2)
    run("objects", "nearest", "--vector", "[1]", "--near", "b", code=2)
    run("objects", "nearest", "--vector", "[1]", code=4)
    run("objects", "nearest", "--like", "x", code=7)


def test_what_is_a_subjects_goes_with_the_subject() -> None:
    put = answer("objects", "put", "a", "--type", "t", "--content", "private", "--subject", "Ada")
    assert put["content"] == "private"
    assert answer("erase", "subject", "Ada", "--yes")["sealed"] == {"objects": 1}
    run("objects", "get", "a", code=3)
    [found] = answer("objects", "list")["items"]
    assert (found["hidden"], found["content"], found["cid"]) == ("erased", None, put["cid"])


def test_snapshots_and_versions_are_pruned() -> None:
    for number in range(3):
        run("objects", "put", "a", "--type", "t", "--content", str(number))
        run("snapshots", "create", f"number {number}")
    assert answer("retention", "prune", "snapshots", "--keep", "1", "--dry-run")["count"] == 2
    assert answer("retention", "prune", "snapshots", "--keep", "1")["records"] == {"snapshots": 2}
    assert answer("retention", "prune", "versions", "--keep", "1")["records"] == {"object_versions": 2}
    assert answer("retention", "gc")["blocks"] > 0
    assert [each["pruned_at"] is None for each in answer("objects", "history", "a")["items"]] == [True, False, False]
    assert len(answer("snapshots", "list")["items"]) == 1
    run("retention", "prune", "snapshots", code=2)


@pytest.mark.usefixtures("existing")
def test_a_timer_writes_images() -> None:
    assert answer("image", "beat") == []
    run("objects", "put", "a", "--type", "t")
    assert [each["kind"] for each in answer("image", "beat")] == ["base"]
    assert answer("image", "beat") == []
