"""A recorder of hooks whose events tests hand over by hand."""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from holdproof import sync
from holdproof.adapters.hooks.recorder import Recorder
from holdproof.model.records import AuditEvent


class Hooked:
    """Numbers events as hooks do, and hands them to a recorder."""

    def __init__(self, store: sync.Holdproof, state: Path) -> None:
        (state / "spool").mkdir(parents=True, exist_ok=True)
        self.store = store
        self.state = state
        self.recorder = Recorder(store, state)
        self.numbers: dict[str, int] = {}
        self.moment = 1_763_460_000_000_000_000

    def message(self, tool: str, event: dict[str, Any], *, gate: bool = False) -> dict[str, Any]:
        session = str(event.get("session_id") or event.get("conversation_id"))
        self.numbers[session] = self.numbers.get(session, 0) + 1
        self.moment += 1_000_000_000
        return {
            "v": 1,
            "tool": tool,
            "agent": tool,
            "ns": "main",
            "session": session,
            "n": self.numbers[session],
            "at": self.moment,
            "gate": gate,
            "cwd": str(event.get("cwd") or event["workspace_roots"][0]),
            "event": event,
        }

    def hand(self, tool: str, event: dict[str, Any], *, gate: bool = False) -> dict[str, Any]:
        return self.recorder.handle(self.message(tool, event, gate=gate))

    def replay(self, tool: str, events: list[dict[str, Any]]) -> None:
        for event in events:
            assert self.hand(tool, event)["recorded"] is True, event

    def events(self, flow_id: str | None = None, kind: str | None = None) -> list[AuditEvent]:
        """What was recorded, the first first."""
        return list(reversed(self.store.audit.list(flow_id=flow_id, event_type=kind, limit=500).items))

    def kinds(self, flow_id: str) -> list[str]:
        return [event.event_type for event in self.events(flow_id)]


def repository(folder: Path) -> Path:
    """A repository with one commit."""
    folder.mkdir(parents=True)
    git(folder, "init", "-q", "-b", "main")
    git(folder, "config", "user.email", "ada@example.org")
    git(folder, "config", "user.name", "Ada")
    git(folder, "config", "commit.gpgsign", "false")
    (folder / "README").write_text("a project\n", encoding="utf-8")
    committed(folder, "begin")
    return folder


def git(folder: Path, *words: str) -> str:
    done = subprocess.run(["git", "-C", str(folder), *words], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def committed(folder: Path, subject: str) -> str:
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", subject)
    return git(folder, "rev-parse", "HEAD")


def texts(value: Any) -> Iterator[str]:
    """Every text in a value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from texts(each)
    elif isinstance(value, list):
        for each in value:
            yield from texts(each)
