"""Range proofs: these are all, none left out; and numbers without a gap, whoever writes and whoever is killed."""

import base64
import json
import os
import threading
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner

from harness.filling import settled
from harness.raw_access import attack
from holdproof import errors, sync
from holdproof.cli.app import app
from holdproof.crypto import merkle, vkey
from holdproof.db import Tx, sql
from holdproof.evidence import numbering, range_proof
from holdproof.model.log import RangeProof
from holdproof.model.verdicts import Verdict
from holdproof.runtime import audit
from tests.conformance import logs
from tests.conformance.store_backends import StoreInMemory, StoreOnPostgres, StoreOnSqlite, sound

_RECORDS = int(os.environ.get("HOLDPROOF_RANGE_RECORDS", "300"))
_GROUP = 500
_MONTH = 1_000


def _fill(store: sync.Holdproof, count: int, *, agent: str = "trader") -> str:
    """Record so many events of an agent in a flow, many in a transaction."""
    store.agents.register(agent, version="1")
    flow_id = str(store.flows.start(agent).flow_id)

    def some(tx: Tx, number: int) -> None:
        for _ in range(number):
            audit.record(tx, flow_id, "LOOKED")

    for at in range(0, count, _GROUP):
        number = min(_GROUP, count - at)
        store.write(lambda tx, n=number: some(tx, n))  # type: ignore[misc]
    settled(store)
    return flow_id


def _keys(store: sync.Holdproof) -> list[vkey.VerifierKey]:
    return [vkey.parse(each) for each in store.log.verifier_keys()]


def _numbers(store: sync.Holdproof) -> dict[str, list[int]]:
    """Return the numbers in the log by stream, in the order of the log."""
    numbers: dict[str, list[int]] = {}
    cursor = None
    while True:
        page = store.log.list(limit=1000, cursor=cursor)
        for entry in page.items:
            if (number := numbering.number_of(entry.text)) is not None:
                numbers.setdefault(number.stream, []).insert(0, number.n)
        cursor = page.next_cursor
        if cursor is None:
            return numbers


class RangeProofs:
    open: Any

    def test_a_range_proves_all_entries_of_an_agent_of_one_kind(self) -> None:
        with self.open() as store:
            _fill(store, 20)
            _fill(store, 5, agent="buyer")
            proof = store.log.prove_range("audit", agent_id="trader", first=3, last=18)
            proven = range_proof.verify_range(proof.proof, proof.entries, log_keys=_keys(store))
            assert (proven.agent_id, proven.kind, proven.first, proven.last) == ("trader", "audit", 3, 18)
            assert len(proof.entries) == 16
            assert store.log.prove_range("audit", agent_id="buyer").entries != proof.entries
            assert store.log.prove_range("key").entries, "entries that no agent is behind are a stream too"
            with pytest.raises(errors.InvalidInputError, match="1 to 20"):
                store.log.prove_range("audit", agent_id="trader", last=21)
            with pytest.raises(errors.NotFoundError):
                store.log.prove_range("audit", agent_id="nobody")
            sound(store)

    def test_steps_and_answers_count_with_the_agent_of_their_flow(self) -> None:
        with self.open() as store:
            store.agents.register("trader", version="1")
            with store.flows.run("trader") as flow:
                flow.step("quote", lambda: 7)
                asked = store.escalations.request(flow.flow_id, reason="over limit")
                store.escalations.resolve(asked.id, "approve", by="ann")
            settled(store)
            counts = {kind: len(store.log.prove_range(kind, agent_id="trader").entries) for kind in _KINDS}
            assert counts == {"decision": 1, "step": 2, "escalation": 2, "transition": 4, "agent": 1}

    def test_an_entry_in_the_stream_of_another_agent_is_found_by_a_full_verification(self) -> None:
        """As where a flow named a decoy while the entry got its number, and its agent again afterwards."""
        with self.open() as store:
            for agent in ("trader", "decoy"):
                store.agents.register(agent, version="1")
            with store.flows.run("trader") as flow:
                flow.step("quote", lambda: 7)
                settled(store)
                _name_agent(store, "decoy")
                store.audit.record(flow.flow_id, "PAID")
                settled(store)
                _name_agent(store, "trader")
                flow.step("pay", lambda: 7)
            settled(store)
            report = store.verify.run(full=True, lock=False)
            assert report.verdict is Verdict.TAMPERED
            [finding] = report.findings
            assert "another agent than its record in decision_audit_events" in finding.what

    def test_numbers_have_no_gap_where_operations_fail_and_writers_race(self) -> None:
        with self.open() as store:
            flow_id = _fill(store, 1)

            def work(number: int) -> None:
                for at in range(5):
                    if (number + at) % 3 == 0:
                        with pytest.raises(RuntimeError):
                            store.write(_failing(flow_id))
                    store.audit.record(flow_id, f"E{number}")

            threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
            for each in threads:
                each.start()
            for each in threads:
                each.join()
            settled(store)
            assert len(store.log.prove_range("audit", agent_id="trader").entries) == 41
            assert all(each == [*range(1, len(each) + 1)] for each in _numbers(store).values())
            sound(store)


