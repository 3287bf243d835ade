"""Keys: coming in, rotation, revocation by index, root, trust.json; on every backend."""

import asyncio
import json
import os
import stat
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import holdproof
from harness.filling import settled
from holdproof import errors, sync
from holdproof.crypto import attest, dbom, dsse, keys
from holdproof.crypto.keys import PublicKey, Signer
from holdproof.db import Tx, sql
from holdproof.evidence import key_use, statements, trust
from holdproof.evidence import keys as ring
from holdproof.evidence.key_files import KeyFolder, MemoryKeys
from holdproof.evidence.startup import add_key
from holdproof.model.keys import Role, Successors
from holdproof.model.verdicts import Verdict
from holdproof.upkeep.verification import offline
from tests.conformance.store_backends import StoreInMemory, StoreOnPostgres, StoreOnSqlite, sound

_TAKE_BACK = sql("UPDATE keyring SET revoked_from = NULL WHERE keyid = :keyid")

_TAKE_OUT = sql("UPDATE keyring SET revoked_from = 0 WHERE keyid = :keyid")


def submit(store: sync.Holdproof, evaluation_id: str = "b", **more: Any) -> str:
    """A battle; the text of its DBOM."""
    evaluation = store.evaluations.submit({"task": evaluation_id}, evaluation_id=evaluation_id, score=0.5, **more)
    settled(store)
    assert evaluation.dbom is not None
    return evaluation.dbom


def _rotated(store: sync.Holdproof) -> tuple[str, str, int]:
    """A judge that named a successor: both key ids, and where the successor's leaf stands."""
    submit(store)
    old, new = store.keys.list(role="judge").items[-1].keyid, store.keys.rotate("judge").keyid
    settled(store)
    leaf = store.keys.get(new).index
    assert leaf is not None
    return old, new, leaf


