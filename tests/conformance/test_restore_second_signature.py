"""Restores of stores whose heads are signed with ML-DSA-44 too: judged by what is trusted here, on both databases.

The forger of these tests can sign with the log key, as one who broke Ed25519 could, and writes the copy's keyring.
"""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.filling import settled
from harness.raw_access import Past
from holdproof import errors, sync
from holdproof.crypto import checkpoint, note
from holdproof.crypto import keys as crypto_keys
from holdproof.db import Tx, sql
from holdproof.evidence import tree
from holdproof.model.backup import Restored
from holdproof.model.keys import Key
from tests.conformance.store_backends import StoreOnPostgres, StoreOnSqlite, sound
from tests.store_locations import everything, submit

_SET_HEAD = sql("UPDATE log_state SET head = :head WHERE id = 1")
_SET_KEY = sql("UPDATE keyring SET role = :role, keyid = :keyid, public = :public WHERE leaf_id = :leaf_id")
_SET_SCORE = sql("UPDATE battles SET score = :score WHERE battle_id = 'b'")


def _with_one_signature(head: str) -> str:
    signed = checkpoint.parse(head.encode())
    [first] = [each for each in signed.note.signatures if len(each.signature) == 64]
    return f"{signed.note.text}\n{first.line()}"


def _drop_signature(tx: Tx, key: Key) -> None:
    del key
    tx.execute(_SET_HEAD, head=_with_one_signature(tree.state(tx).head))


def _drop_key(tx: Tx, key: Key) -> None:
    """Forge: heads of this store were never signed twice."""
    _drop_signature(tx, key)
    tx.execute(_SET_KEY, role="memory", keyid=key.keyid, public=key.public, leaf_id=key.leaf_id)


def _change_key(tx: Tx, key: Key) -> None:
    """Forge: another key signed, which is in the keyring."""
    own = crypto_keys.generate("ml-dsa-44")
    state = tree.state(tx)
    bare = _with_one_signature(state.head)
    line = note.cosign(checkpoint.parse(bare.encode()).note.text, state.origin, own, seconds=7).line()
    tx.execute(_SET_HEAD, head=bare + line)
    tx.execute(_SET_KEY, role="log-pq", keyid=own.keyid, public=own.public.to_pem().decode(), leaf_id=key.leaf_id)


def _change_row(tx: Tx, key: Key) -> None:
    """Forge: the log as it is, another score, and a manifest over both."""
    del key
    tx.execute(_SET_SCORE, score=0.9)


FORGERIES = {"key dropped": _drop_key, "key changed": _change_key, "signature dropped": _drop_signature}


def forged(store: sync.Holdproof, dest: Path, forge: Callable[[Tx, Key], None]) -> None:
    """Make a backup of the store as the forger would have it; the store itself is then as before."""
    settled(store)
    [key] = store.keys.list(role="log-pq").items
    head = store.read(lambda tx: tree.state(tx).head)

    def undo(tx: Tx) -> None:
        tx.execute(_SET_HEAD, head=head)
        tx.execute(_SET_KEY, role="log-pq", keyid=key.keyid, public=key.public, leaf_id=key.leaf_id)
        tx.execute(_SET_SCORE, score=0.5)

    store.write(lambda tx: forge(tx, key))
    try:
        store.backup.create(dest)
    finally:
        store.write(undo)