_NAME = sql("UPDATE decision_flows SET agent_id = :agent_id")


def _name_agent(store: sync.Holdproof, agent_id: str) -> None:
    store.write(lambda tx: tx.execute(_NAME, agent_id=agent_id))


_KINDS = ("decision", "step", "escalation", "transition", "agent")


def _failing(flow_id: str) -> Any:
    def fail(tx: Tx) -> None:
        audit.record(tx, flow_id, "NEVER")
        raise RuntimeError("after the entry")

    return fail


class TestRangeProofsOnSqlite(StoreOnSqlite, RangeProofs):
    def test_two_processes_continue_the_same_numbers(self) -> None:
        with self.open() as one, self.open() as other:
            flow_id = _fill(one, 1)
            for _ in range(5):
                one.audit.record(flow_id, "ONE")
                other.audit.record(flow_id, "OTHER")
            assert len(one.log.prove_range("audit", agent_id="trader").entries) == 11

    def test_an_edited_count_and_a_removed_stream_are_found_by_a_full_verification(self) -> None:
        with self.open() as store:
            _fill(store, 3)
        attack(self.home, "UPDATE log_streams SET n = n + 1 WHERE kind = 'audit'")
        assert sync.verify(self.home, full=True, readonly=True).verdict is Verdict.TAMPERED
        attack(self.home, "UPDATE log_streams SET n = n - 1 WHERE kind = 'audit'")
        assert sync.verify(self.home, full=True, readonly=True).verdict is Verdict.VALID
        attack(self.home, "UPDATE log_streams SET agent_id = 'other' WHERE kind = 'audit'")
        assert sync.verify(self.home, full=True, readonly=True).verdict is Verdict.TAMPERED

    def test_a_file_is_proven_and_checked_by_command_without_a_store(self, tmp_path: Path) -> None:
        with self.open() as store:
            _fill(store, 10)
            [key] = store.log.verifier_keys()
        file = tmp_path / "events.json"
        words = ["--home", str(self.home), "log", "prove-range", "audit", "--agent-id", "trader", "--out", str(file)]
        assert CliRunner().invoke(app, words).exit_code == 0
        checked = CliRunner().invoke(app, ["log", "check-range", str(file), "--key", key, "--json"])
        assert (checked.exit_code, json.loads(checked.stdout)["last"]) == (0, 10), checked.output
        document = json.loads(file.read_text())
        document["entries"].pop(4)
        file.write_text(json.dumps(document))
        refused = CliRunner().invoke(app, ["log", "check-range", str(file), "--key", key])
        assert refused.exit_code != 0
        assert "where number 5 is due stands an entry number 6" in refused.output


class TestRangeProofsInMemory(StoreInMemory, RangeProofs):
    pass


class TestRangeProofsOnPostgres(StoreOnPostgres, RangeProofs):
    pass


# --- every record, tampered with in every way --------------------------------------------------------------------


class Proven(NamedTuple):
    """Proofs of many records, a month's worth in each; the log's keys, and all leaf hashes of the log."""

    months: list[RangeProof]
    keys: list[vkey.VerifierKey]
    hashes: list[bytes]


@pytest.fixture(scope="module")
def proven(tmp_path_factory: pytest.TempPathFactory) -> Proven:
    with sync.open(tmp_path_factory.mktemp("range") / "store") as store:
        _fill(store, _RECORDS)
        months = [
            store.log.prove_range("audit", agent_id="trader", first=first, last=min(_RECORDS, first + _MONTH - 1))
            for first in range(1, _RECORDS + 1, _MONTH)
        ]
        hashes = [merkle.leaf_hash(each) for each in store.read(logs.texts)]
        return Proven(months, _keys(store), hashes)


def _is_refused(proof: str, entries: list[str], keys: list[vkey.VerifierKey]) -> bool:
    try:
        range_proof.verify_range(proof, entries, log_keys=keys)
    except errors.ProofError:
        return True
    return False


def test_each_withheld_duplicated_reordered_or_replaced_record_is_found(proven: Proven) -> None:
    for proof in proven.months:
        entries = proof.entries
        assert not _is_refused(proof.proof, entries, proven.keys)
        for at in range(len(entries)):
            before = entries[:at]
            after = entries[at + 1 :]
            other = (at + 1) % len(entries)
            swapped = [*entries]
            swapped[at] = entries[other]
            swapped[other] = entries[at]
            assert _is_refused(proof.proof, before + after, proven.keys), f"{at} withheld"
            assert _is_refused(proof.proof, [*before, entries[at], entries[at], *after], proven.keys), (
                f"{at} duplicated"
            )
            assert _is_refused(proof.proof, swapped, proven.keys), f"{at} reordered"
            assert _is_refused(proof.proof, [*before, entries[other], *after], proven.keys), f"{at} replaced"


