"""`holdproof sessions`, through click's runner; always a real store."""

from contextlib import closing
from pathlib import Path

import pytest

from holdproof import folders
from holdproof.cli import draw
from holdproof.db import open_database, sql
from tests.unit.test_cli_evidence import home, parsed, run

__all__ = ["home"]  # every test has a home of its own

_FOREIGN = sql(
    "INSERT INTO cli_sessions (id, name, state, started_at, ended_at)"
    " VALUES ('cli_old', 'old', 'completed', '2020-01-01T00:00:00', '2020-01-01T00:00:05')"
)


def started(*more: str) -> str:
    return str(parsed("sessions", "start-session", "repl", "My REPL", *more)["id"])


def test_a_session_is_started_logged_ended_and_shown_as_a_timeline(home: Path) -> None:
    id = started("--metadata", '{"by": "ann"}')
    logged = parsed("sessions", "log-event", id, "command", "repl", "ran\ncheck", "--data", '{"exit": 0}')
    assert (logged["source"], logged["data"]) == ("repl", {"exit": 0})
    agent = parsed("sessions", "spawn-agent", id, "C-gent", "c-gent")["id"]
    failed = parsed("sessions", "complete-agent", agent, "--status", "failed", "--error", "[b]no\x1b[2J")
    assert (failed["status"], failed["genus"]) == ("failed", "c-gent")
    run(
        "sessions",
        "record-artifact",
        id,
        "plan",
        "doc",
        "--path",
        "plan.md",
        "--size-bytes",
        "9",
        "--content-preview",
        "# P",
    )
    ended = parsed("sessions", "end-session", id, "--tokens-used", "7")
    assert (ended["state"], ended["tokens_used"], ended["metadata"]) == ("completed", 7, {"by": "ann"})
    head, _, events = run("sessions", "timeline", id).stdout.partition("\n\n")
    lines = head.splitlines()
    assert lines[0].startswith(f"{id}  completed  interactive  My REPL  ")
    assert lines[1].startswith("├─ C-gent  c-gent  failed  [b]no[U+001B][2J  ")
    assert lines[2] == "└─ plan  doc  plan.md  9 bytes"
    rows = events.splitlines()
    assert [row.split()[1] for row in rows] == ["TYPE", "session_start", "command", "session_end"]
    assert rows[2].endswith(r"ran\ncheck                            exit=0")
    told = parsed("sessions", "timeline", id)
    assert [event["event_type"] for event in told["events"]] == ["session_start", "command", "session_end"]
    assert told["artifacts"][0]["content_preview"] == "# P"


def test_sessions_are_listed_newest_first_by_state_project_and_page(home: Path, tmp_path: Path) -> None:
    first, second = started(), started("--project-path", str(tmp_path / "elsewhere"))
    run("sessions", "end-session", first, "--state", "interrupted")
    assert [each["id"] for each in parsed("sessions", "list-sessions")["items"]] == [second, first]
    assert [each["id"] for each in parsed("sessions", "list-sessions", "--state", "interrupted")["items"]] == [first]
    here = parsed("sessions", "list-sessions", "--project-hash", folders.project_hash(tmp_path))["items"]
    assert [(each["id"], each["project_hash"]) for each in here] == [(first, folders.project_hash(tmp_path))]
    newest = parsed("sessions", "list-sessions", "--limit", "1")
    assert [each["id"] for each in newest["items"]] == [second]
    assert parsed("sessions", "list-sessions", "--cursor", newest["next_cursor"])["items"][0]["id"] == first
    assert run("sessions", "list-sessions", "--state", "failed").stdout == "none\n"


def test_a_timeline_goes_on_where_the_page_before_ended() -> None:
    id = started()
    for number in range(5):
        run("sessions", "log-event", id, "step", "cli", f"m{number}")
    page = parsed("sessions", "timeline", id, "--limit", "4")
    rest = parsed("sessions", "timeline", id, "--cursor", page["next_cursor"])
    messages = [event["message"] for event in (*page["events"], *rest["events"])]
    assert messages[1:] == ["m0", "m1", "m2", "m3", "m4"]
    assert f"more: --cursor {page['next_cursor']}" in run("sessions", "timeline", id, "--limit", "4").stdout


def test_what_is_refused_has_its_exit_code() -> None:
    id = started()
    run("sessions", "end-session", id)
    for words in (
        ("end-session", id),
        ("log-event", id, "x", "cli", "y"),
        ("spawn-agent", id, "a", "b"),
        ("record-artifact", id, "a", "b"),
    ):
        assert parsed("sessions", *words, code=4)["error"]["code"] == "sessions.ended"
    for words in (("timeline", "cli_none"), ("end-session", "cli_none"), ("complete-agent", "agt_none")):
        assert parsed("sessions", *words, code=3)["error"]["code"] == "not_found"
    wrong: list[tuple[str, ...]] = [
        ("start-session", "dance", "x"),
        ("start-session", "flow", "x", "--metadata", "{"),
        ("start-session", "flow", "x", "--metadata", "[]"),
        ("end-session", id, "--state", "active"),
        ("list-sessions", "--state", "asleep"),
        ("list-sessions", "--limit", "0"),
    ]
    for given in wrong:
        assert parsed("sessions", *given, code=2)["error"]["code"] == "input.invalid"


def test_the_first_run_says_where_data_lives(home: Path) -> None:
    assert str(home / "membrane.db") in run("sessions", "start-session", "script", "x").stderr
    assert run("sessions", "list-sessions").stderr == ""


def test_settings_and_urls_say_where_sessions_are_kept(home: Path, tmp_path: Path) -> None:
    run("db", "migrate")
    run("sessions", "start-session", "flow", "x", "--url", ":memory:")
    assert not (home / "membrane.db").exists()
    file = home / "config" / "config.yaml"
    file.write_text(f"providers: {{relational: {{path: {tmp_path}/mine.db}}}}\n")
    id = started()
    assert (tmp_path / "mine.db").exists()
    run("sessions", "timeline", id)
    file.write_text("providers: {relational: {type: memory}}\n")
    run("sessions", "timeline", id, code=3)
    file.write_text("providers: {relational: {type: postgres}}\n")
    run("sessions", "list-sessions", code=7)
    run("sessions", "list-sessions", "--url", "postgresql://nobody@127.0.0.1:1/x", code=6)
    assert not (home / "membrane.db").exists()


def test_sessions_of_other_programs_are_shown(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run("db", "migrate")
    run("sessions", "list-sessions")
    with closing(open_database(home / "membrane.db", space="membrane")) as database:
        database.write(lambda tx: tx.execute(_FOREIGN)).result()
    monkeypatch.setattr(draw, "_unicode", lambda: False)
    assert run("sessions", "timeline", "cli_old").stdout == "cli_old  completed  interactive  old\n\nnone\n"
