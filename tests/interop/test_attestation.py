"""Flows in formats of others: in-toto attestations and W3C PROV, judged by `in-toto-attestation`, DSSE and `prov`."""

import json
from base64 import b64decode, b64encode
from collections.abc import Callable
from typing import Any

import pytest

from harness.filling import settled
from holdproof import errors, sync
from holdproof.api import OpenFlow
from holdproof.crypto import canonical, dsse, keys
from holdproof.crypto.statement import PAYLOAD_TYPE
from holdproof.db import sql
from holdproof.executors import SyncExecutor
from holdproof.upkeep.verification import agent_decision
from tests.conformance.store_backends import StoreInMemory, StoreOnPostgres, StoreOnSqlite, sound

REASON = "not installed: pip install"
Flow = OpenFlow[SyncExecutor]


def _filled(store: sync.Holdproof) -> None:
    store.agents.register("trader", version="1")

    @store.flow(agent="trader")
    def buy(flow: Flow, cents: int) -> int:
        flow.step("quote", lambda: "a secret price")
        flow.step("pay", lambda cents: cents, cents, compensate=lambda _: None)
        return cents

    buy.with_id("o-1")(500)
    with store.flows.run("trader", flow_id="o-2", flow_type="order") as flow:
        flow.step("quote", lambda: 900)
        request = store.escalations.request("o-2", reason="over 500", proposal={"buy": 900})
        store.escalations.resolve(request.id, "approve", by="ann")
    settled(store)


def _statement(payload: bytes) -> Any:
    """Return a statement as in-toto-attestation reads it, validated."""
    module = pytest.importorskip("in_toto_attestation.v1.statement", reason=f"{REASON} in-toto-attestation")
    json_format = pytest.importorskip("google.protobuf.json_format", reason=f"{REASON} protobuf")
    pb = pytest.importorskip("in_toto_attestation.v1.statement_pb2", reason=f"{REASON} in-toto-attestation")
    statement = module.Statement.copy_from_pb(json_format.Parse(payload, pb.Statement()))
    statement.validate()
    return statement.pb


def _graph(text: str) -> Any:
    model = pytest.importorskip("prov.model", reason=f"{REASON} prov")
    return model.ProvDocument.deserialize(content=text, format="json")


class Attestations:
    open: Any

    def test_an_attestation_says_what_was_decided_and_what_came_of_it(self) -> None:
        with self.open() as store:
            _filled(store)
            text = store.bundle.attest("o-1")
            envelope = dsse.parse(text.encode())
            (judge,) = [each for each in store.keys.list() if each.role == "judge"]
            dsse.verify(envelope, [keys.load_public_pem(judge.public.encode())], payload_type=PAYLOAD_TYPE)
            statement = _statement(envelope.payload)
            assert statement.predicate_type == agent_decision.PREDICATE_TYPE
            assert [each.name for each in statement.subject] == ["o-1"]
            predicate = json.loads(envelope.payload)["predicate"]
            assert (predicate["decision"]["status"], predicate["agreement"]) == ("COMPLETED", "yes")
            assert [(each["name"], each["state"]) for each in predicate["observed_effect"]] == [
                ("quote", "DONE"),
                ("pay", "DONE"),
            ]
            assert "secret" not in envelope.payload.decode(), "an attestation holds no content"
            (approval,) = json.loads(dsse.parse(store.bundle.attest("o-2").encode()).payload)["predicate"]["decision"][
                "approvals"
            ]
            assert (approval["outcome"], approval["by"]) == ("APPROVED", "ann")
            sound(store)

    def test_prov_reads_the_flow_with_its_steps_and_the_person_who_answered(self) -> None:
        with self.open() as store:
            _filled(store)
            text = store.bundle.prov("o-1")
            assert "secret" not in text
            graph = _graph(text)
            counts: dict[str, int] = {}
            for record in graph.get_records():
                kind = record.get_type().localpart
                counts[kind] = counts.get(kind, 0) + 1
            assert (counts["Activity"], counts["Agent"], counts["Generation"], counts["Usage"]) == (3, 1, 3, 1)
            with_answer = _graph(store.bundle.prov("o-2"))
            assert {str(label) for each in with_answer.get_records() for label in [each.label]} >= {"ann", "trader"}
            assert _graph(graph.serialize(format="json")) == graph

    def test_nothing_is_attested_of_a_flow_whose_record_was_edited(self) -> None:
        with self.open() as store:
            _filled(store)
            store.write(lambda tx: tx.execute(sql("UPDATE flow_steps SET name = 'other' WHERE name = 'pay'")))
            for call in (store.bundle.attest, store.bundle.prov):
                with pytest.raises(errors.ProofError):
                    call("o-1")
                with pytest.raises(errors.NotFoundError):
                    call("o-9")


class TestAttestationsOnSqlite(Attestations, StoreOnSqlite):
    pass


class TestAttestationsInMemory(Attestations, StoreInMemory):
    pass


class TestAttestationsOnPostgres(Attestations, StoreOnPostgres):
    pass


