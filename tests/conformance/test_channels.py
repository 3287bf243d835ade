"""Channels: everybody who has to be told is told, or an entry says that nobody could be; on every backend."""

import asyncio
import hashlib
import hmac
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from email import message_from_bytes
from pathlib import Path
from typing import Any

import pytest
import yaml

from harness.filling import running
from holdproof import errors, sync
from holdproof.db import Tx, sql
from holdproof.model.times import to_micros
from holdproof.runtime import escalations
from holdproof.testing import FrozenClock
from holdproof.upkeep import channels, outbox
from holdproof.upkeep.channels import Channel, ChannelMessage
from tests.conformance.decisions import InMemory, OnPostgres, OnSqlite, OnStore
from tests.receiver import Receiver

SECRET = "not-to-be-seen"
_CLAIMED = sql("SELECT next_at FROM notification_deliveries WHERE attempts > 0 AND delivered_at IS NULL")


class MailServer:
    """A real SMTP server on a port of its own, which keeps the mails it takes."""

    def __init__(self, *, silent: bool = False) -> None:
        self.silent = silent
        self.mails: list[bytes] = []
        self.port = 0
        self._loop = asyncio.new_event_loop()
        ready = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(ready,), daemon=True)
        self._thread.start()
        assert ready.wait(30)

    def _run(self, ready: threading.Event) -> None:
        async def serve() -> None:
            self._server = await asyncio.start_server(self._talk, "127.0.0.1", 0)
            self.port = self._server.sockets[0].getsockname()[1]
            ready.set()

        self._loop.run_until_complete(serve())
        self._loop.run_forever()
        self._loop.run_until_complete(self._end())
        self._loop.close()

    async def _end(self) -> None:
        """Wait for the conversations, whose callers have hung up."""
        await asyncio.gather(*(asyncio.all_tasks() - {asyncio.current_task()}))

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 test\r\n")
        if self.silent:
            await reader.read()
        while line := await reader.readline():
            word = line.split(b" ")[0].strip().upper()
            if word == b"DATA":
                writer.write(b"354 go on\r\n")
                self.mails.append(await reader.readuntil(b"\r\n.\r\n"))
            writer.write(b"221 bye\r\n" if word == b"QUIT" else b"250 ok\r\n")
            await writer.drain()
            if word == b"QUIT":
                break
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._server.close)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with closing(Receiver(200)) as server:
        yield server


def configured(store: sync.Holdproof, *entries: dict[str, Any]) -> None:
    folder = store.context.paths.config
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "channels.yaml").write_text(yaml.safe_dump({"channels": [*entries]}))


def webhook(server: Receiver, **options: Any) -> dict[str, Any]:
    return {"name": "ops", "kind": "webhook", "url": f"{server.url}/{SECRET}", "secret": SECRET, **options}


