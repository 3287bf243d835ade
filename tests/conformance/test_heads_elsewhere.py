"""A webhook that keeps heads: it gets what is durable, holds up nobody, and shows a rollback that nothing else does."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.filling import settled
from holdproof import sync
from holdproof.crypto import checkpoint
from holdproof.evidence import log
from holdproof.model.verdicts import Verdict
from tests.conformance.store_backends import StoreOnPostgres, StoreOnSqlite, sound
from tests.receiver import Receiver
from tests.store_locations import submit

Serve = Callable[..., Receiver]


@pytest.fixture
def hook(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> Receiver:
    server = serve(200)
    monkeypatch.setenv("HOLDPROOF_HEADS_WEBHOOK_URL", server.url)
    return server


def kept(hook: Receiver) -> list[str]:
    return [json.loads(body)["head"] for _, _, body in hook.requests]


class HeadsSuite(StoreOnSqlite):
    """One rule a test."""

    def test_the_last_head_of_a_store_arrives_and_a_log_key_signed_it(self, hook: Receiver) -> None:
        with self.open() as store:
            for number in range(5):
                submit(store, f"b{number}")
            settled(store)
            last, known = store.log.head(), store.read(log.verifiers)
        signed = checkpoint.parse(kept(hook)[-1].encode())
        checkpoint.verify(signed, origin=last.checkpoint.origin, log_keys=known)
        assert signed.checkpoint.size >= last.checkpoint.size

    def test_a_webhook_that_nobody_answers_costs_no_commit_and_is_told(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HOLDPROOF_HEADS_WEBHOOK_URL", "http://127.0.0.1:1/heads")
        with self.open() as store:
            submit(store, "b")
            sound(store)
            assert store.core._webhook is not None
            store.core._webhook.close()
            assert [each for each in store.status().degraded if "webhook does not have the newest head" in each]

    def test_without_the_variable_nothing_is_sent(self) -> None:
        with self.open() as store:
            submit(store, "b")
            assert store.core._webhook is None


class TestOnSqlite(HeadsSuite):
    pass


class TestOnPostgres(StoreOnPostgres, HeadsSuite):
    pass


def test_a_head_that_the_webhook_kept_shows_a_rollback_that_nothing_here_knows(tmp_path: Path, hook: Receiver) -> None:
    home = tmp_path / "home"
    with sync.open(home) as store:
        submit(store, "b")
    shutil.copytree(home, tmp_path / "yesterday")
    with sync.open(home) as store:
        submit(store, "c")
    shutil.rmtree(home)
    shutil.move(tmp_path / "yesterday", home)  # the machine as it was, state folder and all
    assert sync.verify(home, lock=False).verdict is Verdict.VALID
    with (home / "state" / "heads.jsonl").open("ab") as file:
        file.write(hook.requests[-1][2] + b"\n")
    assert sync.verify(home, lock=False).verdict is Verdict.ROLLED_BACK


def test_a_store_in_memory_sends_no_head(hook: Receiver) -> None:
    with sync.open(url=":memory:") as store:
        submit(store, "b")
    assert hook.requests == []
