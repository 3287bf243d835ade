"""Erasures reach the events of hooks that still wait for their recorder, and those that it could not read."""

import errno
import json
from pathlib import Path
from typing import Any

import pytest

from holdproof import errors
from holdproof.adapters.hooks import client, sessions
from holdproof.adapters.hooks.recorder import Recorder
from holdproof.config import Paths
from holdproof.content import disk
from holdproof.upkeep import spooled_events
from tests.conformance.hook_sessions import Hooked
from tests.conformance.store_backends import StoreOnPostgres, StoreOnSqlite, sound

ADA = "Ada Lovelace"
SECRET = "canary-of-ada"


class SpoolSuite(StoreOnSqlite):
    """Of a person it is what names them, or their session."""

    @pytest.fixture(autouse=True)
    def _hooked(self, _place: None) -> Any:
        del _place
        with self.open() as store:
            self.store = store
            self.state = store.context.paths.state / "hooks"
            self.hooked = Hooked(store, self.state)
            yield
            sound(store)

    def prompt(self, text: str, *, session: str = "s1", subject: str | None = None, ns: str = "main") -> dict[str, Any]:
        event = {"session_id": session, "cwd": "/", "hook_event_name": "UserPromptSubmit", "prompt": text}
        return {**self.hooked.message("claude-code", event), "subject": subject, "ns": ns}

    def spool(self, message: dict[str, Any]) -> None:
        """Store an event as a hook does that finds no recorder."""
        client._spool(str(self.state), message["at"], json.dumps(message).encode())

    def waiting(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in sorted((self.state / client.SPOOL).iterdir())}

    def holding(self) -> list[str]:
        """The files of the home that hold the secret."""
        return [str(path) for path in self.home.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]

    def test_what_waits_of_an_erased_person_is_gone_and_no_recorder_writes_it(self) -> None:
        assert self.hooked.recorder.handle(self.prompt("hello", session="known", subject=ADA))["recorded"] is True
        self.spool(self.prompt(SECRET, session="new", subject=ADA))
        self.spool(self.prompt(SECRET, session="new"))
        self.spool(self.prompt(SECRET, session="known"))
        self.spool(self.prompt("of bob", session="bobs", subject="Bob"))
        self.spool(self.prompt("of another tenant", session="new", subject=ADA, ns="team"))
        planned = self.store.erase.subject(ADA, dry_run=True)
        assert planned.services == {"events of hooks": 3}
        assert len(self.waiting()) == 5
        erasure = self.store.erase.subject(ADA, who="dpo")
        assert (erasure.services, erasure.remains) == ({"events of hooks": 3}, ())
        assert self.holding() == []
        assert sorted(json.loads(data)["event"]["prompt"] for data in self.waiting().values()) == [
            "of another tenant",
            "of bob",
        ]
        certificate = json.loads(self.store.erase.certificate(erasure.id).text)
        assert ADA not in json.dumps(certificate)
        Recorder(self.store, self.state).drain()
        assert self.hooked.events("claude-code.new") == []
        assert len(self.hooked.events("claude-code.bobs", "prompt")) == 1

    def test_a_person_of_whom_only_the_spool_knows_is_erased_with_a_record(self) -> None:
        self.spool(self.prompt(SECRET, subject=ADA))
        erasure = self.store.erase.subject(ADA)
        assert (self.waiting(), self.holding()) == ({}, [])
        assert [each.id for each in self.store.erase.list().items] == [erasure.id]
        with pytest.raises(errors.NotFoundError):
            self.store.erase.subject(ADA)

    def test_damaged_events_go_where_the_person_is_named_and_are_told_where_nobody_is(self) -> None:
        folder = self.state / client.SPOOL
        # A hook writes whose event it is before the event.
        torn = f'{{"subject": "{ADA}", {json.dumps(self.prompt(SECRET))[1:-20]}'
        (folder / "1.damaged").write_text(torn)
        (folder / "2.json.part").write_text(torn)
        (folder / "3.damaged").write_text("{torn, and of whom")
        (folder / "4.damaged").write_text(json.dumps(self.prompt("of bob", subject="Bob") | {"at": "never"}))
        self.store.objects.put("o", type="t", content="x", subject=ADA)
        erasure = self.store.erase.subject(ADA)
        assert [*self.waiting()] == ["3.damaged", "4.damaged"]
        assert erasure.remains == (str(folder / "3.damaged"),)
        assert self.holding() == []

    def test_an_erasure_that_is_refused_leaves_what_waits(self) -> None:
        self.store.objects.put("o", type="t", content="x", subject=ADA)
        self.spool(self.prompt(SECRET, subject=ADA))
        before = self.waiting()
        self.store.retention.hold(subject=ADA, reason="a lawsuit")
        with pytest.raises(errors.HoldproofError):
            self.store.erase.subject(ADA)
        assert self.waiting() == before

    def test_an_erasure_that_cannot_set_all_of_them_aside_leaves_all(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for number in range(3):
            self.spool(self.prompt(f"{SECRET} {number}", subject=ADA))
        before = self.waiting()
        real = Path.rename
        renamed: list[Path] = []

        def rename(path: Path, target: Path) -> Path:
            if path.suffix == ".json" and len(renamed) == 2:
                raise PermissionError(errno.EACCES, "not allowed", str(path))
            renamed.append(path)
            return real(path, target)

        monkeypatch.setattr(Path, "rename", rename)
        with pytest.raises(errors.ReadOnlyError):
            self.store.erase.subject(ADA)
        monkeypatch.undo()
        assert self.waiting() == before

    def test_an_event_that_a_recorder_takes_meanwhile_stops_no_erasure(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.store.objects.put("o", type="t", content="x", subject=ADA)
        self.spool(self.prompt("of bob", subject="Bob"))
        real = disk.read

        def read(path: Path, most: int) -> bytes:
            path.unlink()
            return real(path, most)

        monkeypatch.setattr(disk, "read", read)
        assert self.store.erase.subject(ADA).remains == ()

    def test_a_crash_before_the_files_went_is_made_good_by_the_next_opening(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.spool(self.prompt(SECRET, subject=ADA))

        def die(_: Any) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(spooled_events, "_shred", die)
            with pytest.raises(KeyboardInterrupt):
                self.store.erase.subject(ADA)
        assert self.holding() != []
        assert Recorder(self.store, self.state).waiting() == []
        with self.open():
            assert self.holding() == []


class TestSqlite(SpoolSuite):
    """In a folder."""


class TestPostgres(StoreOnPostgres, SpoolSuite):
    """On a server."""


def test_the_erasure_looks_where_hooks_store_their_events_and_knows_their_sessions() -> None:
    """The hook imports nothing of the store, so that the names stand twice."""
    options = client.Options(["claude-code", "--home", "/somewhere"])
    assert Path(options.state()) / client.SPOOL == Paths.find("/somewhere").state / spooled_events.FOLDER
    for session in ("s1", "x" * 400, "line\nbreak"):
        message = {"tool": "t", "agent": "t", "ns": "main", "session": session, "n": 1, "at": 0, "gate": False}
        event = sessions.parse({**message, "cwd": "/", "event": {}, "subject": None})
        assert event.flow_id in spooled_events._Session("t", session).flows()
