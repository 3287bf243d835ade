"""`holdproof export` and `import`: JSON lines out of every store, files that are whole."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from holdproof import sync
from holdproof.cli.app import app
from holdproof.model.storage import TelemetryEvent


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOLDPROOF_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def run(*words: str) -> Result:
    return CliRunner().invoke(app, words)


def lines(text: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in text.splitlines()]


def test_flows_and_events_come_as_lines_to_stdout_or_to_a_file(home: Path) -> None:
    with sync.open(home) as store:
        store.agents.register("trader", version="1.0.0")
        with store.flows.run("trader") as flow:
            store.audit.record(flow.flow_id, "SAID", detail={"text": "\N{SNOWMAN}\n"})
    [told] = lines(run("export", "flows").stdout)
    assert told["flow"]["status"] == "COMPLETED"  # type: ignore[index]
    done = run("export", "audit", "--out", "audit.jsonl", "--json")
    size = Path("audit.jsonl").stat().st_size
    assert json.loads(done.stdout) == {"written": "audit.jsonl", "items": 1, "bytes": size}
    [event] = lines(Path("audit.jsonl").read_text())
    assert event["detail"] == {"text": "\N{SNOWMAN}\n"}
    assert run("export", "audit", "--event-type", "OTHER").stdout == ""
    assert run("export", "flows", "--json").stdout == run("flows", "export").stdout, "JSON lines either way"


def test_telemetry_that_was_exported_can_be_appended_elsewhere(home: Path, tmp_path: Path) -> None:
    events = [
        TelemetryEvent("tick", f"2026-01-01T00:{n // 60 % 60:02}:{n % 60:02}.{n:06}+00:00", {"n": n})
        for n in range(2300)
    ]
    with sync.open(home) as store:
        store.telemetry.append(events[:1200])
        for at in range(1200, 2300, 300):
            store.telemetry.append(events[at : at + 300])
    assert json.loads(run("export", "telemetry", "--out", "events.jsonl", "--json").stdout)["items"] == 2300
    assert sorted(each["data"]["n"] for each in lines(Path("events.jsonl").read_text())) == list(range(2300))  # type: ignore[index]
    other = str(tmp_path / "other")
    assert run("--home", other, "telemetry", "append", "events.jsonl").exit_code == 0
    assert json.loads(run("--home", other, "telemetry", "count", "--json").stdout) == 2300


def test_what_leaves_and_what_comes_in_is_listed_in_one_place() -> None:
    out, into = run("export", "--help").stdout, run("import", "--help").stdout
    for name in ("bundle", "car", "dbom", "lisp", "vectors", "flows", "audit", "telemetry"):
        assert f" {name} " in out
    for name in ("car", "vectors", "lisp", "dir", "green-agent"):
        assert f" {name} " in into


def test_every_way_out_writes_a_file(home: Path) -> None:
    with sync.open(home) as store:
        store.evaluations.submit({"x": 1}, evaluation_id="b-1", score=0.5, intent=[1.0])
        store.objects.put("a", type="t")
        store.snapshots.create("first")
    for words in (
        ["bundle", "b-1", "--out", "1.zip"],
        ["car", "1.car"],
        ["lisp", "1.lisp"],
        ["vectors", "--out", "1.jsonl"],
        ["dbom", "b-1", "--out", "1.json"],
    ):
        assert run("export", *words).exit_code == 0, words
    assert run("import", "car", "1.car").exit_code == 0
    assert run("bundle", "export", "b-1", "--out", "2.zip").exit_code == 0
    assert (home.parent / "work" / "2.zip").exists() or Path("2.zip").exists()