class KeySuite(StoreOnSqlite):
    """One rule of the keyring a test."""

    def test_the_judge_comes_in_at_the_first_submit_and_before_what_it_signs(self) -> None:
        with self.open() as store:
            assert sorted(key.role for key in store.keys.list().items) == ["log", "root"]
            checked = store.dbom.verify(submit(store))
            [judge] = store.keys.list(role="judge").items
            assert judge.index is not None
            assert checked.index is not None
            assert judge.index < checked.index
            said, envelope = statements.parse(judge.statement)
            assert (said.action, said.public.keyid) == ("admit", judge.keyid)
            [root] = store.keys.list(role="root").items
            dsse.verify(envelope, [ring.public(root)], payload_type="application/vnd.in-toto+json")
            sound(store)

    def test_a_successor_is_signed_in_by_its_predecessor_and_both_signatures_stay_good(self) -> None:
        with self.open() as store:
            before = submit(store)
            [old] = store.keys.list(role="judge").items
            new = store.keys.rotate("judge")
            after = submit(store, "c")
            said, envelope = statements.parse(new.statement)
            assert (said.action, said.previous) == ("rotate", old.keyid)
            dsse.verify(envelope, [ring.public(old)], payload_type="application/vnd.in-toto+json")
            assert [store.dbom.verify(text).verdict for text in (before, after)] == [Verdict.VALID] * 2
            assert [store.dbom.verify(text).signer for text in (before, after)] == [old.keyid, new.keyid]
            sound(store)

    def test_revocation_counts_from_its_index_on_and_what_stands_before_stays_good(self) -> None:
        with self.open() as store:
            store.keys.export_root()
            texts = [submit(store, name) for name in ("a", "b", "c")]
            second = store.dbom.verify(texts[1]).index
            [judge] = store.keys.list(role="judge").items
            revoked = store.keys.revoke(judge.keyid[:12], from_index=second)
            assert (revoked.revoked_from, revoked.leaf_ver) == (second, 2)
            settled(store)
            verdicts = [store.dbom.verify(text).verdict for text in texts]
            assert verdicts == [Verdict.VALID, Verdict.REVOKED_KEY, Verdict.REVOKED_KEY]

    def test_a_revocation_from_here_on_leaves_everything_before_good(self) -> None:
        with self.open() as store:
            store.keys.export_root()
            text = submit(store)
            store.keys.revoke(store.keys.list(role="judge").items[-1].keyid)
            assert store.dbom.verify(text).verdict is Verdict.VALID
            sound(store)

    def test_a_revoked_key_signs_nothing_new_until_its_role_is_rotated(self) -> None:
        with self.open() as store:
            store.keys.export_root()
            submit(store)
            store.keys.revoke(store.keys.list(role="judge").items[-1].keyid)
            with pytest.raises(errors.RevokedKeyError):
                submit(store, "c")
            assert len(store.evaluations.list().items) == 1
            new = store.keys.rotate("judge")
            assert statements.parse(new.statement)[0].action == "admit"
            assert store.dbom.verify(submit(store, "c")).verdict is Verdict.VALID
            sound(store)

    def test_a_rotation_keeps_the_algorithm_and_changes_it_where_asked(self) -> None:
        with self.open() as store:
            submit(store, "a")
            assert store.keys.rotate("judge").alg == "ecdsa-p256-sha256"
            assert store.keys.rotate("judge", algorithm="rsa-pss-sha256").alg == "rsa-pss-sha256"
            assert store.keys.rotate("judge").alg == "rsa-pss-sha256"
            assert store.dbom.verify(submit(store, "b")).verdict is Verdict.VALID
            assert store.keys.rotate("judge", algorithm="ed25519").alg == "ed25519"
            others: tuple[Role, ...] = ("log", "memory", "root")
            for role in others:
                with pytest.raises(errors.BadKeyError, match=f"a {role} key is"):
                    store.keys.rotate(role, algorithm="rsa-pss-sha256")
            waiting = store.context.keys.prepare("judge", "rsa-pss-sha256")
            with pytest.raises(errors.ConflictError, match="--algorithm rsa-pss-sha256"):
                store.keys.rotate("judge")
            assert store.keys.rotate("judge", algorithm="rsa-pss-sha256").keyid == waiting.keyid
            assert store.dbom.verify(submit(store, "c")).verdict is Verdict.VALID
            sound(store)

    def test_a_revocation_can_be_moved_earlier_never_later(self) -> None:
        with self.open() as store:
            store.keys.export_root()
            submit(store)
            keyid = store.keys.list(role="judge").items[-1].keyid
            store.keys.revoke(keyid, from_index=5)
            with pytest.raises(errors.ConflictError):
                store.keys.revoke(keyid, from_index=6)
            assert store.keys.revoke(keyid, from_index=4).revoked_from == 4
            with pytest.raises(errors.InvalidInputError):
                store.keys.revoke(keyid, from_index=10_000)

    def test_a_revocation_that_would_orphan_a_successor_is_refused_and_names_it(self) -> None:
        with self.open() as store:
            store.keys.export_root()
            old, new, leaf = _rotated(store)
            with pytest.raises(errors.ConflictError, match="re-admit") as refused:
                store.keys.revoke(old, from_index=leaf)
            assert refused.value.fields["orphans"] == [f"judge {new}"]
            with pytest.raises(errors.ConflictError, match="re-admit"):
                store.keys.revocation(old, from_index=leaf)
            assert store.keys.revoke(old, from_index=leaf + 1).revoked_from == leaf + 1
            sound(store)

    def test_root_re_admits_what_a_key_named_after_the_leaf_it_is_revoked_from(self) -> None:
        with self.open() as store:
            store.keys.export_root()
            old, new, leaf = _rotated(store)
            last = store.keys.rotate("judge").keyid
            text = submit(store, "c")
            store.keys.revoke(old, from_index=leaf, successors="readmit")
            assert [store.keys.get(each).revoked_from for each in (old, new, last)] == [leaf, None, None]
            assert store.dbom.verify(text).verdict is Verdict.VALID
            sound(store)

    def test_root_takes_out_what_a_thief_named_as_successor(self) -> None:
        with self.open() as store:
            store.keys.export_root()
            old, new, leaf = _rotated(store)
            stolen = submit(store, "c")
            last = store.keys.rotate("judge")
            settled(store)
            store.keys.revoke(old, from_index=leaf, successors="revoke")
            revoked = [store.keys.get(each).revoked_from for each in (old, new, last.keyid)]
            assert revoked == [leaf, leaf, store.keys.get(last.keyid).index]
            settled(store)
            assert store.read(ring.flaws) == {}
            assert store.dbom.verify(stolen).verdict is Verdict.REVOKED_KEY
            store.keys.rotate("judge")
            assert store.dbom.verify(submit(store, "d")).verdict is Verdict.VALID

    def test_a_root_kept_elsewhere_re_admits_before_it_revokes(self) -> None:
        with self.open() as store:
            submit(store)
            made = store.keys.export_root(offline=True)
            old, new, leaf = _rotated(store)
            for payload in (store.keys.readmission, lambda _: store.keys.revocation(old, from_index=leaf)):
                store.keys.import_statement(trust.sign_statement(payload(new).text, recovery=made.recovery))
            sound(store)

    def test_no_root_key_is_unseated_by_its_predecessors_revocation(self) -> None:
        with self.open() as store:
            submit(store)
            store.keys.export_root()
            store.keys.rotate("root")
            settled(store)
            first = store.keys.list(role="root").items[-1]
            how: tuple[Successors | None, ...] = (None, "readmit", "revoke")
            for successors in how:
                with pytest.raises((errors.ConflictError, errors.ProofError)):
                    store.keys.revoke(first.keyid, from_index=first.index, successors=successors)
            store.keys.revoke(first.keyid)
            sound(store)

    def test_a_key_that_nobody_admitted_gets_nowhere_by_revoking_itself(self) -> None:
        with self.open() as store:
            submit(store)
            store.keys.export_root()
            intruder, origin = keys.generate("ed25519"), store.read(ring.origins)[-1]
            said = statements.KeyStatement("revoke", "root", intruder.public, origin, "2026-01-01T00:00:00Z", None, 0)
            text = "first\n" + statements.sign(said.encode(), intruder)
            store.write(lambda tx: add_key(tx, "root", intruder.public, statement=text))
            store.write(lambda tx: tx.execute(_TAKE_OUT, keyid=intruder.keyid))
            settled(store)
            assert list(store.read(ring.flaws)) == [intruder.keyid]

    def test_a_revocation_beside_a_rotation_that_is_not_in_the_tree_yet_orphans_nobody(self) -> None:
        with self.open() as store:
            store.keys.export_root()
            submit(store)
            old, new = store.keys.list(role="judge").items[-1], store.context.keys.prepare("judge", "ecdsa-p256-sha256")
            root, judge = store.context.keys.load("root"), store.context.keys.load("judge")

            def rotate(tx: Tx) -> None:
                said = ring.draft(tx, "rotate", "judge", new.public, previous=old.keyid)
                ring.import_statement(tx, statements.sign(said.encode(), judge))

            def revoke(tx: Tx) -> None:
                ring.import_statement(tx, statements.sign(ring.revocation(tx, old.keyid).text.encode(), root))

            store.database.write(lambda _: time.sleep(0.1))  # the next two share a group where there are groups
            rotated = store.database.write(rotate)
            if store.database.dialect == "postgres":
                rotated.result()
            store.database.write(revoke).result()
            sound(store)

    def test_only_root_revokes(self) -> None:
        with self.open() as store:
            submit(store)
            store.keys.export_root(offline=True)
            keyid = store.keys.list(role="judge").items[-1].keyid
            with pytest.raises(errors.UnknownKeyError, match="recover-root"):
                store.keys.revoke(keyid)
            payload = store.keys.revocation(keyid).text.encode()
            judge = store.context.keys.load("judge")
            with pytest.raises(errors.ProofError):
                store.keys.import_statement(statements.sign(payload, judge))
            assert store.keys.get(keyid).revoked_from is None

    def test_the_only_log_key_cannot_be_revoked(self) -> None:
        with self.open() as store:
            store.keys.export_root()
            [log] = store.keys.list(role="log").items
            with pytest.raises(errors.ConflictError, match="rotate"):
                store.keys.revoke(log.keyid)
            store.keys.rotate("log")
            submit(store)
            store.keys.revoke(log.keyid)
            assert store.dbom.verify(submit(store, "c")).verdict is Verdict.VALID
            sound(store)

    def test_once_there_is_a_root_no_key_introduces_itself(self) -> None:
        with self.open() as store:
            made = store.keys.export_root(offline=True)
            assert not made.on_disk
            assert store.dbom.verify(submit(store)).verdict is Verdict.VALID  # admitted before root left
            store.context.keys.remove("judge")  # type: ignore[attr-defined]
            with pytest.raises(errors.UnknownKeyError):
                submit(store, "c")
            payload = store.keys.statement("judge").text
            store.keys.import_statement(trust.sign_statement(payload, recovery=made.recovery))
            assert store.dbom.verify(submit(store, "c")).verdict is Verdict.VALID
            sound(store)

    def test_a_new_store_has_a_root_key_from_its_first_open(self) -> None:
        with self.open() as store:
            settled(store)
            [root] = store.keys.list(role="root").items
            assert store.context.keys.load("root").keyid == root.keyid
            assert store.read(ring.flaws) == {}
            sound(store)

    def test_a_statement_for_another_log_or_by_a_stranger_is_refused(self) -> None:
        with self.open() as store, sync.open(url=":memory:") as other:
            store.keys.export_root()
            other.keys.export_root()
            submit(store)
            submit(other)
            foreign = other.keys.list(role="judge").items[-1].keyid
            payload = other.keys.revocation(foreign).text.encode()
            with pytest.raises(errors.ProofError, match="another log"):
                store.keys.import_statement(statements.sign(payload, store.context.keys.load("root")))
            mine = store.keys.revocation(store.keys.list(role="judge").items[-1].keyid).text.encode()
            with pytest.raises(errors.ProofError):
                store.keys.import_statement(statements.sign(mine, other.context.keys.load("root")))
            with pytest.raises(errors.FormatError):
                store.keys.import_statement('{"payload":"","payloadType":"x","signatures":[]}')

    def test_a_key_written_past_the_rules_counts_for_nothing_once_there_is_a_root(self) -> None:
        with self.open() as store:
            text = submit(store)
            store.keys.export_root()
            store.keys.rotate("judge")
            store.keys.revoke(store.keys.list(role="judge").items[-1].keyid)
            settled(store)
            assert store.read(ring.flaws) == {}
            intruder = keys.generate()
            said = statements.KeyStatement(
                "introduce", "judge", intruder.public, store.read(ring.origins)[-1], "2026-01-01T00:00:00Z"
            )
            for statement in ("first", statements.sign(said.encode(), intruder)):
                with pytest.raises(errors.UnknownKeyError if statement != "first" else errors.FormatError):
                    store.keys.import_statement(statement)
            store.write(lambda tx: add_key(tx, "judge", intruder.public, statement=statement))
            settled(store)
            assert list(store.read(ring.flaws)) == [intruder.keyid]
            forged = attest.sign(dbom.parse(text.encode()).fields, intruder)
            assert store.dbom.verify(dbom.encode(forged)).verdict is Verdict.TAMPERED
            assert store.dbom.verify(text).verdict is Verdict.VALID
            assert intruder.keyid not in trust.parse(store.keys.trust().text.encode()).keys
            report = store.verify.run(lock=False)
            assert (report.verdict, [found.row for found in report.findings]) == (Verdict.TAMPERED, [intruder.keyid])

    def test_a_revocation_taken_back_past_the_rules_is_noticed(self) -> None:
        with self.open() as store:
            text = submit(store)
            store.keys.export_root()
            keyid = store.keys.list(role="judge").items[-1].keyid
            store.keys.revoke(keyid, from_index=0)
            settled(store)
            assert store.read(ring.flaws) == {}
            store.write(lambda tx: tx.execute(_TAKE_BACK, keyid=keyid))
            assert list(store.read(ring.flaws)) == [keyid]
            assert store.dbom.verify(text).verdict is Verdict.TAMPERED

    def test_a_key_belongs_to_one_role(self) -> None:
        class Shared(MemoryKeys):
            def load(self, role: Role) -> Signer:
                return super().load("judge" if role == "memory" else role)

        with self.open(keys=Shared()) as store:
            submit(store)
            with pytest.raises(errors.UnknownKeyError, match="judge key"):
                store.run(key_use.use(store.context, "memory"))

    def test_trust_is_signed_by_root_or_says_that_it_is_not(self) -> None:
        with self.open() as store:
            submit(store)
            recovery = store.keys.export_root(offline=True).recovery
            assert trust.parse(store.keys.trust().text.encode()).signed_by == "log"
            store.keys.recover_root(recovery=recovery)
            store.keys.revoke(store.keys.list(role="judge").items[-1].keyid)
            settled(store)
            root = ring.public(store.keys.list(role="root").items[-1])
            data = store.keys.trust().text.encode()
            found = trust.parse(data, root=root)
            assert (found.signed_by, found.signer) == ("root", root)
            assert {key.role for key in found.keys.values()} == {"log", "judge", "memory", "root"}
            [judge] = [key for key in found.keys.values() if key.role == "judge"]
            assert judge.until is not None
            assert (judge.trusted_at(judge.until - 1), judge.trusted_at(judge.until)) == (True, False)
            assert judge.since is not None
            assert (judge.trusted_at(judge.since - 1), judge.trusted_at(judge.since)) == (False, True)
            with pytest.raises(errors.ProofError):
                trust.parse(data, root=keys.generate("ed25519").public)
            envelope = dsse.parse(data)
            forged = dsse.Envelope(
                envelope.payload_type, envelope.payload.replace(b"judge", b"root"), envelope.signatures
            )
            with pytest.raises(errors.FormatError):
                trust.parse(dsse.encode(forged))

    def test_a_kms_can_stand_in_for_the_key_folder(self) -> None:
        class Remote:
            """Signs elsewhere; gives no private key away."""

            def __init__(self, key: keys.PrivateKey) -> None:
                self._key = key

            @property
            def alg(self) -> keys.Alg:
                return self._key.alg

            @property
            def keyid(self) -> str:
                return self._key.keyid

            @property
            def public(self) -> PublicKey:
                return self._key.public

            def sign(self, message: bytes) -> bytes:
                return self._key.sign(message)

        class Kms(MemoryKeys):
            def ensure(self, role: Role) -> Signer:
                found = super().ensure(role)
                return Remote(found) if isinstance(found, keys.PrivateKey) else found

        with self.open(keys=Kms()) as store:
            assert store.dbom.verify(submit(store)).verdict is Verdict.VALID
            assert not (self.home / "config" / "keys").exists()
            sound(store)

    def test_both_faces_speak_of_the_same_keys(self) -> None:
        async def play() -> list[str]:
            async with holdproof.open(self.home, self.url) as store:
                await store.evaluations.submit({}, evaluation_id="b", score=1)
                await store.keys.export_root()
                await store.keys.rotate("judge")
                return [key.role for key in (await store.keys.list()).items]

        assert asyncio.run(play())[:2] == ["judge", "judge"], "the newest first"


