"""Heads that are signed with ML-DSA-44 too: from the key's own entry on, all of them, on both databases."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from dilithium_py.ml_dsa import ML_DSA_44

from harness.filling import settled
from harness.forged_bundles import members
from holdproof import errors, sync
from holdproof.crypto import keys as crypto_keys
from holdproof.crypto import note, vkey
from holdproof.crypto.checkpoint import SignedCheckpoint
from holdproof.crypto.vkey import ML_DSA_44 as TYPE_6
from holdproof.crypto.vkey import VerifierKey
from holdproof.db import sql
from holdproof.evidence import trust as trusts
from holdproof.model.verdicts import Verdict
from holdproof.upkeep.verification import offline
from tests.conformance.store_backends import StoreOnPostgres, StoreOnSqlite, sound
from tests.conformance.test_bundle import zipped
from tests.store_locations import submit

_SET_HEAD = sql("UPDATE log_state SET head = :head WHERE id = 1")


def newest(store: sync.Holdproof) -> SignedCheckpoint:
    settled(store)
    return store.log.head()


def verifier(store: sync.Holdproof) -> VerifierKey:
    """The ML-DSA-44 key of the store, as a verifier takes it."""
    settled(store)
    [key] = [each for each in map(vkey.parse, store.log.verifier_keys()) if each.kind == TYPE_6]
    return key


def second_signature(head: SignedCheckpoint, key: VerifierKey) -> bytes:
    [line] = [each for each in head.note.signatures if each.key_id == key.key_id]
    return line.signature


class SecondSignatureSuite(StoreOnSqlite):
    """Every head from the key's entry on bears it, and one without it is a finding."""

    def test_a_store_that_did_not_ask_has_one_signature(self) -> None:
        with self.open() as store:
            submit(store, "b")
            assert len(newest(store).note.signatures) == 1
            sound(store)

    def test_every_head_after_the_key_is_signed_twice_and_another_implementation_agrees(self) -> None:
        with self.open() as store:
            submit(store, "b")
            created = store.keys.create("log-pq")
            assert (created.role, created.alg) == ("log-pq", "ml-dsa-44")
            for number in range(3):
                submit(store, f"c{number}")
                head = newest(store)
                key = verifier(store)
                signature = second_signature(head, key)
                seconds = int.from_bytes(signature[:8], "big")
                message = vkey.subtree_message(head.checkpoint.origin, head.note.text, seconds)
                assert ML_DSA_44.verify(key.public.raw, message, signature[8:])
            report = sound(store)
            assert f"log key {created.keyid} (ML-DSA-44)" in report.trusted_by
            with pytest.raises(errors.ConflictError, match="keys rotate log-pq"):
                store.keys.create("log-pq")
        with self.open() as store:
            submit(store, "d")
            assert len(newest(store).note.signatures) == 2
            sound(store)

    @pytest.mark.parametrize("how", ["altered", "missing", "of another key"])
    def test_a_head_whose_second_signature_does_not_hold_is_a_finding(self, how: str) -> None:
        with self.open() as store:
            store.keys.create("log-pq")
            submit(store, "b")
            head = newest(store)
            key = verifier(store)
            first = next(each for each in head.note.signatures if each.key_id != key.key_id)
            lines = {
                "altered": head.encode().decode().replace(head.encode().decode()[-900:-890], "AAAAAAAAAA"),
                "missing": f"{head.note.text}\n{first.line()}",
                "of another key": f"{head.note.text}\n{first.line()}"
                + note.cosign(
                    head.note.text, head.checkpoint.origin, crypto_keys.generate("ml-dsa-44"), seconds=7
                ).line(),
            }
            store.write(lambda tx: tx.execute(_SET_HEAD, head=lines[how]))
            found = store.verify.run(full=True, lock=False)
            assert found.verdict is Verdict.TAMPERED
            assert any("head does not hold" in each.what for each in found.findings)

    def test_rotation_and_revocation_by_root_keep_the_log_whole(self) -> None:
        with self.open() as store:
            first = store.keys.create("log-pq")
            submit(store, "b")
            second = store.keys.rotate("log-pq")
            submit(store, "c")
            assert verifier_ids(store) == {first.keyid, second.keyid}
            sound(store)
            settled(store)
            store.keys.revoke(first.keyid)
            submit(store, "d")
            assert len(newest(store).note.signatures) == 2
            sound(store)
            store.keys.revoke(second.keyid)
            submit(store, "e")
            assert len(newest(store).note.signatures) == 1
            sound(store)
            third = store.keys.create("log-pq")
            submit(store, "f")
            assert verifier(store).public.keyid == third.keyid
            sound(store)

    @pytest.mark.parametrize("lost", [("log-pq",), ("log", "log-pq")])
    def test_lost_keys_are_replaced_by_those_that_root_admits(self, lost: tuple[str, ...]) -> None:
        with self.open() as store:
            store.keys.create("log-pq")
            submit(store, "b")
            settled(store)
        for role in lost:
            (self.home / "config" / "keys" / f"{role}.pem").unlink()
        with self.open() as store:
            assert not store.context.log.signs
            store.keys.rotate("log-pq")
            submit(store, "c")
            assert len(newest(store).note.signatures) == 2
            sound(store)
        with self.open() as store:
            submit(store, "d")
            sound(store)

    def test_a_restored_backup_goes_on_with_both_signatures(self, tmp_path: Path) -> None:
        with self.open() as store:
            store.keys.create("log-pq")
            submit(store, "b")
            settled(store)
            store.backup.create(tmp_path / "backup")
            submit(store, "c")
        sync.restore(tmp_path / "backup", self.home, self.url)
        with self.open() as store:
            submit(store, "d")
            assert len(newest(store).note.signatures) == 2
            sound(store)

    def test_the_policy_file_names_the_key_that_has_always_signed(self) -> None:
        with self.open() as store:
            store.keys.create("log-pq")
            submit(store, "b")
            settled(store)
            text = store.witness.policy().text
            assert text.count("log ") == 1
            assert store.witness.check(text).size == newest(store).checkpoint.size


