"""The ring of witnesses: added by a key, under the log, asked together, judged by a tlog-policy, on every backend."""

import contextlib
from dataclasses import replace
from pathlib import Path

import pytest

from harness.filling import settled
from harness.witnesses import cosign, made, serving, verifier_key
from holdproof import errors, sync
from holdproof.crypto import checkpoint, tlog_policy, vkey
from holdproof.crypto.checkpoint import LogCheckpoint
from holdproof.db import sql
from holdproof.evidence import log
from holdproof.evidence.key_files import KeyFolder
from holdproof.evidence.witness_server import Cosigner
from holdproof.model.verdicts import Verdict
from tests.conformance import logs
from tests.conformance.logs import check, put, settle
from tests.conformance.test_witness import raw_server

NOBODY = "http://127.0.0.1:1"


class RingSuite(logs.OnSqlite):
    def test_a_witness_that_is_added_changed_or_removed_has_an_entry(self) -> None:
        with self.open() as store:
            first, second = verifier_key("w.example"), verifier_key("w.example")
            added = store.witness.add(NOBODY, key=first.encode())
            assert (added.name, added.locks, added.size) == ("w.example", False, None)
            store.witness.add(NOBODY, key=first.encode())  # nothing new, so no entry
            store.witness.add(NOBODY, key=second.encode(), locks=True)
            removed = store.witness.remove(NOBODY, reason="closed down")
            assert removed.removed_at is not None
            settle(store)
            said = [each.what for each in store.log.list(kind="audit").items if "witness" in each.what]
            assert said == [
                f"witness {NOBODY} removed",
                f"witness {NOBODY} changed",
                f"witness {NOBODY} added",
            ]
            assert list(store.witness.list().items) == []
            assert [each.key for each in store.witness.list(all=True).items] == [second.encode()]
            assert store.log.level().witnesses == 0
            with pytest.raises(errors.NotFoundError):
                store.witness.remove(NOBODY, reason="again")
            with pytest.raises(errors.NotFoundError, match="witness add"):
                store.witness.ask()
            check(store)

    @pytest.mark.parametrize(
        "attack",
        [
            "UPDATE log_witnesses SET vkey = vkey || 'x'",
            "UPDATE log_witnesses SET locks = 0",
            "UPDATE log_witnesses SET removed_at = NULL, reason = NULL",
            "DELETE FROM log_witnesses",
        ],
    )
    def test_whoever_edits_the_list_of_witnesses_is_found(self, attack: str) -> None:
        with self.open() as store:
            store.witness.add(NOBODY, key=verifier_key().encode(), locks=True)
            store.witness.remove(NOBODY, reason="x")
            settle(store)
            store.write(lambda tx: tx.execute(sql(attack)))
            report = store.verify.run()
            assert "log_witnesses" in {each.table for each in report.findings}, report.findings
            assert report.verdict is Verdict.TAMPERED

    def test_without_a_key_nobody_is_trusted_and_the_offered_one_is_shown(self, tmp_path: Path) -> None:
        with self.open() as store:
            served = made(store, tmp_path / "witness.json")
            with serving(served) as url, pytest.raises(errors.InvalidInputError) as offered:
                store.witness.add(url)
            assert served.key.encode() in offered.value.message
            with pytest.raises(errors.InvalidInputError, match="its operator tells you"):
                store.witness.add(NOBODY, timeout_s=2)
            assert list(store.witness.list(all=True).items) == []

    def test_a_quorum_of_a_policy_file_has_to_cosign_one_head(self, tmp_path: Path) -> None:
        with self.open() as store, contextlib.ExitStack() as stack:
            store.write(put)
            ring = [made(store, tmp_path / f"{name}.json", name) for name in ("a", "b", "c")]
            addresses = [stack.enter_context(serving(each)) for each in ring]
            for address, each in zip(addresses, ring, strict=True):
                store.witness.add(address, key=each.key.encode())
            settled(store)
            store.witness.ask(addresses[0])
            two = store.witness.policy(quorum=2).text
            with pytest.raises(errors.ProofError, match="too few witnesses"):
                store.witness.check(two)
            cosigned = store.witness.ask()
            assert {each.witness for each in cosigned} == {"a", "b", "c"}
            assert len({each.size for each in cosigned}) == 1
            witnessed = store.witness.check(two)
            assert sorted(witnessed.witnesses) == ["a", "b", "c"]
            assert store.witness.check(store.witness.policy().text).quorum == "witnesses"
            # Offline, with the file and the head alone.
            head = checkpoint.parse(witnessed.head.encode())
            assert tlog_policy.verify(tlog_policy.parse(two), head) == witnessed.witnesses
            # A head by a thief of the log key is cosigned by nobody.
            strangers = replace(head, note=replace(head.note, signatures=head.note.signatures[:1]))
            with pytest.raises(errors.ProofError, match="too few"):
                tlog_policy.verify(tlog_policy.parse(two), strangers)
            with pytest.raises(errors.InvalidInputError, match="0 to 3"):
                store.witness.policy(quorum=4)

    def test_one_that_does_not_answer_keeps_nobody_from_asking_the_others(self, tmp_path: Path) -> None:
        with self.open() as store:
            served = made(store, tmp_path / "witness.json")
            store.witness.add(NOBODY, key=verifier_key("gone").encode())
            with serving(served) as url:
                store.witness.add(url, key=served.key.encode())
                settled(store)
                with pytest.raises(errors.UnreachableError):
                    store.witness.ask(timeout_s=2)
            assert store.log.level().text == "WITNESSED 1/2"

    @pytest.mark.parametrize("locks", [False, True])
    def test_a_witness_locks_the_store_only_if_it_was_added_as_one_that_may(self, tmp_path: Path, locks: bool) -> None:
        with self.open() as store:
            store.write(put)
            settle(store)
            served = _forked(store, made(store, tmp_path / "witness.json"))
            with serving(served) as url:
                store.witness.add(url, key=served.key.encode(), locks=locks)
                settled(store)
                with pytest.raises(errors.ProofError):
                    store.witness.ask()
            locked = store.lockdown.status()
            assert (locked is not None) is locks
            [listed] = store.witness.list().items
            assert listed.dispute is not None
            assert "FORKED" in listed.dispute
            report = store.verify.run()
            assert report.verdict is Verdict.FORKED
            assert any(each.table == "witness_disputes" and each.outside is not locks for each in report.findings)
            assert any(url in each for each in store.status().degraded)
            if locked is not None:
                assert url in locked.reason
                return
            store.witness.remove(url, reason="it lost its memory")
            settle(store)
            assert "witness_disputes" not in {each.table for each in store.verify.run().findings}

    def test_a_witness_that_comes_back_brings_no_settled_dispute_and_one_that_is_changed_settles_none(
        self, tmp_path: Path
    ) -> None:
        with self.open() as store:
            store.write(put)
            settle(store)
            served = _forked(store, made(store, tmp_path / "witness.json"))
            with serving(served) as url:
                store.witness.add(url, key=served.key.encode())
                settled(store)
                with pytest.raises(errors.ProofError):
                    store.witness.ask()
                assert store.witness.add(url, key=served.key.encode(), locks=True).dispute is not None
                store.witness.remove(url, reason="it lost its memory")
                assert store.witness.add(url, key=served.key.encode()).dispute is None
                assert store.log.level().disputed == 0
                settled(store)
                with pytest.raises(errors.ProofError):
                    store.witness.ask()
                assert store.log.level().disputed == 1, "what it says anew counts"

    def test_control_characters_of_a_witness_are_neither_shown_nor_keep_its_word_from_being_recorded(self) -> None:
        with self.open() as store:
            store.write(put)
            settle(store)
            body = b"\x1b[2Jall is well\x00"
            answer = b"HTTP/1.1 422 No\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body)
            with raw_server(answer) as url:
                store.witness.add(url, key=verifier_key().encode())
                settled(store)
                with pytest.raises(errors.ProofError) as said:
                    store.witness.ask()
            assert said.value.message.isprintable()
            assert "all is well" in str(store.witness.list().items[0].dispute)

    @pytest.mark.parametrize(
        "url", ["http://[::1", "http://w.example:99999", "http://w.exa mple", "http://w\x07.example"]
    )
    def test_an_address_that_cannot_be_one_is_refused(self, url: str) -> None:
        with self.open() as store, pytest.raises(errors.InvalidInputError, match="has an address like"):
            store.witness.add(url, key=verifier_key().encode())


