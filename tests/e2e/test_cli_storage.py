"""The commands of services: bytes in and out, degraded stores, legacy data, status; always real stores."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from holdproof import sync
from holdproof.cli.app import app
from tests import kgents

HOLDPROOF = [sys.executable, "-m", "holdproof"]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in [name for name in os.environ if name.startswith(("HOLDPROOF", "XDG_", "PG"))]:
        monkeypatch.delenv(name)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("HOLDPROOF_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def existing(home: Path) -> None:
    """A store that is there already: commands that read create none."""
    sync.open(home).close()


def settings(home: Path, text: str) -> None:
    (home / "config").mkdir(parents=True, exist_ok=True)
    (home / "config" / "config.yaml").write_text(text)


@dataclass(frozen=True)
class Done:
    returncode: int
    stdout: bytes
    stderr: bytes


def run(*words: str, given: bytes = b"") -> Done:
    """Through click's runner: with real stores, but without the start of a process."""
    done = CliRunner().invoke(app, words, input=given)
    return Done(done.exit_code, done.stdout_bytes, done.stderr_bytes)


def process(*words: str, given: bytes = b"") -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run([*HOLDPROOF, *words], input=given, capture_output=True, check=False)


def told(*words: str, given: bytes = b"", code: int = 0) -> Any:
    done = run(*words, "--json", given=given)
    assert done.returncode == code, done.stderr.decode()
    return json.loads(done.stdout)


def test_a_process_pours_bytes_from_pipe_to_pipe() -> None:
    data = os.urandom(3_000_000)
    assert process("blobs", "put", "a", "-", given=data).returncode == 0
    assert process("blobs", "get", "a").stdout == data


# --- blobs -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("data", [b"", b"small\0\xff", os.urandom(3_000_000)], ids=["empty", "small", "large"])
def test_bytes_go_in_and_come_out_as_they_were_through_pipes_and_files(home: Path, data: bytes) -> None:
    assert told("blobs", "put", "a/b.bin", "-", "--content-type", "text/plain", given=data)["size"] == len(data)
    assert run("blobs", "get", "a/b.bin").stdout == data
    assert told("blobs", "get", "a/b.bin", "out.bin")["content_type"] == "text/plain"
    assert Path("out.bin").read_bytes() == data
    assert told("blobs", "put", "again", "out.bin")["sha256"] == told("blobs", "stat", "a/b.bin")["sha256"]
    assert told("blobs", "list")["items"] == ["a/b.bin", "again"]
    assert not (home / "kernel.db").exists()


@pytest.mark.usefixtures("existing")
def test_what_is_not_there_exits_with_3_and_leaves_no_file() -> None:
    assert told("blobs", "exists", "nope", code=3) is False
    assert told("blobs", "delete", "nope", code=3) is False
    assert told("blobs", "get", "nope", "out", code=3)["error"]["code"] == "not_found"
    assert told("blobs", "put", "key", "no-such-file", code=3)["error"]["code"] == "not_found"
    assert os.listdir(".") == []


def test_a_key_that_leads_out_of_the_root_is_refused() -> None:
    for key in ("../x", "/etc/passwd", "a/../../x"):
        assert told("blobs", "put", key, "-", given=b"x", code=2)["error"]["code"] == "blobs.key"


def test_bytes_and_json_do_not_share_stdout() -> None:
    told("blobs", "put", "key", "-", given=b"x")
    assert told("blobs", "get", "key", code=2)["error"]["field"] == "target"


def test_altered_bytes_are_not_handed_out_and_a_check_names_them(home: Path) -> None:
    told("blobs", "put", "big", "-", given=b"x" * 100_000)
    [file] = [path for path in (home / "blobs").rglob("*") if path.is_file()]
    file.write_bytes(b"y" * 100_000)
    assert told("blobs", "get", "big", "out", code=8)["error"]["code"] == "blobs.corrupt"
    assert not Path("out").exists()
    [finding] = told("blobs", "check", code=20)
    assert finding["row"] == "big"