class ChannelsOfPeople(OnStore):
    def test_a_webhook_is_told_once_and_can_check_who_told_it(self, store: sync.Holdproof, receiver: Receiver) -> None:
        configured(store, webhook(receiver, console="https://console.example"))
        asked = store.escalations.request(running(store), reason="pay?")
        result = store.channels.deliver()
        assert (result.queued, result.delivered) == (1, 1)
        assert store.channels.deliver().queued == 0
        [(_, headers, body)] = receiver.requests
        assert headers["holdproof-signature"] == f"sha256={hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()}"
        message = json.loads(body)
        assert (message["type"], message["escalation"]) == ("holdproof.escalations", asked.id)
        assert message["link"] == f"https://console.example/inbox/{asked.id}"
        [told] = store.channels.notifications().items
        assert (told.about, told.outcome, told.channels) == (f"escalation:{asked.id}", "delivered", ("ops",))

    def test_a_channel_that_is_down_is_tried_again_with_growing_pauses(
        self, store: sync.Holdproof, clock: FrozenClock, receiver: Receiver
    ) -> None:
        receiver.answers = [503, 503, 200]
        configured(store, webhook(receiver))
        store.escalations.request(running(store), reason="pay?")
        assert store.channels.deliver().retried == 1
        assert store.channels.deliver().retried == 0  # not due yet
        clock.advance(11)
        assert store.channels.deliver().retried == 1
        clock.advance(11)
        assert store.channels.deliver().delivered == 0
        clock.advance(10)
        assert store.channels.deliver().delivered == 1
        assert len(receiver.requests) == 3
        assert store.channels.notifications().items[0].outcome == "delivered"

    def test_that_nobody_could_be_told_is_an_entry(
        self, store: sync.Holdproof, clock: FrozenClock, receiver: Receiver
    ) -> None:
        receiver.answers = [500]
        configured(store, webhook(receiver), {**webhook(receiver), "name": "spare"})
        store.escalations.request(running(store), reason="pay?")
        for _ in range(10):
            store.channels.deliver()
            clock.advance(3601)
        [told] = store.channels.notifications(outcome="undelivered").items
        assert told.problems == {"ops": "answered 500", "spare": "answered 500"}
        assert len(receiver.requests) == 20
        assert store.channels.deliver().retried == 0

    def test_slack_and_teams_get_a_link_that_logs_in_once(self, store: sync.Holdproof, receiver: Receiver) -> None:
        token = store.tokens.create("ann", resources=["escalations"]).token.token_id
        link = {"url": receiver.url, "console": "https://console.example/", "login_token": token}
        configured(store, {"name": "s", "kind": "slack", **link}, {"name": "t", "kind": "teams", **link})
        store.escalations.request(running(store), reason="<!channel> pay & go?")
        assert store.channels.deliver().delivered == 2
        slack, teams = (
            json.loads(body) for _, _, body in sorted(receiver.requests, key=lambda each: b"Card" in each[2])
        )
        assert "&lt;!channel&gt; pay &amp; go?" in slack["text"]
        text_link = slack["text"].splitlines()[-1]
        [card] = [each["content"] for each in teams["attachments"]]
        card_link = card["actions"][0]["url"]
        assert text_link != card_link
        for each in (text_link, card_link):
            code = each.removeprefix("https://console.example/login?code=")
            session = store.logins.exchange(code)
            assert (session.login.name, session.login.resources) == ("ann", ("escalations",))
            with pytest.raises(errors.UnauthenticatedError):
                store.logins.exchange(code)

    def test_mail_goes_to_those_who_still_have_to_answer(self, store: sync.Holdproof) -> None:
        with closing(MailServer()) as server:
            mail = {"host": "127.0.0.1", "port": server.port, "from": "holdproof@example.org", "starttls": False}
            configured(store, {"name": "mail", "kind": "mail", **mail})
            for name in ("ann", "bob", "carol"):
                store.people.put(name, groups=["finance"], email=f"{name}@example.org")
            asked = store.escalations.request(running(store), reason="pay\nBcc: eve@x", approvers="2 of finance")
            store.escalations.resolve(asked.id, "approve", by="ann")
            assert store.channels.deliver().delivered == 1
            [text] = server.mails
        mail_ = message_from_bytes(text)
        assert mail_["To"] == "bob@example.org, carol@example.org"
        assert mail_["Bcc"] is None
        assert "escalation 1 of agent trader" in mail_.get_payload()

    def test_a_mail_logs_in_only_the_one_address_that_it_is_configured_for(self, store: sync.Holdproof) -> None:
        token = store.tokens.create("ann", resources=["escalations"]).token.token_id
        for name in ("ann", "bob"):
            store.people.put(name, groups=["finance"], email=f"{name}@example.org")
        asked = store.escalations.request(running(store), reason="pay?", approvers="2 of finance")
        with closing(MailServer()) as server:
            mail = {"kind": "mail", "host": "127.0.0.1", "port": server.port, "from": "h@example.org"}
            link = {"starttls": False, "console": "https://console.example", "login_token": token}
            both = ["ann@example.org", "eve@example.org"]
            configured(
                store,
                {"name": "one", **mail, **link, "to": both[:1]},
                {"name": "several", **mail, **link, "to": both},
                {"name": "people", **mail, **link},
                {"name": "wrong", **mail, **link, "to": "ann@example.org"},
            )
            result = store.channels.deliver()
            assert (result.delivered, result.retried) == (3, 1)
            mails = {each["To"]: str(each.get_payload()) for each in map(message_from_bytes, server.mails)}
        assert "https://console.example/login?code=" in mails.pop("ann@example.org")
        assert sorted(mails) == ["ann@example.org, bob@example.org", "ann@example.org, eve@example.org"]
        for text in mails.values():
            assert f"https://console.example/inbox/{asked.id}" in text
            assert "code=" not in text

    def test_a_reminder_is_told_too_and_channels_get_what_they_are_for(
        self, store: sync.Holdproof, clock: FrozenClock, receiver: Receiver
    ) -> None:
        configured(store, webhook(receiver, events=["reminders"]))
        store.escalations.request(running(store), reason="pay?", deadline_s=1000)
        assert store.channels.deliver().queued == 0
        clock.advance(800)
        store.sweep.run()
        assert store.channels.deliver().delivered == 1
        assert json.loads(receiver.requests[0][2])["type"] == "holdproof.reminders"

    def test_the_words_of_a_persons_flow_leave_through_no_channel(
        self, store: sync.Holdproof, receiver: Receiver
    ) -> None:
        configured(store, webhook(receiver))
        store.escalations.request(running(store, subject="pat"), reason="pay pat?")
        assert store.channels.deliver().delivered == 1
        assert b"pat" not in receiver.requests[0][2]

    def test_two_processes_at_once_tell_it_once(self, store: sync.Holdproof, receiver: Receiver) -> None:
        configured(store, webhook(receiver))
        for _ in range(5):
            store.escalations.request(running(store), reason="pay?")
        with ThreadPoolExecutor(4) as pool:
            rounds = [each.result() for each in [pool.submit(store.channels.deliver) for _ in range(4)]]
        assert (sum(each.queued for each in rounds), sum(each.delivered for each in rounds)) == (5, 5)
        assert len(receiver.requests) == 5

    def test_a_delivery_is_claimed_when_its_turn_has_come(
        self, store: sync.Holdproof, clock: FrozenClock, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        configured(store, webhook(receiver))
        for _ in range(3):
            store.escalations.request(running(store), reason="pay?")
        left: list[list[float]] = []

        def slowly(channel: Channel, message: ChannelMessage) -> str:
            claims, now = store.context.database.read(lambda tx: (tx.all(_CLAIMED), tx.now)).result()
            left.append([(to_micros(until) - to_micros(now)) / 1e6 for (until,) in claims])
            clock.advance(40)
            channel.send(message)
            return ""

        monkeypatch.setattr(outbox, "_send", slowly)
        assert store.channels.deliver().delivered == 3
        assert left == [[60.0]] * 3

    def test_a_mail_server_that_falls_silent_is_hung_up_on(
        self, store: sync.Holdproof, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(channels, "_MAIL_S", 0.01)
        with closing(MailServer(silent=True)) as server:
            mail = {"host": "127.0.0.1", "port": server.port, "from": "h@example.org", "to": ["ann@example.org"]}
            configured(store, {"name": "mail", "kind": "mail", "starttls": False, **mail})
            # Not a time-out of one answer, which would be TimeoutError.
            assert "SMTPServerDisconnected" in store.channels.test("mail").problem

    def test_a_test_says_what_became_of_it_and_no_secret(self, store: sync.Holdproof, receiver: Receiver) -> None:
        receiver.answers = [200, 403]
        configured(store, webhook(receiver))
        assert store.channels.test("ops").delivered
        refused = store.channels.test("ops")
        assert (refused.delivered, refused.problem) == (False, "answered 403")
        with pytest.raises(errors.NotFoundError):
            store.channels.test("nobody")

    def test_what_is_wrong_in_the_file_is_said_without_its_secrets(
        self, store: sync.Holdproof, receiver: Receiver
    ) -> None:
        wrong: list[dict[str, Any]] = [
            {"name": "a", "kind": "pigeon", "url": SECRET},
            {"name": "b", "kind": "webhook", "url": SECRET},
            {"name": "c", "kind": "slack", "url": SECRET, "passwort": SECRET},
            {"name": "d", "kind": "slack", "url": "${NO_SUCH_VARIABLE}"},
            {"name": "e", "kind": "slack", "url": SECRET, "events": ["all"]},
        ]
        configured(store, *wrong, webhook(receiver))
        listed = store.channels.list()
        assert [bool(each.problem) for each in listed] == [True] * 5 + [False]
        assert SECRET not in repr(listed)
        (store.context.paths.config / "channels.yaml").write_text(f"channels: [{SECRET}")
        with pytest.raises(errors.ConfigError) as refused:
            store.channels.list()
        assert SECRET not in str(refused.value)

    def test_people_are_told_that_the_store_is_locked(self, store: sync.Holdproof, receiver: Receiver) -> None:
        configured(store, webhook(receiver, events=["lockdown"]))
        store.escalations.request(running(store), reason="pay?")
        store.lockdown.lock(reason="a drill")
        assert store.channels.deliver().delivered == 1
        message = json.loads(receiver.requests[0][2])
        assert message["type"] == "holdproof.lockdown"
        assert "a drill" in message["text"]

    def test_what_no_channel_is_for_hides_nothing_behind_it(self, store: sync.Holdproof, receiver: Receiver) -> None:
        configured(store, webhook(receiver, events=["lockdown"]))
        flow_id = running(store)

        def fill(tx: Tx) -> None:
            for _ in range(101):
                escalations.alert(tx, flow_id, reason="pay?")

        store.write(fill)
        store.lockdown.lock(reason="a drill")
        result = store.channels.deliver()
        assert (result.queued, result.delivered) == (1, 1)
        assert json.loads(receiver.requests[0][2])["type"] == "holdproof.lockdown"

    def test_a_flow_of_any_type_is_told_as_what_it_is(self, store: sync.Holdproof, receiver: Receiver) -> None:
        configured(store, webhook(receiver))
        store.escalations.request(running(store, flow_type="REMINDER"), reason="pay?")
        assert store.channels.deliver().delivered == 1
        assert json.loads(receiver.requests[0][2])["type"] == "holdproof.escalations"

    def test_no_secret_of_a_channel_is_in_the_database(self, store: sync.Holdproof, receiver: Receiver) -> None:
        receiver.answers = [500]
        configured(store, webhook(receiver))
        store.escalations.request(running(store), reason="pay?")
        store.channels.deliver()
        assert SECRET not in repr(store.channels.notifications())
        assert SECRET not in repr(store.channels.list())


_KILLED = """
import os, sys
from holdproof import sync
from holdproof.upkeep import outbox
outbox._send = lambda channel, message: os._exit(9)
with sync.open(sys.argv[1]) as store:
    store.channels.deliver()
"""


class TestSqlite(OnSqlite, ChannelsOfPeople):
    def test_a_process_killed_while_it_sends_loses_nothing(
        self, tmp_path: Path, clock: FrozenClock, receiver: Receiver
    ) -> None:
        home = tmp_path / "killed"
        with sync.open(home) as store:
            store.agents.register("trader", version="1.0.0")
            configured(store, webhook(receiver))
            store.escalations.request(running(store), reason="pay?")
        died = subprocess.run([sys.executable, "-c", _KILLED, str(home)], check=False, timeout=60)
        assert (died.returncode, receiver.requests) == (9, [])
        # The claim of the process that died lasts a minute.
        with sync.open(home, clock=clock) as store:
            clock.advance(10 * 365 * 86_400)
            assert store.channels.deliver().delivered == 1
            assert store.channels.notifications().items[0].outcome == "delivered"


class TestMemory(InMemory, ChannelsOfPeople):
    pass


class TestPostgres(OnPostgres, ChannelsOfPeople):
    pass
