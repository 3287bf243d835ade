"""Notifiers: how an alert leaves this machine.

Rules:
- `broadcast` never raises: an alert that cannot be delivered is a line in the log and in the outcome.
- Each attempt has a time-out, each notifier a bounded number of attempts, all of them together one deadline.
- Network errors, 429 and 5xx are retried; any other answer but 2xx is final.
- Secrets (tokens, HMAC keys, URLs that hold them) appear in no message, log line or `repr`.
- A notifier with a variable missing is reported by `status`, not ignored.
"""

import hashlib
import hmac
import json
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol

from holdproof.lazy import lazy_module

if TYPE_CHECKING:
    import httpx
else:  # loaded at the first request: it costs more than all the rest at start
    httpx = lazy_module("httpx")

_log = logging.getLogger("holdproof.alerts")

SIGNATURE: Final = "Holdproof-Signature"
_TELEGRAM: Final = "https://api.telegram.org"


@dataclass(frozen=True, slots=True)
class Alert:
    """An alert: which store, which lockdown, its verdict, why and when."""

    kind: ClassVar[str] = "holdproof.lockdown"
    level: ClassVar[int] = logging.CRITICAL

    store_id: str
    lockdown: str
    verdict: str
    reason: str
    at: str
    findings: int = 0
    skill: str = ""
    """The path of the skill that is locked; empty where the store is."""

    def text(self) -> str:
        """Return the alert as text for people."""
        if self.skill:
            return (
                f"The skill {self.skill} of Holdproof store {self.store_id} is LOCKED ({self.verdict}): {self.reason}\n"
                f"{self.findings} changes, lockdown {self.lockdown}, since {self.at}.\n"
                "It is not loaded. Look at the file, then approve the one you trust with `holdproof skills approve`."
            )
        return (
            f"Holdproof store {self.store_id} is LOCKED ({self.verdict}): {self.reason}\n"
            f"{self.findings} findings, lockdown {self.lockdown}, since {self.at}.\n"
            "Keep a copy of the store as it is, run `holdproof verify --full`, then decide."
        )


@dataclass(frozen=True, slots=True)
class ExpiryAlert:
    """Escalations that nobody answered by their deadline: the first of them, and how many there were."""

    kind: ClassVar[str] = "holdproof.escalation_expired"
    level: ClassVar[int] = logging.WARNING

    store_id: str
    escalation: int
    flow_id: str
    agent_id: str
    reason: str
    impact: str
    deadline: str
    on_deadline: str
    """The default that was taken: reject, approve or cancel."""
    count: int = 1
    """How many expired at the same moment."""

    def text(self) -> str:
        """Return the alert as text for people."""
        more = f" {self.count - 1} more expired with it." if self.count > 1 else ""
        return (
            f"Nobody answered escalation {self.escalation} of agent {self.agent_id} by {self.deadline}:"
            f" {self.reason}\nIts default was taken: {self.on_deadline}.{more} Flow {self.flow_id} of Holdproof store"
            f" {self.store_id}; `holdproof flows timeline {self.flow_id}` shows what followed."
        )


AnyAlert = Alert | ExpiryAlert


class Notifier(Protocol):
    """Delivers alerts; `send` may raise, may be called again, and is not called by two threads at once."""

    @property
    def name(self) -> str:
        """Its name in outcomes; must hold no secret."""
        ...

    def send(self, alert: AnyAlert) -> None:
        """Deliver, or raise."""
        ...


@dataclass(frozen=True, slots=True)
class LogNotifier:
    """The process's own log, at the level of the alert: always there."""

    name: str = "log"

    def send(self, alert: AnyAlert) -> None:
        """See Notifier."""
        _log.log(alert.level, "%s", alert.text())


class UndeliveredError(Exception):
    """An alert could not be delivered; the text holds no secret."""


@dataclass(frozen=True, slots=True)
class Poster:
    """Posts JSON with time-outs and bounded retries."""

    timeout_s: float = 5.0
    attempts: int = 3
    pause_s: float = 0.5

    def post(self, url: str, body: bytes, headers: Mapping[str, str] | None = None) -> None:
        """Deliver one body; raises UndeliveredError that names no URL."""
        problem = ""
        for attempt in range(self.attempts):
            # 0.5 s, 1 s, 2 s …
            if attempt:
                time.sleep(self.pause_s * 2 ** (attempt - 1))
            problem, again = self._once(url, body, headers or {})
            if not problem:
                return
            if not again:
                break
        raise UndeliveredError(problem)

    def _once(self, url: str, body: bytes, headers: Mapping[str, str]) -> tuple[str, bool]:
        """Try once; return the problem (empty for none), and whether another attempt is worthwhile."""
        timeout = httpx.Timeout(self.timeout_s).as_dict()
        try:
            request = httpx.Request(
                "POST",
                url,
                content=body,
                headers={"content-type": "application/json", **headers},
                extensions={"timeout": timeout},
            )
            # The transport itself: httpx's client would log the URL, and with it Telegram's token.
            with httpx.HTTPTransport() as transport:
                answer = transport.handle_request(request)
                answer.close()
        except (httpx.UnsupportedProtocol, httpx.InvalidURL, httpx.LocalProtocolError, ValueError) as error:
            return f"the address cannot be used ({type(error).__name__})", False
        except (httpx.HTTPError, OSError) as error:
            return f"no answer ({type(error).__name__})", True
        if answer.status_code // 100 == 2:
            return "", False
        return f"answered {answer.status_code}", answer.status_code == 429 or answer.status_code >= 500