class TestSqlite(RingSuite):
    pass


class TestMemory(logs.InMemory, RingSuite):
    pass


class TestPostgres(logs.OnPostgres, RingSuite):
    pass


def _forked(store: sync.Holdproof, served: Cosigner) -> Cosigner:
    """Let a witness have seen another history."""
    head = store.log.head().checkpoint
    with served._state.locked():
        served._state.write({head.origin: LogCheckpoint(head.origin, head.size, b"\1" * 32)})
    return served


def test_a_home_is_no_witness_of_its_own(tmp_path: Path) -> None:
    with sync.open(tmp_path) as store:
        own = KeyFolder(store.context.paths.config / "witness").ensure("log")
        with pytest.raises(errors.InvalidInputError, match="this home's own"):
            store.witness.add(NOBODY, key=vkey.VerifierKey("me", vkey.COSIGNATURE_V1, own.public).encode())
        with pytest.raises(errors.InvalidInputError, match="key of a log"):
            store.witness.add(NOBODY, key=store.read(log.verifiers)[0].encode())


def test_a_cosigned_head_of_another_history_satisfies_no_policy(tmp_path: Path) -> None:
    with sync.open(tmp_path / "home") as store:
        store.write(lambda tx: None)
        served = made(store, tmp_path / "witness.json")
        with serving(served) as url:
            cosign(store, url, key=served.key.encode())
        policy = store.witness.policy().text
        assert store.witness.check(policy).witnesses == [served.key.name]
        other = replace(store.log.head().checkpoint, root=b"\2" * 32)
        signed = checkpoint.sign(other, store.context.keys.load("log"))
        forged = signed.note.add(checkpoint.sign(other, served._signer, name=served.key.name).note.signatures[0])
        text = replace(signed, note=forged).encode().decode()
        store.write(lambda tx: tx.execute(sql("UPDATE log_cosignatures SET head = :text"), text=text))
        with pytest.raises(errors.ProofError):
            store.witness.check(policy)