def test_a_second_home_that_reads_a_shared_database_enrols_no_key(tmp_path: Path, postgres_url: str) -> None:
    with sync.open(tmp_path / "one", postgres_url) as store:
        submit(store)
        before = [key.keyid for key in store.keys.list().items]
    with sync.open(tmp_path / "two", postgres_url) as store:
        assert [key.keyid for key in store.keys.list().items] == before
        assert not keyfile(tmp_path / "two", "root.pem").exists()
        with pytest.raises(errors.UnknownKeyError, match="keys join"):  # nor by writing: root has to admit it
            submit(store, "c")


class TestSqlite(KeySuite):
    pass


class TestMemory(StoreInMemory, KeySuite):
    pass


class TestPostgres(StoreOnPostgres, KeySuite):
    pass


# --- files -------------------------------------------------------------------------------------------------------


def keyfile(home: Path, name: str) -> Path:
    return home / "config" / "keys" / name


def test_a_key_file_without_a_leaf_is_registered_at_its_next_use(tmp_path: Path) -> None:
    key = KeyFolder(tmp_path / "config" / "keys").ensure("judge")
    with sync.open(tmp_path) as store:
        submit(store)
        assert [each.keyid for each in store.keys.list(role="judge").items] == [key.keyid]


def test_callers_that_race_for_the_first_key_end_up_with_one(tmp_path: Path) -> None:
    found: list[str] = []
    folders = [KeyFolder(tmp_path / "keys") for _ in range(8)]
    threads = [threading.Thread(target=lambda f=folder: found.append(f.ensure("judge").keyid)) for folder in folders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(found), len(set(found))) == (8, 1)
    assert [path.name for path in (tmp_path / "keys").iterdir()] == ["judge.pem"]