@dataclass(frozen=True, slots=True)
class Webhook:
    """Any HTTP endpoint: the alert as JSON, signed with HMAC-SHA-256 over the body where a secret is given."""

    url: str = field(repr=False)
    secret: str = field(default="", repr=False)
    poster: Poster = Poster()
    name: str = "webhook"

    def send(self, alert: AnyAlert) -> None:
        """See Notifier."""
        body = json.dumps({"type": alert.kind, **asdict(alert)}, sort_keys=True).encode()
        self.poster.post(self.url, body, {SIGNATURE: sign(self.secret, body)} if self.secret else {})


def sign(secret: str, body: bytes) -> str:
    """The value of the signature header: `sha256=` and the HMAC of the body, in hex."""
    return "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


@dataclass(frozen=True, slots=True)
class Telegram:
    """A chat of a Telegram bot."""

    token: str = field(repr=False)
    chat: str
    base: str = field(default=_TELEGRAM, repr=False)
    poster: Poster = Poster()
    name: str = "telegram"

    def send(self, alert: AnyAlert) -> None:
        """See Notifier."""
        body = json.dumps({"chat_id": self.chat, "text": alert.text()}).encode()
        self.poster.post(f"{self.base.rstrip('/')}/bot{self.token}/sendMessage", body)


@dataclass(frozen=True, slots=True)
class Signal:
    """A number or group, through signal-cli's REST service."""

    base: str = field(repr=False)
    sender: str
    recipients: tuple[str, ...]
    poster: Poster = Poster()
    name: str = "signal"

    def send(self, alert: AnyAlert) -> None:
        """See Notifier."""
        message = {"message": alert.text(), "number": self.sender, "recipients": list(self.recipients)}
        self.poster.post(f"{self.base.rstrip('/')}/v2/send", json.dumps(message).encode())


_PARTS: Final[dict[str, tuple[tuple[str, ...], tuple[str, ...]]]] = {
    "WEBHOOK": (("URL",), ("SECRET",)),
    "TELEGRAM": (("TOKEN", "CHAT"), ("URL",)),
    "SIGNAL": (("URL", "FROM", "TO"), ()),
}


def configured(env: Mapping[str, str]) -> tuple[list[Notifier], list[str]]:
    """Return the notifiers of the `HOLDPROOF_NOTIFY_<KIND>_<PART>` variables, and what is wrong with the others."""
    notifiers: list[Notifier] = [LogNotifier()]
    problems = []
    for kind, (needed, optional) in _PARTS.items():
        prefix = f"HOLDPROOF_NOTIFY_{kind}_"
        parts = {part: env[prefix + part] for part in (*needed, *optional) if env.get(prefix + part)}
        if missing := [prefix + part for part in needed if part not in parts]:
            if parts:
                problems.append(f"no {kind.lower()} alerts: {', '.join(missing)} is not set")
            continue
        notifiers.append(_MAKERS[kind](parts))
    return notifiers, problems


_MAKERS: Final[dict[str, Callable[[dict[str, str]], Notifier]]] = {
    "WEBHOOK": lambda parts: Webhook(parts["URL"], parts.get("SECRET", "")),
    "TELEGRAM": lambda parts: Telegram(parts["TOKEN"], parts["CHAT"], parts.get("URL", _TELEGRAM)),
    "SIGNAL": lambda parts: Signal(parts["URL"], parts["FROM"], tuple(parts["TO"].replace(",", " ").split())),
}


def broadcast(notifiers: Sequence[Notifier], alert: AnyAlert, *, deadline_s: float = 30.0) -> dict[str, str]:
    """Send to all in parallel; return the outcome of each. Never raises, never takes longer than the deadline."""
    outcomes: dict[str, str] = {each.name: "no answer within the deadline" for each in notifiers}

    def deliver(notifier: Notifier) -> None:
        try:
            notifier.send(alert)
        except UndeliveredError as error:
            outcomes[notifier.name] = str(error)
        except Exception as error:  # only its type is shown: its text may hold a secret
            outcomes[notifier.name] = f"failed ({type(error).__name__})"
        else:
            outcomes[notifier.name] = "delivered"

    threads = [threading.Thread(target=deliver, args=(each,), daemon=True) for each in notifiers]
    for thread in threads:
        thread.start()
    # The threads are daemons: one that is still busy at the deadline ends with the process.
    until = time.monotonic() + deadline_s
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
    results: dict[str, Any] = dict(outcomes)
    for name, outcome in results.items():
        if outcome != "delivered":
            _log.error("the alert was not delivered through %s: %s", name, outcome)
    return results
