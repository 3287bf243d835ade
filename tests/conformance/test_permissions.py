"""Whatever Holdproof makes is for its owner only: files 0600, folders 0700, even where the umask forbids nothing."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from holdproof import config, folders, sync
from holdproof.cli.app import app
from holdproof.content import disk
from holdproof.demo import play
from holdproof.evidence import lockdown
from holdproof.evidence.heads import HeadFile
from holdproof.evidence.key_files import KeyFolder
from holdproof.evidence.witness_server import WitnessState
from holdproof.model.storage import TelemetryEvent
from holdproof.model.verify import Locked
from holdproof.storage import degraded


@pytest.fixture(autouse=True)
def permissive(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Nothing is forbidden by the umask, and nothing said by the environment."""
    for name in [name for name in os.environ if name.startswith(("HOLDPROOF_", "XDG_", "PG"))]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    before = os.umask(0)
    try:
        yield
    finally:
        os.umask(before)


def open_to_others(folder: Path, *, ours: frozenset[Path] = frozenset()) -> dict[str, str]:
    """Everything below that somebody but its owner may touch."""
    modes = {each: stat.S_IMODE(each.lstat().st_mode) for each in folder.rglob("*") if not each.is_symlink()}
    loose = {each: mode for each, mode in modes.items() if mode & 0o077 and each not in ours}
    return {str(each.relative_to(folder)): f"{mode:o}" for each, mode in loose.items()}


def lived(store: sync.Holdproof, out: Path) -> None:
    """Everything a store does that leaves a file."""
    store.agents.register("buyer", version="1.0.0")
    store.evaluations.submit({"task": "x"}, evaluation_id="b-1", score=0.5, intent=[0.5])
    store.evaluations.submit({"task": "y"}, evaluation_id="b-2", score=0.5, intent=[0.5], subject="ann")
    store.objects.put("fact", type="fact", content="true")
    store.snapshots.create("one")
    store.image.dump()
    store.objects.put("fact", type="fact", content="still true")
    store.image.dump()
    store.image.dump(out / "elsewhere" / "image")
    store.archive.export_car(out / "memory.car")
    store.archive.export_car(out / "sealed.car", encrypt="a phrase for this file")
    store.archive.export_lisp(out / "memory.sexp")
    store.blobs.put("large", b"x" * 100_000)
    store.blobs.put("small", b"x")
    store.blobs.open_write("stream", iter([b"x" * 70_000] * 3))
    store.telemetry.append([TelemetryEvent("t", "2026-01-01T00:00:00Z")])
    store.vectors.upsert("v", np.ones(3, dtype=np.float32), {})
    store.relational.execute("CREATE TABLE own (id INTEGER PRIMARY KEY)")
    store.keys.export_root(recovery=out / "recovery.txt")
    store.keys.rotate("judge")
    store.backup.create(out / "backup")
    store.backup.create(out / "whole", keys=True)
    store.erase.subject("ann")
    store.verify.run(full=True)


SETTINGS = "providers: {vector: {type: %s, dimensions: 3}}\n"


@pytest.mark.parametrize("kind", ["numpy", "quantised", "hnsw"])
def test_a_store_in_use_leaves_nothing_to_others(tmp_path: Path, kind: str) -> None:
    home, out = tmp_path / "deep" / "home", tmp_path / "out"
    folders.make(out)
    folders.make(home / "config")
    settings = home / "config" / "config.yaml"
    settings.write_text(SETTINGS % kind)
    with sync.open(home) as store:
        lived(store, out)
        assert open_to_others(tmp_path, ours=frozenset({settings})) == {}  # logs and locks of an open store too
    with sync.open(home) as store:
        store.vectors.index() if kind == "hnsw" else store.vectors.count()
    sync.restore(out / "whole", tmp_path / "restored" / "home")
    assert open_to_others(tmp_path, ours=frozenset({settings})) == {}
    assert {each.name for each in home.rglob("*.db*")} >= {"kernel.db", "membrane.db", "telemetry.db"}