def test_the_successor_of_a_lost_key_has_its_algorithm(tmp_path: Path) -> None:
    with sync.open(tmp_path) as store:
        submit(store, "a")
        store.keys.rotate("judge", algorithm="rsa-pss-sha256")
    (tmp_path / "config" / "keys" / "judge.pem").unlink()
    with sync.open(tmp_path) as store:
        assert store.keys.rotate("judge").alg == "rsa-pss-sha256"
        assert store.dbom.verify(submit(store, "b")).verdict is Verdict.VALID
        assert store.verify.run(full=True).verdict is Verdict.VALID


def test_a_crash_between_the_leaf_of_a_rotation_and_its_file_is_mended_at_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with sync.open(tmp_path) as store:
        submit(store)
        [old] = store.keys.list(role="judge").items
        with monkeypatch.context() as patch:
            patch.setattr(KeyFolder, "promote", lambda self, role: (_ for _ in ()).throw(errors.ReadOnlyError("crash")))
            with pytest.raises(errors.ReadOnlyError):
                store.keys.rotate("judge")
        new = store.keys.list(role="judge").items[0]
        assert KeyFolder(tmp_path / "config" / "keys").load("judge").keyid == old.keyid
    with sync.open(tmp_path) as store:
        assert store.context.keys.load("judge").keyid == new.keyid
        assert store.dbom.verify(submit(store, "c")).signer == new.keyid
        assert KeyFolder(tmp_path / "config" / "keys").folder.joinpath(f"judge.{old.keyid[:16]}.pem").exists()
        sound(store)


