"""Channels: webhook, mail, Slack and Teams, configured in one file, `channels.yaml` beside `config.yaml`.

Rules:
- The file is the one place: names, kinds, addresses, which events. `${VAR}` stands for an environment variable.
- Secrets (addresses that hold them, HMAC keys, passwords) appear in no message, entry, log line or `repr`.
- A channel that is configured wrongly is listed with its problem, and hinders no other.
- A message holds a link to the console. With `login_token` it is a link to log in by: used once, and gone within the
  hour; the token says what its holder may do. A mail has one only where `to` names one address: others who get the
  mail would log in as the token's holder.
"""

import json
import os
import smtplib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from email.message import EmailMessage
from pathlib import Path
from typing import Any, Final

from holdproof import config, config_file
from holdproof.errors import ConfigError
from holdproof.upkeep.notify import SIGNATURE, Poster, UndeliveredError, sign

EVENTS: Final = ("escalations", "lockdown", "skills", "reminders")
FILE: Final = "channels.yaml"
_TIMEOUT_S: Final = 10.0
_MAIL_S: Final = 30.0
"""How long a conversation with a mail server may take; less than a claim of the outbox lasts, with connecting too."""
# One attempt each: the outbox counts attempts, and outlives the process.
_POSTER: Final = Poster(timeout_s=_TIMEOUT_S, attempts=1)


@dataclass(frozen=True, slots=True)
class ChannelMessage:
    """What a channel carries: an event, a line for people, facts for programs, where to look, and who is meant."""

    event: str
    subject: str
    text: str
    facts: Mapping[str, Any]
    link: str = ""
    recipients: tuple[str, ...] = ()
    """The addresses of the people who still have to answer."""


@dataclass(frozen=True, slots=True)
class Channel:
    """One configured channel; its options hold secrets."""

    name: str
    kind: str
    events: tuple[str, ...]
    options: Mapping[str, Any] = field(repr=False)
    problem: str = ""

    @property
    def console(self) -> str:
        """The address of the console that messages lead to; empty for none."""
        return str(self.options.get("console", "")).rstrip("/")

    @property
    def login_token(self) -> str | None:
        """The id of the token whose holder a link logs in; None for a link without a login."""
        value = self.options.get("login_token")
        return None if value is None else str(value)

    @property
    def is_for_one_reader(self) -> bool:
        """Whether its messages may log one person in; a room is one reader: who configures it knows who is in it."""
        return self.kind != "mail" or len(self.options.get("to", ())) == 1

    def send(self, message: ChannelMessage) -> None:
        """Deliver, or raise UndeliveredError, whose text holds no secret."""
        if self.problem:
            raise UndeliveredError(self.problem)
        _KINDS[self.kind].send(self.options, message)


# --- kinds -------------------------------------------------------------------------------------------------------


def _webhook(options: Mapping[str, Any], message: ChannelMessage) -> None:
    content = {"type": f"holdproof.{message.event}", "text": message.text, "link": message.link, **message.facts}
    body = json.dumps(content, sort_keys=True).encode()
    secret = str(options["secret"])
    _POSTER.post(str(options["url"]), body, {SIGNATURE: sign(secret, body)})


def _with_link(message: ChannelMessage) -> str:
    return f"{message.text}\n{message.link}" if message.link else message.text


def _slack(options: Mapping[str, Any], message: ChannelMessage) -> None:
    # Three characters have a meaning in Slack's markup; an agent's words must not mention a whole channel.
    text = _with_link(message).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    _POSTER.post(str(options["url"]), json.dumps({"text": text, "unfurl_links": False}).encode())


def _teams(options: Mapping[str, Any], message: ChannelMessage) -> None:
    card: dict[str, Any] = {
        "type": "AdaptiveCard",
        "version": "1.4",
        "body": [{"type": "TextBlock", "text": message.text, "wrap": True}],
    }
    if message.link:
        card["actions"] = [{"type": "Action.OpenUrl", "title": "Open", "url": message.link}]
    attachment = {"contentType": "application/vnd.microsoft.card.adaptive", "content": card}
    _POSTER.post(str(options["url"]), json.dumps({"type": "message", "attachments": [attachment]}).encode())