def test_a_sweep_removes_what_no_key_has(home: Path) -> None:
    told("blobs", "put", "big", "-", given=b"x" * 100_000)
    stray = next(path for path in (home / "blobs").rglob("*") if path.is_file())
    stray.with_name(f"{'0' * 64}{stray.name[64:73]}{'0' * 8}").write_bytes(b"left by a crash")
    assert told("blobs", "sweep", "--older-than-s", "0") == {"objects": 1, "temporaries": 0}
    assert told("blobs", "check") == []


# --- vectors and telemetry -----------------------------------------------------------------------------------------


def test_vectors_are_added_found_exported_and_imported(home: Path) -> None:
    settings(home, "providers: {vector: {dimensions: 2}}\n")
    told("vectors", "add", "east", "[1, 0]", "--metadata", '{"kind": "wind"}')
    told("vectors", "add", "north", "[0, 1]")
    [found] = told("vectors", "search", "[0.9, 0.1]", "--k", "1")
    assert (found["id"], found["metadata"]) == ("east", {"kind": "wind"})
    assert told("vectors", "search", "[0, 1]", "--filter", '{"kind": "wind"}')[0]["id"] == "east"
    lines = run("export", "vectors").stdout
    assert [json.loads(line)["id"] for line in lines.splitlines()] == ["east", "north"]
    assert told("vectors", "delete", "east") is True
    assert told("vectors", "delete", "east", code=3) is False
    assert told("import", "vectors", "-", given=lines) == {"imported": 2}
    assert told("export", "vectors", "--out", "all.jsonl")["items"] == 2
    assert Path("all.jsonl").read_bytes() == lines
    assert told("vectors", "count") == 2


@pytest.mark.usefixtures("existing")
@pytest.mark.parametrize("words", [("add", "x", "[1]"), ("add", "x", "nope"), ("search", "{}"), ("search", "[1]")])
def test_what_is_no_vector_here_is_refused(home: Path, words: tuple[str, ...]) -> None:
    settings(home, "providers: {vector: {dimensions: 2}}\n")
    told("vectors", *words, code=2)
    assert told("vectors", "count") == 0


def test_events_are_appended_in_bulk_and_found_by_what_was_said(home: Path) -> None:
    events: list[dict[str, Any]] = [
        {"event_type": "tick", "timestamp": f"2026-01-01T00:{n // 60 % 60:02}:{n % 60:02}Z", "data": {"n": n}}
        for n in range(2_500)
    ]
    lines = "\n".join(json.dumps(each | {"span_id": f"s{each['data']['n'] % 5}"}) for each in events)
    assert told("telemetry", "append", "-", given=lines.encode()) == {"appended": 2_500}
    found = told("telemetry", "query", "--event-type", "tick", "--span-id", "s3", "--limit", "2")
    assert [each["data"]["n"] for each in found] == [2498, 2493]
    assert told("telemetry", "query", "--until", "2025-01-01T00:00:00Z") == []
    assert told("telemetry", "retain") == 0
    assert told("telemetry", "prune", "0") == 2_500
    assert told("telemetry", "count") == 0


def test_a_broken_line_is_named_and_what_came_in_whole_batches_before_is_told() -> None:
    good = json.dumps({"event_type": "x", "timestamp": "2026-01-01T00:00:00Z"})
    lines = "\n".join([good] * 1_001 + ["{broken"]).encode()
    error = told("telemetry", "append", "-", given=lines, code=2)["error"]
    assert (error["line"], error["appended"]) == (1_002, 1_000)
    assert told("telemetry", "count") == 1_000
    assert told("telemetry", "append", "-", given=b'{"event_type": "x", "colour": 1}', code=2)["error"]["line"] == 1


# --- what cannot be reached ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fallback", ["", ", fallback: [memory]"])
def test_a_command_never_writes_to_memory_because_a_file_cannot_be_opened(home: Path, fallback: str) -> None:
    settings(home, f"providers: {{telemetry: {{type: sqlite, path: {home}/nodb{fallback}}}}}\n")
    (home / "nodb").mkdir(parents=True)
    event = b'{"event_type": "x", "timestamp": "2026-01-01T00:00:00Z"}'
    done = run("telemetry", "append", "-", "--json", given=event)
    assert done.returncode in (6, 8)
    assert "error" in json.loads(done.stdout)