def verifier_ids(store: sync.Holdproof) -> set[str]:
    settled(store)
    return {each.public.keyid for each in map(vkey.parse, store.log.verifier_keys()) if each.kind == TYPE_6}


class TestSqlite(SecondSignatureSuite):
    """In a folder."""


class TestPostgres(StoreOnPostgres, SecondSignatureSuite):
    """On a server."""


# --- bundles -----------------------------------------------------------------------------------------------------


def _altered(head: str) -> str:
    """A head with one character of its second signature changed."""
    at = len(head) - 900
    return head[:at] + ("B" if head[at] == "A" else "A") + head[at + 1 :]


def test_a_bundle_tells_of_the_second_signature_and_is_refused_without_it(tmp_path: Path) -> None:
    with sync.open(tmp_path / "home") as store:
        created = store.keys.create("log-pq")
        submit(store, "b")
        data = store.bundle.export("b")
        trust = trusts.parse(store.keys.trust().text.encode())
    assert [key.keyid for key in trust.of("log-pq")] == [created.keyid]
    report = offline.check(data)
    assert report.verdict is Verdict.VALID
    assert any("ML-DSA-44" in each and created.keyid in each for each in report.notes)
    found = members(data)
    whole = found["head.note"].decode()
    without = "".join(line for line in whole.splitlines(keepends=True) if len(line) < 1000)
    assert without != whole
    for name, member in found.items():
        found[name] = member.replace(whole.encode(), without.encode())
    refused = offline.check(zipped(found))
    assert refused.verdict is Verdict.TAMPERED
    assert "each of its algorithms" in refused.findings[0].what
    altered = {name: member.replace(whole.encode(), _altered(whole).encode()) for name, member in members(data).items()}
    assert offline.check(zipped(altered)).verdict is Verdict.TAMPERED
    [program] = re.findall(r"^```python\n(.*?)^```$", offline.instructions().decode(), re.MULTILINE | re.DOTALL)
    (tmp_path / "check.py").write_text(program)
    # An openssl before 3.5 cannot check the second signature, and the program says so.
    words = ["openssl", "list", "-signature-algorithms"]
    able = b"ML-DSA-44" in subprocess.run(words, capture_output=True, check=True).stdout
    cases = (("good", data, 0), ("bad", zipped(found), 1), ("altered", zipped(altered), 1 if able else 0))
    for name, content, expected in cases:
        (tmp_path / f"{name}.zip").write_bytes(content)
        command = [sys.executable, "-I", "-S", str(tmp_path / "check.py"), str(tmp_path / f"{name}.zip")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == expected, done.stdout + done.stderr
        assert "ML-DSA-44" in done.stdout + done.stderr
        assert ("NOT CHECKED" in done.stdout) is (not able and expected == 0)
