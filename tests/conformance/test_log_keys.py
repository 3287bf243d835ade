"""Keys that are lost, and the log key where several processes or homes have one store open; on both databases."""

import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

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
from holdproof.model.keys import Role
from tests.conformance.store_backends import StoreOnPostgres, StoreOnSqlite, sound
from tests.store_locations import submit


def elsewhere(store: sync.Holdproof, url: str | None, *words: str) -> None:
    """A command in a process of its own."""
    place = ["--home", str(store.core.paths.data), *(["--url", url] if url else [])]
    command = [sys.executable, "-m", "holdproof", *place, *words]
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

    def test_a_lost_log_key_is_replaced_by_one_that_root_admits(self, tmp_path: Path) -> None:
        with self.open() as store:
            submit(store, "b")
            settled(store)
            [lost] = store.keys.list(role="log").items
        (self.home / "config" / "keys" / "log.pem").unlink()
        with self.open() as store:
            with pytest.raises(errors.UnknownKeyError, match="keys rotate log"):
                store.backup.create(tmp_path / "backup")
            new = store.keys.rotate("log")
            assert new.keyid != lost.keyid
            stated, _ = statements.parse(new.statement)
            assert (stated.action, stated.previous) == ("admit", lost.keyid)
            submit(store, "c")
            assert signer(store) == new.keyid
            store.backup.create(tmp_path / "backup")
            sound(store)
        with self.open() as store:
            submit(store, "d")
            sound(store)

    @pytest.mark.parametrize("role", ["judge", "memory"])
    def test_a_lost_key_is_said_at_its_next_use_and_replaced_only_by_rotation(self, role: Role) -> None:
        with self.open() as store:
            sign_with(store, role, "b")
            [lost] = store.keys.list(role=role).items
        path = self.home / "config" / "keys" / f"{role}.pem"
        pem = path.read_bytes()
        path.unlink()
        with self.open() as store:
            for name in ("c", "d"):  # the first refusal leaves nothing that the next use would take for a key
                with pytest.raises(errors.UnknownKeyError, match=f"keys rotate {role}"):
                    sign_with(store, role, name)
            assert not path.exists()
            assert [key.keyid for key in store.keys.list(role=role).items] == [lost.keyid]
            path.write_bytes(pem)
            path.chmod(0o600)
            sign_with(store, role, "e")  # a file that was put back counts at once
            path.unlink()
            new = store.keys.rotate(role)
            stated, _ = statements.parse(new.statement)
            assert (stated.action, stated.previous, new.keyid != lost.keyid) == ("admit", lost.keyid, True)
            sign_with(store, role, "f")
            assert len(store.keys.list(role=role).items) == 2
            sound(store)

    @pytest.mark.parametrize("role", ["judge", "memory"])
    def test_a_key_laid_in_place_of_another_is_refused_until_root_admits_it(self, role: Role) -> None:
        with self.open() as store:
            sign_with(store, role, "b")
        folder = KeyFolder(self.home / "config" / "keys")
        folder.remove(role)
        folder.ensure(role)
        with self.open() as store:
            with pytest.raises(errors.UnknownKeyError, match="keys join"):
                sign_with(store, role, "c")
            assert len(store.keys.list(role=role).items) == 1
            store.keys.join()
            sign_with(store, role, "d")
            sound(store)

    def test_processes_that_first_use_a_key_at_once_end_up_with_one(self) -> None:
        with self.open() as store, self.open() as other:
            names = iter(range(100))
            racing(lambda: submit(store, f"b{next(names)}"), lambda: submit(other, f"b{next(names)}"))
            assert len(store.keys.list(role="judge").items) == 1

    def test_a_lost_log_key_is_not_replaced_without_root(self) -> None:
        with self.open() as store:
            submit(store, "b")
            settled(store)
        for name in ("log.pem", "root.pem"):
            (self.home / "config" / "keys" / name).unlink()
        with self.open() as store:
            with pytest.raises(errors.UnknownKeyError, match="needs the root key"):
                store.keys.rotate("log")
            assert len(store.keys.list(role="log").items) == 1


def sign_with(store: sync.Holdproof, role: Role, name: str) -> None:
    """Something that a key of this role signs."""
    if role == "judge":
        submit(store, name)
    else:
        store.objects.put(name, type="note")
        store.snapshots.create(name)


def racing(*acts: Callable[[], object]) -> None:
    """Run all at once; an error in any of them is raised."""
    with ThreadPoolExecutor(len(acts)) as pool:
        for future in [pool.submit(act) for act in acts]:
            future.result()


def admit(store: sync.Holdproof, key: Signer) -> None:
    """Root brings a log key of another home in."""
    said = KeyStatement("admit", "log", key.public, store.log.head().checkpoint.origin, "2026-01-01T00:00:00.000000Z")
    store.keys.import_statement(statements.sign(said.encode(), store.context.keys.load("root")))
    settled(store)


class TestOnSqlite(LogKeySuite):
    pass


class TestOnPostgres(StoreOnPostgres, LogKeySuite):
    def test_a_log_key_rotated_on_one_machine_is_vouched_for_on_another(self, tmp_path: Path) -> None:
        with self.open() as store:
            submit(store, "b")
            settled(store)
        other = tmp_path / "other"
        shutil.copytree(self.home / "config" / "keys", other / "config" / "keys")
        with sync.open(other, self.url) as store:
            submit(store, "c")
            settled(store)
        with self.open() as store:
            for number in range(2):  # a chain of statements, not only one
                store.keys.rotate("log")
                submit(store, f"d{number}")
            sound(store)
        report = sync.verify(other, self.url, full=True)
        assert [each for each in report.findings if each.verdict.locks] == [], report.to_dict()
        with sync.open(other, self.url) as store:
            submit(store, "e")
            settled(store)

    def test_a_further_machine_reads_without_keys_and_joins_with_the_recovery_of_root(self, tmp_path: Path) -> None:
        with self.open() as store:
            submit(store, "b")
            recovery = store.keys.export_root().recovery
            settled(store)
            ring_before = [key.keyid for key in store.keys.list().items]
        with sync.open(tmp_path / "other", self.url) as store:
            assert not store.context.log.signs
            assert [key.keyid for key in store.keys.list().items] == ring_before, "reading admits no key"
            joined = store.keys.join(recovery=recovery)
            assert [key.role for key in joined] == ["log", "judge", "memory"]
            settled(store)  # an entry has its index once the sequencer has put it into the log
            assert store.keys.join(recovery=recovery).items == store.keys.join(recovery=recovery).items
            submit(store, "c")
            settled(store)
            assert not (tmp_path / "other" / "config" / "keys" / "root.pem").exists()
        for home in (self.home, tmp_path / "other"):
            report = sync.verify(home, self.url, full=True)
            assert [each for each in report.findings if each.verdict.locks] == [], report.to_dict()
