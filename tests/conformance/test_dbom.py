"""DBOMs as evidence: every verdict, the downgrade rule, foreign files, openssl; on every backend."""

import base64
import hashlib
import json
import shutil
import struct
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.filling import settled
from harness.legacy_dboms import legacy_sigma
from holdproof import errors, sync
from holdproof.crypto import attest, dbom, dsse, keys
from holdproof.crypto.dbom import Fields
from holdproof.db import sql
from holdproof.evidence import keys as ring
from holdproof.evidence.dbom import read
from holdproof.model.evaluations import Evaluation
from holdproof.model.verdicts import Verdict
from tests.conformance.store_backends import StoreInMemory, StoreOnPostgres, StoreOnSqlite, sound

_EDIT = {
    "score": sql("UPDATE battles SET score = 0.99 WHERE id = :id"),
    "raw_result": sql("UPDATE battles SET raw_result = '{}' WHERE id = :id"),
    "dbom_hash": sql("UPDATE battles SET dbom_hash = '00' WHERE id = :id"),
    "breakdown": sql("UPDATE battles SET breakdown = 'changed' WHERE id = :id"),
    "timestamp": sql("UPDATE battles SET timestamp = '2020-01-01T00:00:00Z' WHERE id = :id"),
    "leaf_salt": sql("UPDATE battles SET leaf_salt = NULL WHERE id = :id"),
}
_DROP_LEAF = sql("DELETE FROM log_leaves WHERE id = :id")


def submit(store: sync.Holdproof, evaluation_id: str = "b", **more: Any) -> Evaluation:
    evaluation = store.evaluations.submit(
        {"task": "limit", "n": evaluation_id}, evaluation_id=evaluation_id, score=0.5, intent=[0.1, 0.2, 0.3], **more
    )
    settled(store)
    return evaluation


def text_of(evaluation: Evaluation) -> str:
    assert evaluation.dbom is not None
    return evaluation.dbom


def changed(text: str, **fields: Any) -> str:
    return json.dumps({**json.loads(text), **fields}, indent=2)


def legacy(text: str) -> str:
    """The same DBOM with a signature as an older Green Agent simulated it."""
    fields = json.loads(text)
    return changed(text, sigma_judge=legacy_sigma(fields["battle_id"], fields["h_delta"]))


