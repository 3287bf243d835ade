"""Heads on their way to a webhook, against real HTTP servers that succeed, fail and hang."""

import json
import logging
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from holdproof.upkeep import head_webhook, notify
from holdproof.upkeep.head_webhook import HeadWebhook
from holdproof.upkeep.notify import Poster
from tests.receiver import Receiver

FAST = Poster(timeout_s=60, attempts=1, pause_s=0.01)
SECRET = "s3cret-t0ken"


def head(size: int) -> str:
    return f"holdproof/store-1\n{size}\nAAAA\n\n— holdproof/store-1 c2lnbmF0dXJl\n"


def until(true: Callable[[], Any], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "in vain"
        time.sleep(0.005)


def sizes(server: Receiver) -> list[int]:
    return [json.loads(body)["size"] for _, _, body in server.requests]


def test_a_head_arrives_as_the_signed_note_it_is_and_signed_once_more(serve: Callable[..., Receiver]) -> None:
    server = serve(200)
    carrying = HeadWebhook(f"{server.url}/heads", SECRET, poster=FAST)
    carrying.publish(head(7))
    until(lambda: server.requests)
    carrying.close()
    [(path, headers, body)] = server.requests
    assert path == "/heads"
    assert headers[notify.SIGNATURE.lower()] == notify.sign(SECRET, body)
    assert json.loads(body) == {"type": "holdproof.head", "origin": "holdproof/store-1", "size": 7, "head": head(7)}
    assert carrying.problem == ""


def test_heads_in_a_crowd_are_thinned_and_the_last_one_arrives(serve: Callable[..., Receiver]) -> None:
    server = serve(200)
    carrying = HeadWebhook(server.url, poster=FAST, every_s=0.05)
    for size in range(1, 400):
        carrying.publish(head(size))
        time.sleep(0.0005)
    carrying.close()
    assert sizes(server)[-1] == 399
    assert len(server.requests) < 40
    assert sizes(server) == sorted(set(sizes(server)))


def test_laying_down_a_head_never_waits_for_a_server_that_hangs(serve: Callable[..., Receiver]) -> None:
    free = threading.Event()
    server = serve(lambda _: free.wait(60))
    carrying = HeadWebhook(server.url, poster=Poster(timeout_s=60, attempts=1))
    for size in range(1, 1000):
        carrying.publish(head(size))
    until(lambda: server.requests)
    assert len(server.requests) == 1  # the first one still hangs
    server.answers = [200]
    free.set()
    carrying.close()
    assert sizes(server)[-1] == 999


def test_what_was_not_delivered_is_tried_again_and_told_once(
    serve: Callable[..., Receiver], caplog: pytest.LogCaptureFixture
) -> None:
    server = serve(500, 503, 404, 500, 200)
    carrying = HeadWebhook(server.url, poster=FAST, every_s=0.01)
    carrying.publish(head(3))
    until(lambda: carrying.problem)
    assert "does not have the newest head: answered" in head_webhook.warnings(carrying, {})[0]
    until(lambda: len(server.requests) >= 5 and not carrying.problem)
    carrying.close()
    assert sizes(server) == [3] * 5
    assert caplog.text.count("answered 500") == 2
    assert head_webhook.warnings(carrying, {}) == []


def test_a_newer_head_takes_the_place_of_one_that_was_not_delivered(serve: Callable[..., Receiver]) -> None:
    server = serve(500, 200)
    carrying = HeadWebhook(server.url, poster=FAST, every_s=0.2)
    carrying.publish(head(3))
    until(lambda: carrying.problem)
    carrying.publish(head(4))
    until(lambda: not carrying.problem)
    carrying.close()
    assert sizes(server) == [3, 4]


def test_closing_sends_the_last_head_and_gives_up_on_nobody(serve: Callable[..., Receiver]) -> None:
    server = serve(200)
    carrying = HeadWebhook(server.url, poster=FAST, every_s=30)
    carrying.publish(head(1))
    until(lambda: server.requests)
    carrying.publish(head(2))
    carrying.close()
    carrying.close()
    assert sizes(server) == [1, 2]
    nobody = HeadWebhook("http://127.0.0.1:1", poster=FAST)
    nobody.publish(head(1))
    nobody.close()
    assert nobody.problem == "no answer (ConnectError)"


def test_no_secret_reaches_logs_problems_or_reprs(
    serve: Callable[..., Receiver], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    for url in (f"{serve(200).url}/{SECRET}", f"{serve(404).url}/{SECRET}", f"gopher://{SECRET}"):
        carrying = HeadWebhook(url, SECRET, poster=FAST)
        carrying.publish(head(1))
        carrying.close()
        assert SECRET not in caplog.text + carrying.problem + repr(carrying)


def test_the_environment_describes_it_and_a_half_is_told() -> None:
    assert head_webhook.configured({}) is None
    assert head_webhook.warnings(None, {}) == []
    half = {"HOLDPROOF_HEADS_WEBHOOK_SECRET": SECRET}
    assert head_webhook.configured(half) is None
    assert head_webhook.warnings(None, half) == ["heads go to no webhook: HOLDPROOF_HEADS_WEBHOOK_URL is not set"]
    assert head_webhook.configured({"HOLDPROOF_HEADS_WEBHOOK_URL": "https://a/heads"}) is not None