def test_a_store_on_a_server_leaves_nothing_to_others(postgres_url: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    folders.make(out)
    folders.make(tmp_path / "home" / "config")
    settings = tmp_path / "home" / "config" / "config.yaml"
    settings.write_text(SETTINGS % "numpy")
    with sync.open(tmp_path / "home", postgres_url) as store:
        lived(store, out)
    assert open_to_others(tmp_path, ours=frozenset({settings})) == {}


def test_what_a_lockdown_keeps_is_for_the_owner_only(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with sync.open(home) as store:
        store.lockdown.lock(reason="a test")
    assert open_to_others(tmp_path) == {}
    assert [each.name for each in sorted((home / "state" / "lockdowns").glob("*/*"))] == [
        *("head.note", "heads.jsonl", "lockdown.json"),
    ]


def test_folders_that_were_lost_come_back_for_the_owner_only(tmp_path: Path) -> None:
    lockdown.write_flag(tmp_path / "a" / "b" / "lockdown.json", Locked("x", "TAMPERED", "why", "when"))
    assert degraded.write(config.Paths.find(tmp_path / "home"), {"blob": {"since": "then", "reason": "a test"}})
    KeyFolder(tmp_path / "c" / "d" / "keys").ensure("judge")
    marks = HeadFile(tmp_path / "e" / "f" / "heads.jsonl")
    marks.publish("a head")
    with WitnessState(tmp_path / "g" / "h" / "witness.json").locked():
        pass
    assert open_to_others(tmp_path) == {}


def test_what_the_command_line_writes_is_for_the_owner_only(tmp_path: Path) -> None:
    work = tmp_path / "work"
    folders.make(work)
    home = str(tmp_path / "home")
    given = work / "result.json"
    given.write_text('{"task": "x"}')
    intent = work / "intent.json"
    intent.write_text("[0.5]")
    evaluation = [
        "evaluations",
        "submit",
        str(given),
        "--evaluation-id",
        "b-1",
        "--score",
        "0.5",
        "--intent",
        str(intent),
    ]
    words: list[list[str]] = [
        evaluation,
        ["export", "bundle", "b-1", "--out", str(work / "b-1.zip")],
        ["export", "dbom", "b-1", "--out", str(work / "b-1.json")],
        ["export", "flows", "--out", str(work / "flows.jsonl")],
        ["export", "audit", "--out", str(work / "audit.jsonl")],
        ["export", "telemetry", "--out", str(work / "telemetry.jsonl")],
        ["export", "lisp", str(work / "memory.sexp")],
        ["blobs", "put", "key", str(given)],
        ["blobs", "get", "key", str(work / "blob")],
        ["backup", "create", str(work / "backup")],
        ["log", "prove", "LEAF", "--out", str(work / "leaf.proof")],
        ["init", str(work)],
    ]
    run = CliRunner()
    for line in words:
        if "LEAF" in line:
            with sync.open(home) as store:
                leaf = store.evaluations.get("b-1").leaf_id
            line = [leaf if word == "LEAF" else word for word in line]
        done = run.invoke(app, ["--home", home, *line])
        assert done.exit_code == 0, (line, done.output)
    assert open_to_others(tmp_path, ours=frozenset({given, intent})) == {}
    assert (work / ".holdproof" / "config.yaml").exists()


def test_the_demonstration_leaves_nothing_to_others(tmp_path: Path) -> None:
    play(tmp_path / "home")
    assert open_to_others(tmp_path) == {}


def test_a_device_takes_what_is_delivered_and_stays_a_device(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert disk.deliver(pipe, [b"ab", b"c"]) == 3
        assert os.read(reading, 10) == b"abc"
    finally:
        os.close(reading)
    assert stat.S_ISFIFO(pipe.stat().st_mode)