def test_a_crash_before_the_leaf_of_a_rotation_leaves_its_key_to_the_next_one(tmp_path: Path) -> None:
    with sync.open(tmp_path) as store:
        submit(store)
        waiting = store.context.keys.prepare("judge", "ecdsa-p256-sha256")
    with sync.open(tmp_path) as store:
        assert store.context.keys.load("judge").keyid != waiting.keyid
        assert store.keys.rotate("judge").keyid == waiting.keyid
        assert store.context.keys.load("judge").keyid == waiting.keyid


def test_a_role_that_signed_nothing_yet_is_rotated_from_its_first_key(tmp_path: Path) -> None:
    with sync.open(tmp_path) as store:
        new = store.keys.rotate("memory")
        # A page is iterated over like a list: that is what everybody tries first.
        keys = list(store.keys.list(role="memory"))
    assert len(keys) == 2
    assert new.keyid in {key.keyid for key in keys}


def test_a_rotated_log_key_signs_heads_at_once_and_after_a_restart(tmp_path: Path) -> None:
    with sync.open(tmp_path) as store:
        submit(store)
        store.keys.rotate("log")
        submit(store, "c")
        sound(store)
    with sync.open(tmp_path) as store:
        submit(store, "d")
        assert len(store.keys.list(role="log").items) == 2
        sound(store)