class RestoreSuite(StoreOnSqlite):
    """The second signature of a copy, judged by the store here, by its home, and by whom the caller names."""

    def furnished(self, folder: Path, forge: Callable[[Tx, Key], None]) -> str:
        """Make backups from before the key (`early`), of the store (`good`), and a forged one; return the key's id."""
        with self.open() as store:
            submit(store, "a")
            settled(store)
            store.backup.create(folder / "early")
            created = store.keys.create("log-pq")
            submit(store, "b")
            settled(store)
            store.backup.create(folder / "good")
            forged(store, folder / "forged", forge)
            sound(store)
        return created.keyid

    def restore(self, src: Path, **options: Any) -> Restored:
        return sync.restore(src, self.home, self.url, **options)

    def names(self) -> list[str]:
        with self.open() as store:
            sound(store)
            return [name for name, _ in everything(store)]

    def lose_keyring(self) -> None:
        """Make the store here one that cannot say whom it trusts."""
        Past(self.home, self.url).run("DELETE FROM keyring")

    @pytest.mark.parametrize("how", FORGERIES)
    def test_a_copy_that_dropped_or_changed_the_second_key_is_refused_by_the_store_here(
        self, tmp_path: Path, how: str
    ) -> None:
        self.furnished(tmp_path, FORGERIES[how])
        with pytest.raises(errors.ProofError, match=r"ML-DSA-44 too.*the store here can prove"):
            self.restore(tmp_path / "forged")
        assert self.names() == ["a", "b"]
        assert self.restore(tmp_path / "good").trust == "the store here"
        assert self.names() == ["a", "b"]

    def lose_database(self) -> None:
        """Remove the store here; keys and kept heads stay."""
        for end in ("", "-wal", "-shm"):
            (self.home / f"kernel.db{end}").unlink(missing_ok=True)

    def test_where_the_database_here_is_gone_its_home_does(self, tmp_path: Path) -> None:
        self.furnished(tmp_path, _drop_key)
        self.lose_database()
        with pytest.raises(errors.ProofError, match=r"ML-DSA-44 too.*the keys here can prove"):
            self.restore(tmp_path / "forged")
        assert self.restore(tmp_path / "good").trust == "the keys here"
        assert self.names() == ["a", "b"]

    @pytest.mark.parametrize("how", FORGERIES)
    @pytest.mark.parametrize("known", ["key folder", "kept heads"])
    def test_where_the_store_here_cannot_say_its_key_folder_and_kept_heads_do(
        self, tmp_path: Path, how: str, known: str
    ) -> None:
        self.furnished(tmp_path, FORGERIES[how])
        self.lose_keyring()
        if known == "kept heads":
            (self.home / "config" / "keys" / "log-pq.pem").unlink()
        with pytest.raises(errors.ProofError, match=r"ML-DSA-44 too.*the keys here can prove"):
            self.restore(tmp_path / "forged", dry_run=True)
        assert self.restore(tmp_path / "good", dry_run=True).trust == "the keys here"
        assert self.restore(tmp_path / "early", dry_run=True).trust == "the keys here"

    def test_a_key_put_into_the_keyring_here_vouches_for_no_copy(self, tmp_path: Path) -> None:
        """Neither by itself nor under a head that only the log key signed."""
        self.furnished(tmp_path, _change_key)
        with self.open() as store:
            settled(store)
            [key] = store.keys.list(role="log-pq").items
            store.write(lambda tx: _change_key(tx, key))
        with pytest.raises(errors.ProofError, match="ML-DSA-44 too"):
            self.restore(tmp_path / "forged", dry_run=True)
        assert self.restore(tmp_path / "good", dry_run=True).trust == "the store here"

    def test_a_copy_from_before_the_key_restores_with_one_signature(self, tmp_path: Path) -> None:
        self.furnished(tmp_path, _drop_key)
        assert self.restore(tmp_path / "early").trust == "the store here"
        assert self.names() == ["a"]
        # What came after it is judged by what was kept here, although the store here has no such key now.
        assert self.restore(tmp_path / "good").trust == "the store here"
        assert self.names() == ["a", "b"]

    def test_rows_are_held_against_the_log_where_its_head_has_two_signatures(self, tmp_path: Path) -> None:
        """The manifest over them has one."""
        self.furnished(tmp_path, _change_row)
        with pytest.raises(errors.CorruptError, match="battles"):
            self.restore(tmp_path / "forged")
        assert self.names() == ["a", "b"]

    def test_keys_of_both_kinds_can_be_named(self, tmp_path: Path) -> None:
        second = self.furnished(tmp_path, _change_key)
        with self.open() as store:
            signer = store.context.keys.load("log").public.keyid
        shutil.rmtree(self.home / "state")
        (self.home / "config" / "keys" / "log-pq.pem").unlink()
        self.lose_keyring()
        with pytest.raises(errors.ProofError, match="does not know the key"):
            self.restore(tmp_path / "forged", key=[signer, second], dry_run=True)
        assert self.restore(tmp_path / "good", key=[signer, second], dry_run=True).trust == "the key given"
        with pytest.raises(errors.ProofError, match="does not know the key"):
            self.restore(tmp_path / "good", key="0" * 64, dry_run=True)

    def test_a_copy_made_after_the_key_was_revoked_restores_with_one_signature(self, tmp_path: Path) -> None:
        second = self.furnished(tmp_path, _drop_key)
        with self.open() as store:
            settled(store)
            store.keys.revoke(second)
            submit(store, "c")
            settled(store)
            store.backup.create(tmp_path / "late")
        assert self.restore(tmp_path / "late").trust == "the store here"
        assert self.names() == ["a", "b", "c"]
        with pytest.raises(errors.ProofError, match="ML-DSA-44 too"):
            self.restore(tmp_path / "forged", dry_run=True)

    def test_a_machine_that_knows_nothing_believes_the_copy_and_says_so(self, tmp_path: Path) -> None:
        self.furnished(tmp_path, _drop_key)
        recovery = self.home / "config" / "keys" / "root-recovery.txt"
        done = sync.restore(tmp_path / "good", tmp_path / "fresh", root_recovery=recovery)
        assert done.trust == "itself"


class TestSqlite(RestoreSuite):
    """In a folder."""


class TestPostgres(StoreOnPostgres, RestoreSuite):
    """On a server."""

    def lose_database(self) -> None:
        """Remove the schemas; keys and kept heads stay."""
        for schema in ("kernel", "membrane", "telemetry"):
            Past(self.home, self.url).run(f"DROP SCHEMA IF EXISTS {schema} CASCADE")