def test_each_deleted_record_is_found_although_the_proof_was_made_anew_without_it(proven: Proven) -> None:
    hashes = proven.hashes

    @cache
    def node(level: int, index: int) -> bytes:
        if level and (index + 1) << level <= len(hashes):
            return merkle.node_hash(node(level - 1, 2 * index), node(level - 1, 2 * index + 1))
        return merkle.root(hashes[index << level : (index + 1) << level])

    root = merkle.root(hashes)
    for proof in proven.months:
        document = json.loads(proof.proof)
        places = [index + step for index, count in document["runs"] for step in range(count)]
        # A forger who holds the whole log makes a proof of all entries but one.
        for at in range(len(places)):
            indexes = places[:at] + places[at + 1 :]
            path = merkle.prove_many(indexes, len(hashes), node)
            if at % 100 == 0:  # the forged proof is a good one, of other entries
                leaves = [hashes[each] for each in indexes]
                merkle.verify_many(leaves, indexes, len(hashes), path, root)
            forged = {
                **document,
                "runs": range_proof._runs(indexes),
                "hashes": base64.b64encode(b"".join(path)).decode(),
                "last": document["last"] - 1,
            }
            entries = proof.entries[:at] + proof.entries[at + 1 :]
            is_last = at == len(places) - 1  # an end that is not named is not hidden: the proof says how far it goes
            assert _is_refused(json.dumps(forged), entries, proven.keys) is not is_last, at


def test_an_edited_entry_another_name_and_another_key_are_refused(proven: Proven) -> None:
    [proof, *_], keys, _ = proven
    edited = [proof.entries[0].replace('"v":1', '"v":2'), *proof.entries[1:]]
    assert _is_refused(proof.proof, edited, keys)
    assert _is_refused(proof.proof.replace('"agent_id":"trader"', '"agent_id":"buyer"'), proof.entries, keys)
    assert _is_refused(proof.proof, proof.entries, [])
    with pytest.raises(errors.FormatError):
        range_proof.verify_range("{}", proof.entries, log_keys=keys)


def _said(proof: RangeProof, **fields: Any) -> str:
    return json.dumps({**json.loads(proof.proof), **fields})


def test_malformed_proofs_and_entries_are_errors_of_their_own(proven: Proven) -> None:
    """Whoever sends them gets no error of Python's: a verifier may be a service."""
    [proof, *_], keys, _ = proven
    stream = json.loads(proof.proof)["stream"]
    documents = [
        _said(proof, first=float("inf")),
        _said(proof, first=1.5),
        _said(proof, first=1, last=0),
        _said(proof, runs=[]),
        _said(proof, runs=[["0", 1]]),
        _said(proof, runs=[[10**30, 1]]),
        _said(proof, runs=7),
        _said(proof, head="\ud800"),
        _said(proof, agent_id="\ud800"),
        _said(proof, salt="x"),
        _said(proof, hashes="AAAA"),
        proof.proof.replace('"first":1', f'"first":{"9" * 5000}'),
        "[" * 100_000,
        "[]",
        "\ud800",
    ]
    for document in documents:
        with pytest.raises(errors.FormatError):
            range_proof.verify_range(document, proof.entries, log_keys=keys)
    numbers = [f'{{"h":"x","s":"{stream}/{number}' for number in ("1", '1"}', f'{"9" * 5000}"}}', '-1"}', '1"}\ud800')]
    for entry in [*numbers, "", "\ud800", f'{{,"ns":"main","p":"","s":"{stream}/1","t":"audit"\ud800']:
        with pytest.raises(errors.FormatError):
            range_proof.verify_range(proof.proof, [entry, *proof.entries[1:]], log_keys=keys)
    odd: list[Any] = [{"proof": proof.proof, "entries": "x"}, {"proof": proof.proof, "entries": [1]}, [], 7]
    for whole in odd:
        with pytest.raises(errors.FormatError):
            next(range_proof.check_range(json.dumps(whole), key=""))


def test_entries_of_another_kind_or_namespace_than_their_stream_are_refused(proven: Proven) -> None:
    [proof, *_], _, _ = proven
    key = numbering.StreamKey("trader", "audit", "main")
    for old, new in (('"t":"audit"', '"t":"key"'), ('"ns":"main"', '"ns":"other"')):
        entries = [proof.entries[0], proof.entries[1].replace(old, new)]
        stream = json.loads(proof.proof)["stream"]
        range_proof._refuse_gaps(stream, key, proof.entries[:2], 1, 2)
        with pytest.raises(errors.ProofError, match="number 2 is of another kind or namespace"):
            range_proof._refuse_gaps(stream, key, entries, 1, 2)


def test_a_proof_of_a_month_of_records_that_follow_one_another_is_small(proven: Proven) -> None:
    for proof in proven.months:
        assert len(json.loads(proof.proof)["runs"]) == 1
        assert len(proof.proof) < 4_000, "well under 10 KB for 1,000 records"