def test_another_durable_type_of_the_chain_is_used_and_told_aloud(home: Path) -> None:
    url = "postgresql://nobody@127.0.0.1:1/x"
    settings(home, f'providers: {{telemetry: {{type: postgres, connection: "{url}", fallback: [sqlite]}}}}\n')
    done = run("telemetry", "append", "-", given=b"")
    assert done.returncode == 0
    assert b"warning: the store of telemetry runs on sqlite: postgres: " in done.stderr


def test_memory_that_was_asked_for_works_and_says_what_it_is() -> None:
    done = run("--url", ":memory:", "blobs", "put", "k", "-", given=b"x")
    assert done.returncode == 0
    assert b"nothing survives" in done.stderr


def test_status_shows_what_services_store_and_what_of_it_is_degraded(home: Path) -> None:
    told("blobs", "put", "k", "-", given=b"x" * 5)
    storage = told("status")["storage"]
    assert storage["stores"]["blob"]["holds"] == {"blobs": 1, "bytes": 5}
    assert (storage["degraded"], storage["under_way"]) == ([], {})
    assert storage["stores"]["vector"]["holds"] == {"vectors": 0, "dimensions": 384}
    (home / "telemetry.db").unlink()
    (home / "telemetry.db").mkdir()
    [degraded] = told("status")["storage"]["degraded"]
    assert "telemetry" in degraded
    settings(home, "providers: {vector: {dimensions: 7}}\n")
    assert told("vectors", "count") == 0, "a look at the status settled nothing"
    settings(home, "")
    assert told("status")["storage"]["stores"]["vector"]["holds"] == {"vectors": 0, "dimensions": 7}


# --- legacy ----------------------------------------------------------------------------------------------------------


def test_a_first_run_hints_at_legacy_data_and_the_command_takes_it_over(home: Path, tmp_path: Path) -> None:
    kgents.legacy(tmp_path / ".kgents")
    first = run("blobs", "put", "k", "-", given=b"x")
    assert b"migrate-legacy --dry-run" in first.stderr
    assert b"migrate-legacy" not in run("blobs", "list").stderr
    dry = told("migrate-legacy", "--dry-run")
    assert {each["outcome"] for each in dry["sources"]} == {"would move"}
    done = told("migrate-legacy")
    assert {each["outcome"] for each in done["sources"]} == {"moved"}
    assert told("blobs", "list", "ghost/h")["items"] == ["ghost/health.status"]
    again = run("migrate-legacy")
    assert again.returncode == 0
    assert b"moved before" in again.stdout
    kgents.write(tmp_path / ".kgents" / "soul" / "state.json", "{}")
    assert b"still uses the old path" in run("blobs", "list").stderr


def test_the_target_that_was_named_is_the_one_that_is_written_to(home: Path, tmp_path: Path) -> None:
    kgents.legacy(tmp_path / ".kgents")
    other = tmp_path / "other"
    told("--home", str(other), "migrate-legacy", "--from", str(tmp_path / ".kgents"))
    assert (other / "membrane.db").exists()
    assert not home.exists()


def test_what_is_left_is_in_the_exit_code_and_the_report(tmp_path: Path) -> None:
    kgents.legacy(tmp_path / ".kgents")
    kgents.write(tmp_path / ".kgents" / "soul" / "state.json", "{broken")
    report = told("migrate-legacy", code=8)
    [damaged] = [each for each in report["sources"] if each["outcome"] == "damaged"]
    assert (Path(damaged["source"]).name, damaged["code"]) == ("soul", "format.invalid")
    assert b"is not JSON" in run("migrate-legacy").stdout
    assert told("migrate-legacy", "--from", str(tmp_path / "nowhere"), code=3)["error"]["code"] == "not_found"