def test_a_key_that_cannot_be_put_in_place_is_not_left_lying_about(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "no links here")

    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(errors.ReadOnlyError):
        KeyFolder(tmp_path).ensure("judge")
    assert list(tmp_path.iterdir()) == []


def test_key_files_are_for_the_owner_alone_and_a_loosened_one_is_refused(tmp_path: Path) -> None:
    with sync.open(tmp_path) as store:
        submit(store)
        path = keyfile(tmp_path, "judge.pem")
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        path.chmod(0o644)
        with pytest.raises(errors.BadKeyError, match="chmod 600"):
            submit(store, "c")


def test_a_passphrase_encrypts_key_files_and_is_demanded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDPROOF_KEY_PASSPHRASE", "open sesame")
    with sync.open(tmp_path) as store:
        submit(store)
    assert b"ENCRYPTED" in keyfile(tmp_path, "judge.pem").read_bytes()
    for wrong in ("", "close sesame"):
        monkeypatch.setenv("HOLDPROOF_KEY_PASSPHRASE", wrong)
        with pytest.raises(errors.BadKeyError):
            sync.open(tmp_path)
    monkeypatch.setenv("HOLDPROOF_KEY_PASSPHRASE", "open sesame")
    with sync.open(tmp_path) as store:
        assert store.dbom.verify(submit(store, "c")).verdict is Verdict.VALID


@pytest.mark.parametrize(("role", "alg"), [("root", "ecdsa-p256-sha256"), ("memory", "ed25519")])
def test_a_key_of_another_kind_than_its_role_is_refused(tmp_path: Path, role: Role, alg: keys.Alg) -> None:
    folder = KeyFolder(tmp_path / "keys")
    with pytest.raises(errors.BadKeyError):
        folder.adopt(role, keys.generate(alg))
    folder.ensure("judge")
    os.rename(folder.path("judge"), folder.path("log"))
    with pytest.raises(errors.BadKeyError):
        folder.load("log")


