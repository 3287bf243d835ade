"""The log key where several processes, or several homes, have one store open; on SQLite and PostgreSQL."""

import subprocess
import sys
import time
from contextlib import suppress

import pytest

from harness.filling import settled
from holdproof import errors, sync
from holdproof.crypto import checkpoint
from holdproof.crypto.keys import Signer
from holdproof.crypto.vkey import ED25519, VerifierKey
from holdproof.evidence import keys as ring
from holdproof.evidence import statements
from holdproof.evidence.key_files import KeyFolder, MemoryKeys
from holdproof.evidence.statements import KeyStatement
from tests.conformance.store_backends import StoreOnPostgres, StoreOnSqlite, sound
from tests.store_locations import submit


def elsewhere(store: sync.Holdproof, url: str | None, *words: str) -> None:
    """A command in a process of its own."""
    place = ["--home", str(store.core.paths.data), *(["--url", url] if url else [])]
    command = [sys.executable, "-m", "holdproof.cli", *place, *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def signer(store: sync.Holdproof) -> str:
    """The id of the key that signed the newest head."""
    settled(store)
    head = store.log.head()
    for key in store.keys.list(role="log").items:
        name = VerifierKey(head.checkpoint.origin, ED25519, ring.public(key))
        with suppress(errors.ProofError):
            checkpoint.verify(head, origin=head.checkpoint.origin, log_keys=[name])
            return key.keyid
    pytest.fail("nobody of the keyring signed the head")


class LogKeySuite(StoreOnSqlite):
    """A rotation or revocation is noticed by those who have the store open."""

    def test_a_log_key_rotated_by_another_process_signs_the_next_head_here(self) -> None:
        with self.open() as store:
            submit(store, "b")
            [old] = store.keys.list(role="log").items
            assert signer(store) == old.keyid
            elsewhere(store, self.url, "keys", "rotate", "log")
            submit(store, "c")
            assert signer(store) == store.keys.list(role="log").items[0].keyid != old.keyid
            sound(store)

    def test_an_old_log_key_revoked_by_another_process_signs_nothing_more_here(self) -> None:
        with self.open() as store:
            submit(store, "b")
            store.keys.export_root()
            [old] = store.keys.list(role="log").items
            elsewhere(store, self.url, "keys", "rotate", "log")
            elsewhere(store, self.url, "keys", "revoke", old.keyid)
            for number in range(3):
                submit(store, f"c{number}")
            assert signer(store) != old.keyid
            sound(store)

    def test_a_successor_whose_rotation_was_cut_short_elsewhere_signs_here(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with self.open() as store, self.open() as other:
            submit(store, "b")
            with monkeypatch.context() as patch:
                patch.setattr(
                    KeyFolder, "promote", lambda self, role: (_ for _ in ()).throw(errors.ReadOnlyError("crash"))
                )
                with pytest.raises(errors.ReadOnlyError):
                    other.keys.rotate("log")
            submit(store, "c")
            assert signer(store) == store.keys.list(role="log").items[0].keyid
            sound(store)
        with self.open() as store:
            submit(store, "d")
            sound(store)

    def test_whose_only_log_key_is_revoked_signs_nothing_and_another_goes_on(self) -> None:
        mine, theirs = MemoryKeys(), MemoryKeys()
        with self.open(keys=mine) as store:
            submit(store, "b")
            store.keys.export_root()
            [old] = store.keys.list(role="log").items
            theirs.ensure("log")
            admit(store, theirs.load("log"))
            before = store.log.head()
            if store.database.dialect == "sqlite":  # a commit needs its head, so there is no commit
                with pytest.raises(errors.BadKeyError):
                    store.keys.revoke(old.keyid)
                assert store.keys.get(old.keyid).revoked_from is None
                submit(store, "c")
                sound(store)
                return
            store.keys.revoke(old.keyid)
            until = time.monotonic() + 10
            while store.context.log.signs and time.monotonic() < until:
                time.sleep(0.01)
            assert (store.context.log.signs, store.log.pending() > 0, store.log.head()) == (False, True, before)
            with self.open(keys=theirs) as other:
                assert signer(other) == theirs.load("log").keyid
                sound(other)


def admit(store: sync.Holdproof, key: Signer) -> None:
    """Root brings a log key of another home in."""
    said = KeyStatement("admit", "log", key.public, store.log.head().checkpoint.origin, "2026-01-01T00:00:00.000000Z")
    store.keys.import_statement(statements.sign(said.encode(), store.context.keys.load("root")))
    settled(store)


class TestOnSqlite(LogKeySuite):
    pass


class TestOnPostgres(StoreOnPostgres, LogKeySuite):
    pass