class DbomSuite(StoreOnSqlite):
    """One verdict a test."""

    def test_a_dbom_is_valid_however_it_is_given(self, tmp_path: Path) -> None:
        with self.open() as store:
            text = text_of(submit(store))
            path = tmp_path / "elsewhere.json"
            path.write_text(text)
            for given in (text, text.encode(), path, json.loads(text)):
                checked = store.dbom.verify(given)
                assert (checked.verdict, checked.evaluation_id, checked.id) == (Verdict.VALID, "b", 1), checked
            assert store.dbom.get("b").text == text
            assert store.dbom.get("b").to_dict() == json.loads(text)

    @pytest.mark.parametrize(
        "edit",
        [
            {"score_cis": 0.51},
            {"battle_id": "c"},
            {"h_delta": "ab" * 32},
            {"v_intent": [0.1, 0.2, 0.30000000000000004]},
            {"v_intent": []},
            {"timestamp": "2026-01-01T00:00:00Z"},
            {"dbom_version": "1.1"},
        ],
        ids=str,
    )
    def test_any_changed_field_is_tampered(self, edit: dict[str, Any]) -> None:
        with self.open() as store:
            text = text_of(submit(store))
            assert store.dbom.verify(changed(text, **edit)).verdict is Verdict.TAMPERED

    @pytest.mark.parametrize(
        "data",
        [
            "{}",
            '{"battle_id": "b", "battle_id": "b"}',
            '{"dbom_version":"1.0","battle_id":"b","h_delta":"x","v_intent":[NaN],"score_cis":1,"sigma_judge":"","timestamp":""}',
            '{"dbom_version":"1.0","battle_id":"b","h_delta":"x","v_intent":[],"score_cis":true,"sigma_judge":"","timestamp":""}',
        ],
    )
    def test_what_is_no_dbom_is_tampered_and_says_why(self, data: str) -> None:
        with self.open() as store:
            checked = store.dbom.verify(data)
            assert (checked.verdict, checked.why[:7]) == (Verdict.TAMPERED, "no DBOM")

    @pytest.mark.parametrize("text", ["", "[]", "not json"])
    def test_a_text_that_is_no_object_is_taken_for_the_id_of_an_evaluation(self, text: str) -> None:
        with self.open() as store, pytest.raises(errors.NotFoundError):
            store.dbom.verify(text)

    def test_extra_and_missing_fields_are_refused(self) -> None:
        with self.open() as store:
            text = text_of(submit(store))
            fields = json.loads(text)
            assert store.dbom.verify(changed(text, extra=1)).verdict is Verdict.TAMPERED
            del fields["timestamp"]
            assert store.dbom.verify(fields).verdict is Verdict.TAMPERED

    @pytest.mark.parametrize("column", _EDIT)
    def test_an_edited_row_makes_its_own_dbom_tampered(self, column: str) -> None:
        with self.open() as store:
            text = text_of(submit(store))
            store.write(lambda tx: tx.execute(_EDIT[column], id=1))
            assert store.dbom.verify(text).verdict is Verdict.TAMPERED

    def test_a_row_whose_leaf_is_gone_is_tampered_and_not_pending(self) -> None:
        with self.open() as store:
            evaluation = submit(store)
            text = text_of(evaluation)
            store.write(lambda tx: tx.execute(_DROP_LEAF, id=evaluation.leaf_id))
            assert store.dbom.verify(text).verdict is Verdict.TAMPERED

    def test_a_simulated_signature_for_a_signed_battle_is_a_downgrade(self) -> None:
        with self.open() as store:
            text = text_of(submit(store))
            checked = store.dbom.verify(legacy(text))
            assert (checked.verdict, "downgrade" in checked.why) == (Verdict.TAMPERED, True)

    def test_a_simulated_signature_without_its_import_is_never_valid(self) -> None:
        with self.open() as store:
            text = text_of(submit(store))
            unknown = changed(legacy(text), evaluation_id="nobody")
            assert store.dbom.verify(unknown).verdict is Verdict.TAMPERED

    def test_a_good_signature_that_was_never_recorded_is_unlogged(self) -> None:
        with self.open() as store:
            submit(store)
            judge = store.context.keys.load("judge")
            for name in ("never", "b"):
                made = attest.sign(Fields(name, "ab" * 32, (0.5,), 0.5, "2026-01-14T21:05:51Z"), judge)
                assert store.dbom.verify(dbom.encode(made)).verdict is Verdict.UNLOGGED

    def test_a_stranger_s_signature_is_unsigned_and_for_our_battle_tampered(self) -> None:
        with self.open() as store:
            text = text_of(submit(store))
            stranger = keys.generate()
            ours = attest.sign(dbom.parse(text.encode()).fields, stranger)
            theirs = attest.sign(replace(ours.fields, evaluation_id="theirs"), stranger)
            assert store.dbom.verify(dbom.encode(ours)).verdict is Verdict.TAMPERED
            assert store.dbom.verify(dbom.encode(theirs)).verdict is Verdict.UNSIGNED

    def test_the_log_key_cannot_sign_a_dbom(self) -> None:
        with self.open() as store:
            text = text_of(submit(store))
            forged = attest.sign(dbom.parse(text.encode()).fields, store.context.keys.load("log"))
            assert store.dbom.verify(dbom.encode(forged)).verdict is Verdict.TAMPERED

    def test_an_envelope_needs_no_private_key_and_verifies(self) -> None:
        with self.open() as store:
            evaluation = submit(store)
            envelope = dsse.parse(store.dbom.envelope("b").encode())
            judge = ring.public(store.keys.list(role="judge").items[-1])
            assert dsse.verify(envelope, [judge], payload_type="application/vnd.in-toto+json") == (judge,)
            said = json.loads(envelope.payload)
            assert said["subject"] == [{"name": "b", "digest": {"sha256": evaluation.dbom_hash}}]
            with pytest.raises(errors.NotFoundError):
                store.dbom.envelope("nobody")

    def test_spread_sees_clusters_and_outliers(self) -> None:
        with self.open() as store:
            vectors = {"a1": [1.0, 0.0], "a2": [1.0, 0.01], "a3": [0.99, 0.0], "far": [-1.0, 0.2], "none": []}
            for name, vector in vectors.items():
                store.evaluations.submit({}, evaluation_id=name, score=1, intent=vector)
            found = store.dbom.spread()
            assert (found.count, found.dim, found.skipped["empty"]) == (4, 2, 1)
            assert (found.clusters, found.outliers) == ([["a1", "a2", "a3"], ["far"]], ["far"])
            assert sum(found.histogram) == 6
            assert any(line.strip() for line in found.plot)

    def test_check_intent_tells_a_changed_embedder(self) -> None:
        def embed(text: str) -> list[float]:
            return [float(len(text)), 1.0]

        with self.open(embedder=embed) as store:
            for name in ("x", "longer"):
                store.evaluations.submit({"task": name}, evaluation_id=name, score=1)
            store.evaluations.submit({"no": "task"}, evaluation_id="none", score=1)
            good = store.dbom.check_intent(embed)
            assert (good.ok, good.checked, good.same, good.skipped) == (True, 2, 2, 1)
            bad = store.dbom.check_intent(lambda text: [1.0, float(len(text))])
            assert [each["evaluation_id"] for each in bad.drifted] == ["longer"]
            assert len(store.dbom.check_intent(lambda _: [1.0]).drifted) == 2

    @pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl on the path")
    def test_a_stranger_checks_a_dbom_with_openssl_and_a_page_of_python(self, tmp_path: Path) -> None:
        """The documented steps, on nothing but the DBOM and the judge's public key."""
        with self.open() as store:
            text = text_of(submit(store))
            public = store.keys.list(role="judge").items[-1].public
            sound(store)
        for edit, good in (({}, True), ({"score_cis": 0.6}, False)):
            fields = json.loads(text) | edit
            _, alg, keyid, signature = fields["sigma_judge"].split(":")
            vector = struct.pack(f">{len(fields['v_intent'])}d", *fields["v_intent"])
            statement = {
                "_type": "https://in-toto.io/Statement/v1",
                "predicate": {
                    **{name: fields[name] for name in ("battle_id", "dbom_version", "h_delta")},
                    "score_cis": fields["score_cis"],
                    "signer": {"alg": alg, "keyid": keyid},
                    "timestamp": fields["timestamp"],
                    "v_intent": {"dim": len(fields["v_intent"]), "sha256": hashlib.sha256(vector).hexdigest()},
                },
                "predicateType": "urn:holdproof:dbom:v1",
                "subject": [{"digest": {"sha256": fields["h_delta"]}, "name": fields["battle_id"]}],
            }
            payload = json.dumps(statement, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
            kind = b"application/vnd.in-toto+json"
            message = b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)
            (tmp_path / "judge.pem").write_text(public)
            (tmp_path / "message").write_bytes(message)
            (tmp_path / "signature").write_bytes(base64.urlsafe_b64decode(signature + "=="))
            words = ["openssl", "dgst", "-sha256", "-verify", "judge.pem", "-signature", "signature", "message"]
            done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
            assert (done.returncode == 0) == good, done
            der = subprocess.run(
                ["openssl", "pkey", "-pubin", "-in", "judge.pem", "-outform", "DER"], cwd=tmp_path, capture_output=True
            ).stdout
            assert hashlib.sha256(der).hexdigest() == keyid


class TestSqlite(DbomSuite):
    pass


class TestMemory(StoreInMemory, DbomSuite):
    pass


class TestPostgres(StoreOnPostgres, DbomSuite):
    pass


def test_a_committed_dbom_not_under_a_head_yet_is_pending(postgres_url: str, tmp_path: Path) -> None:
    with sync.open(tmp_path, postgres_url) as store:
        store.context.log.stop()
        evaluation = store.evaluations.submit({}, evaluation_id="b", score=1)
        assert store.dbom.verify(text_of(evaluation)).verdict is Verdict.PENDING


def test_a_file_that_is_missing_or_huge_is_an_error_not_a_verdict(tmp_path: Path) -> None:
    with pytest.raises(errors.NotFoundError):
        read(tmp_path / "none.json")
    huge = tmp_path / "huge.json"
    with huge.open("wb") as file:
        file.truncate((4 << 20) + 1)
    with pytest.raises(errors.InvalidInputError):
        read(huge)