@contextmanager
def _hung_up_after(server: smtplib.SMTP, seconds: float) -> Iterator[None]:
    """End a conversation that takes too long as a whole: every word of it has a time-out of its own only."""

    def hang_up() -> None:
        if server.sock is not None:
            with suppress(OSError):
                server.sock.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(seconds, hang_up)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _mail(options: Mapping[str, Any], message: ChannelMessage) -> None:
    recipients = [str(each) for each in options.get("to", ())] or [*message.recipients]
    if not recipients:
        raise UndeliveredError("nobody to write to: set `to`, or the addresses of people (`people put --email`)")
    mail = EmailMessage()
    # A header is one line: what agents write must not begin another.
    mail["Subject"] = " ".join(message.subject.split())[:200]
    mail["From"] = str(options["from"])
    mail["To"] = ", ".join(recipients)
    mail.set_content(_with_link(message))
    try:
        with (
            smtplib.SMTP(str(options["host"]), int(options.get("port", 587)), timeout=_TIMEOUT_S) as server,
            _hung_up_after(server, _MAIL_S),
        ):
            if options.get("starttls", True):
                server.starttls(context=ssl.create_default_context())
            if "user" in options:
                server.login(str(options["user"]), str(options["password"]))
            server.send_message(mail)
    # Its text may quote what the server said, with our user name in it.
    except (smtplib.SMTPException, OSError, ValueError) as error:
        raise UndeliveredError(f"the mail server did not take it ({type(error).__name__})") from None


@dataclass(frozen=True, slots=True)
class _Kind:
    """A kind of channel: what it needs, what it may have, and how it sends."""

    needed: frozenset[str]
    optional: frozenset[str]
    send: Callable[[Mapping[str, Any], ChannelMessage], None]


_COMMON: Final = frozenset({"name", "kind", "events", "console", "login_token"})
_KINDS: Final = {
    "webhook": _Kind(frozenset({"url", "secret"}), frozenset(), _webhook),
    "slack": _Kind(frozenset({"url"}), frozenset(), _slack),
    "teams": _Kind(frozenset({"url"}), frozenset(), _teams),
    "mail": _Kind(frozenset({"host", "from"}), frozenset({"port", "to", "starttls", "user", "password"}), _mail),
}

# --- the file ----------------------------------------------------------------------------------------------------


def load(folder: Path) -> tuple[Channel, ...]:
    """Return the channels of `channels.yaml` in a folder, none without the file; ConfigError for a file of no shape."""
    path = folder / FILE
    if not os.path.lexists(path):
        return ()
    tree, _ = config_file.parse(path)
    entries = tree.get("channels")
    if not isinstance(entries, list) or not all(isinstance(each, dict) and each.get("name") for each in entries):
        raise ConfigError(f"{path} is a list `channels:` whose items have a name and a kind", path=str(path))
    names = [str(each["name"]) for each in entries]
    if len(set(names)) < len(names):
        raise ConfigError(f"two channels of {path} have one name", path=str(path))
    return tuple(map(_channel, entries))


def _channel(entry: Mapping[str, Any]) -> Channel:
    name = str(entry["name"])
    kind = str(entry.get("kind"))
    events = entry.get("events", list(EVENTS))
    try:
        options = {key: _expanded(value) for key, value in entry.items()}
    except ConfigError as error:
        return Channel(name, kind, (), {}, error.message)
    shape = _KINDS.get(kind)
    if shape is None:
        return Channel(name, kind, (), {}, f"kind is one of {', '.join(_KINDS)}")
    if not isinstance(events, list) or not set(events) <= set(EVENTS):
        return Channel(name, kind, (), {}, f"events are of {', '.join(EVENTS)}")
    if problem := _problem(shape, kind, options):
        return Channel(name, kind, tuple(events), {}, problem)
    return Channel(name, kind, tuple(events), options)


def _problem(shape: _Kind, kind: str, options: Mapping[str, Any]) -> str:
    """Say what is wrong with the options of a channel; empty for nothing."""
    if missing := sorted(shape.needed - options.keys()):
        return f"{', '.join(missing)} is missing"
    if unknown := sorted(options.keys() - shape.needed - shape.optional - _COMMON):
        return f"{', '.join(map(str, unknown))} is no option of {kind}"
    return "" if isinstance(options.get("to", []), list) else "to is a list of addresses"


def _expanded(value: Any) -> Any:
    if isinstance(value, list):
        return [_expanded(each) for each in value]
    return config.expand(value) if isinstance(value, str) else value