_DONE = {"name": "pay", "n": 1, "state": "DONE", "compensates": None, "undo": 1}


@pytest.mark.parametrize(
    ("status", "steps", "agreement"),
    [
        ("COMPLETED", [_DONE], "yes"),
        ("COMPLETED", [], "yes"),
        ("RUNNING", [_DONE], "unknown"),
        ("COMPLETED", [{**_DONE, "state": "UNKNOWN"}], "unknown"),
        ("CANCELLED", [_DONE], "no"),
        ("FAILED", [_DONE], "no"),
        ("FAILED", [{**_DONE, "undo": 0}], "yes"),
        ("COMPENSATED", [_DONE, {**_DONE, "name": "undo pay", "compensates": "pay 1", "undo": 0}], "yes"),
        ("COMPENSATED", [_DONE, {**_DONE, "name": "undo pay", "compensates": "pay 2", "undo": 0}], "no"),
        ("COMPLETED", [_DONE, {**_DONE, "name": "undo pay", "compensates": "pay 1", "undo": 0}], "no"),
    ],
)
def test_agreement_follows_from_the_steps(status: str, steps: list[dict[str, Any]], agreement: str) -> None:
    assert agent_decision.agreement(status, steps) == agreement


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str, str]:
    with sync.open(tmp_path_factory.mktemp("attested")) as store:
        _filled(store)
        attested = store.bundle.attest("o-2")
        (judge,) = [each for each in store.keys.list() if each.role == "judge"]
        return attested, store.bundle.prov("o-2"), judge.public


def _edit(*path: str, value: Any) -> Callable[[dict[str, Any]], None]:
    def edit(document: dict[str, Any]) -> None:
        *parents, last = path
        for name in parents:
            document = document[name]
        assert document[last] != value
        document[last] = value

    return edit


TAMPERINGS = {
    "status": _edit("predicate", "decision", "status", value="FAILED"),
    "agreement": _edit("predicate", "agreement", value="unknown"),
    "agent": _edit("predicate", "agent", "id", value="another"),
    "approvals": _edit("predicate", "decision", "approvals", value=[]),
    "effects": _edit("predicate", "observed_effect", value=[]),
    "opened": _edit("predicate", "decision", "opened_at", value="2020-01-01T00:00:00Z"),
    "fresher": _edit("predicate", "freshness", "newest_entry_at", value="2030-01-01T00:00:00Z"),
    "head": _edit("predicate", "freshness", "head", "size", value=1),
    "subject": _edit("subject", value=[{"name": "o-1", "digest": {"sha256": "0" * 64}}]),
    "type": _edit("predicateType", value="https://elsewhere.example/v1"),
}


@pytest.mark.parametrize("tampering", TAMPERINGS)
def test_securesystemslib_refuses_a_tampered_attestation(texts: tuple[str, str, str], tampering: str) -> None:
    module = pytest.importorskip("securesystemslib.dsse", reason=f"{REASON} securesystemslib[crypto]")
    signer = pytest.importorskip("securesystemslib.signer", reason=f"{REASON} securesystemslib[crypto]")
    problems = pytest.importorskip("securesystemslib.exceptions", reason=f"{REASON} securesystemslib[crypto]")
    outer = json.loads(texts[0])
    (keyid,) = [each["keyid"] for each in outer["signatures"]]
    key = signer.SSlibKey(keyid, "ecdsa", "ecdsa-sha2-nistp256", {"public": texts[2]})
    module.Envelope.from_dict(json.loads(texts[0])).verify([key], 1)
    document = json.loads(b64decode(outer["payload"]))
    TAMPERINGS[tampering](document)
    outer["payload"] = b64encode(canonical.dumps(document)).decode()
    with pytest.raises(problems.VerificationError):
        module.Envelope.from_dict(outer).verify([key], 1)


DAMAGES: dict[str, Callable[[str], str]] = {
    "cut short": lambda text: text[:-1],
    "no JSON": lambda text: text.replace(":", ";", 1),
    "a prefix gone": lambda text: text.replace('"prefix":', '"prefixes":', 1),
    "an unknown kind": lambda text: text.replace('"activity":{', '"activities":{', 1),
    "an unknown relation": lambda text: text.replace('"wasAssociatedWith":{', '"wasSeenWith":{', 1),
    "no time": lambda text: text.replace('"prov:startTime":"2', '"prov:startTime":"x2', 1),
    "an end without a time": lambda text: text.replace('"prov:endTime":"2', '"prov:endTime":"noon 2', 1),
    "an unknown prefix": lambda text: text.replace('"holdproof:flow-', '"elsewhere:flow-', 1),
    "a list": lambda text: f"[{text}]",
    "a text": lambda text: json.dumps(text),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_prov_refuses_a_damaged_document(texts: tuple[str, str, str], damage: str) -> None:
    _graph(texts[1])
    damaged = DAMAGES[damage](texts[1])
    assert damaged != texts[1]
    with pytest.raises(Exception, match=r"(?s).*"):
        _graph(damaged)
