"""Notifiers against real HTTP servers that succeed, fail, hang and drip."""

import json
import logging
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler

import pytest

from holdproof.upkeep import notify
from holdproof.upkeep.notify import Alert, LogNotifier, Notifier, Poster, Signal, Telegram, Webhook
from tests.receiver import Receiver

ALERT = Alert("store-1", "lock-1", "TAMPERED", "table battles row 3: edited", "2026-01-31T12:00:00.000000Z", 2)
FAST = Poster(timeout_s=60, attempts=3, pause_s=0.01)
HASTY = Poster(timeout_s=0.3, attempts=3, pause_s=0.01)
SECRET = "s3cret-t0ken"


def outcome(notifier: Notifier, deadline_s: float = 60.0) -> str:
    return notify.broadcast([notifier], ALERT, deadline_s=deadline_s)[notifier.name]


def test_a_webhook_carries_the_alert_signed_over_its_body(serve: Callable[..., Receiver]) -> None:
    server = serve(204)
    assert outcome(Webhook(server.url + "/hook", SECRET, FAST)) == "delivered"
    [(path, headers, body)] = server.requests
    facts = json.loads(body)
    assert (path, facts["type"], facts["reason"]) == ("/hook", "holdproof.lockdown", ALERT.reason)
    assert headers[notify.SIGNATURE.lower()] == notify.sign(SECRET, body)
    assert headers[notify.SIGNATURE.lower()] != notify.sign("another", body)
    assert SECRET.encode() not in body


def test_a_webhook_without_a_secret_has_no_signature(serve: Callable[..., Receiver]) -> None:
    server = serve(200)
    assert outcome(Webhook(server.url, poster=FAST)) == "delivered"
    assert notify.SIGNATURE.lower() not in server.requests[0][1]


def test_telegram_gets_its_bot_call(serve: Callable[..., Receiver]) -> None:
    server = serve(200)
    assert outcome(Telegram(SECRET, "42", server.url + "/", FAST)) == "delivered"
    [(path, _, body)] = server.requests
    assert path == f"/bot{SECRET}/sendMessage"
    assert json.loads(body) == {"chat_id": "42", "text": ALERT.text()}


def test_signal_gets_its_rest_call(serve: Callable[..., Receiver]) -> None:
    server = serve(201)
    assert outcome(Signal(server.url, "+4912", ("+4934", "group.x"), FAST)) == "delivered"
    [(path, _, body)] = server.requests
    facts = json.loads(body)
    assert (path, facts["number"], facts["recipients"]) == ("/v2/send", "+4912", ["+4934", "group.x"])
    assert "LOCKED" in facts["message"]


@pytest.mark.parametrize("status", [500, 503, 429])
def test_what_may_pass_is_tried_again(serve: Callable[..., Receiver], status: int) -> None:
    server = serve(status, status, 200)
    assert outcome(Webhook(server.url, poster=FAST)) == "delivered"
    assert len(server.requests) == 3


@pytest.mark.parametrize("status", [500, 429])
def test_attempts_are_bounded(serve: Callable[..., Receiver], status: int) -> None:
    server = serve(status)
    assert outcome(Webhook(server.url, poster=FAST)) == f"answered {status}"
    assert len(server.requests) == FAST.attempts


@pytest.mark.parametrize("status", [301, 400, 401, 404])
def test_a_final_answer_is_not_asked_for_again(serve: Callable[..., Receiver], status: int) -> None:
    server = serve(status)
    assert outcome(Webhook(server.url, poster=FAST)) == f"answered {status}"
    assert len(server.requests) == 1


def drip(handler: BaseHTTPRequestHandler) -> None:
    """One byte of a header that never ends, again and again: no read ever times out."""
    for _ in range(100):
        handler.wfile.write(b"H")
        handler.wfile.flush()
        time.sleep(0.05)


def drop(handler: BaseHTTPRequestHandler) -> None:
    handler.connection.close()


def test_a_server_that_hangs_times_out(serve: Callable[..., Receiver]) -> None:
    given_up = threading.Event()  # until then it says nothing: were it waited for, this would never end
    try:
        assert outcome(Webhook(serve(lambda _: given_up.wait()).url, poster=HASTY)).startswith("no answer (")
    finally:
        given_up.set()


def test_a_server_that_drips_ends_with_the_deadline(serve: Callable[..., Receiver]) -> None:
    assert outcome(Webhook(serve(drip).url, poster=HASTY), deadline_s=0.5) == "no answer within the deadline"


def test_a_server_that_hangs_up_is_tried_again(serve: Callable[..., Receiver]) -> None:
    server = serve(drop, 200)
    assert outcome(Webhook(server.url, poster=FAST)) == "delivered"


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "https://127.0.0.1:1/x"])
def test_nobody_there_is_an_outcome_and_no_error(url: str) -> None:
    assert outcome(Webhook(url, poster=FAST)) == "no answer (ConnectError)"


@pytest.mark.parametrize("url", ["ftp://x/y", "no url", "http://[::1", "http://a b/", ""])
def test_an_address_that_cannot_be_used_is_an_outcome_and_no_error(url: str) -> None:
    assert outcome(Webhook(url, poster=FAST)) != "delivered"


def test_one_that_fails_does_not_hold_up_the_others(serve: Callable[..., Receiver]) -> None:
    class Broken:
        name = "broken"

        def send(self, alert: notify.AnyAlert) -> None:
            raise RuntimeError(SECRET)

    good = serve(200)
    told = notify.broadcast([Broken(), Webhook(good.url, poster=FAST), LogNotifier()], ALERT)
    assert told == {"broken": "failed (RuntimeError)", "webhook": "delivered", "log": "delivered"}


def test_no_secret_reaches_logs_outcomes_or_reprs(
    serve: Callable[..., Receiver], caplog: pytest.LogCaptureFixture
) -> None:
    """Everything any library logs while an alert is sent, at any level."""
    caplog.set_level(logging.DEBUG)
    server = serve(200, 500, 404)
    made: list[Notifier] = [
        Webhook(f"{server.url}/{SECRET}", SECRET, FAST),
        Telegram(SECRET, "42", server.url, FAST),
        Telegram(SECRET, "42", "http://127.0.0.1:1", FAST),
        Signal(f"{server.url}/{SECRET}", "+1", ("+2",), FAST),
    ]
    told = [notify.broadcast([each], ALERT) for each in made for _ in range(2)]
    assert SECRET not in caplog.text
    assert SECRET not in repr(made) + repr(told)


def test_the_environment_describes_notifiers_and_halves_are_told() -> None:
    env = {
        "HOLDPROOF_NOTIFY_WEBHOOK_URL": "https://a/hook",
        "HOLDPROOF_NOTIFY_WEBHOOK_SECRET": SECRET,
        "HOLDPROOF_NOTIFY_TELEGRAM_TOKEN": SECRET,
        "HOLDPROOF_NOTIFY_SIGNAL_URL": "http://s",
        "HOLDPROOF_NOTIFY_SIGNAL_FROM": "+1",
        "HOLDPROOF_NOTIFY_SIGNAL_TO": "+2, +3",
    }
    made, problems = notify.configured(env)
    assert [each.name for each in made] == ["log", "webhook", "signal"]
    assert problems == ["no telegram alerts: HOLDPROOF_NOTIFY_TELEGRAM_CHAT is not set"]
    assert made[1] == Webhook("https://a/hook", SECRET)
    assert made[2] == Signal("http://s", "+1", ("+2", "+3"))
    assert notify.configured({}) == ([LogNotifier()], [])