@pytest.mark.parametrize("alg", ["rsa-pss-sha256", "ed25519"])
def test_a_judge_may_bring_a_key_of_another_kind(tmp_path: Path, alg: keys.Alg) -> None:
    KeyFolder(tmp_path / "config" / "keys").adopt("judge", keys.generate(alg, rsa_bits=2048))
    with sync.open(tmp_path) as store:
        text = submit(store)
        assert json.loads(text)["sigma_judge"].startswith(f"dsse:{alg}:")
        assert store.dbom.verify(text).verdict is Verdict.VALID


def test_a_root_key_that_never_came_in_signs_no_trust(tmp_path: Path) -> None:
    """Its file is put there by somebody: with it, nobody could check a bundle any more."""
    with sync.open(tmp_path) as store:
        submit(store)
        recovery = store.keys.export_root(offline=True).recovery
        KeyFolder(tmp_path / "config" / "keys").ensure("root")
        assert trust.parse(store.keys.trust().text.encode()).signed_by == "log"
        assert offline.check(store.bundle.export("b")).verdict is Verdict.VALID
        keyfile(tmp_path, "root.pem").unlink()
        store.keys.recover_root(recovery=recovery)
        assert trust.parse(store.keys.trust().text.encode()).signed_by == "root"
        keyfile(tmp_path, "root.pem").unlink()
        keyfile(tmp_path, "log.pem").unlink()
        with pytest.raises(errors.UnknownKeyError):
            store.keys.trust()


def test_status_reminds_of_the_root_recovery_until_it_is_stored_elsewhere(tmp_path: Path) -> None:
    with sync.open(tmp_path / "home") as store:
        beside = keyfile(tmp_path / "home", "root-recovery.txt")
        assert stat.S_IMODE(beside.stat().st_mode) == 0o600
        [reminder] = store.status().reminders
        assert (str(beside) in reminder, "export-root" in reminder) == (True, True)
        made = store.keys.export_root(recovery=tmp_path / "elsewhere.txt")
        assert (tmp_path / "elsewhere.txt").read_text() == made.recovery
        assert (store.status().reminders, beside.exists()) == ([], False)
    with sync.open(tmp_path / "home") as store:
        assert store.status().reminders == []


def test_no_recovery_lies_beside_keys_that_a_passphrase_encrypts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDPROOF_KEY_PASSPHRASE", "open sesame")
    with sync.open(tmp_path) as store:
        assert not keyfile(tmp_path, "root-recovery.txt").exists()
        assert store.context.keys.load("root").alg == "ed25519"


def test_a_recovery_that_would_be_written_over_is_refused_and_root_stays(tmp_path: Path) -> None:
    (tmp_path / "recovery.txt").write_text("something else")
    with sync.open(tmp_path) as store:
        with pytest.raises(errors.AlreadyExistsError):
            store.keys.export_root(recovery=tmp_path / "recovery.txt", offline=True)
        with pytest.raises(errors.InvalidInputError, match="by rotation only"):
            store.keys.statement("root")
        assert keyfile(tmp_path, "root.pem").exists()


def test_a_lost_root_key_comes_back_from_its_recovery(tmp_path: Path) -> None:
    with sync.open(tmp_path) as store:
        submit(store)
        made = store.keys.export_root(recovery=tmp_path / "recovery.txt")
        text = (tmp_path / "recovery.txt").read_text()
        assert (text, stat.S_IMODE((tmp_path / "recovery.txt").stat().st_mode)) == (made.recovery, 0o600)
        keyfile(tmp_path, "root.pem").unlink()
        keyid = store.keys.list(role="judge").items[-1].keyid
        with pytest.raises(errors.UnknownKeyError):
            store.keys.revoke(keyid)
        with pytest.raises(errors.NotFoundError):
            store.keys.recover_root(recovery=statements.to_recovery(keys.generate("ed25519")))
        store.keys.recover_root(recovery=text.upper())
        assert store.keys.revoke(keyid).revoked_from is not None


def test_a_mistyped_recovery_is_noticed() -> None:
    key = keys.generate("ed25519")
    text = statements.to_recovery(key)
    assert statements.from_recovery(text) == key
    rows = text.splitlines()
    for wrong in (rows[1][:-1] + ("0" if rows[1][-1] != "0" else "1"), rows[1][:-5], rows[1] + " 0000"):
        with pytest.raises(errors.BadKeyError):
            statements.from_recovery("\n".join([rows[0], wrong, *rows[2:]]))


def test_root_signs_only_statements_of_ours() -> None:
    with pytest.raises(errors.FormatError):
        statements.sign(b'{"anything": "else"}', keys.generate("ed25519"))
