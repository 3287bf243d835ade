"""The judge's signature: exactly the spec's bytes, any field changed breaks it, legacy ones are never valid."""

import hashlib
import json
import struct
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.legacy_dboms import legacy_sigma
from holdproof.crypto import attest, b64, dbom, dsse, statement
from holdproof.crypto.attest import LegacySigma, Sigma
from holdproof.crypto.dbom import Fields, SignedDbom
from holdproof.crypto.keys import ALGS
from holdproof.crypto.statement import PAYLOAD_TYPE
from holdproof.errors import FormatError, InvalidInputError, ProofError
from tests.fixtures import fixture

from .material import JUDGE, LOG, one_of_each, p256

FIELDS = Fields("battle-1", hashlib.sha256(b"{}").hexdigest(), (0.25, -1.5, 0.0), 0.875, "2026-01-14T21:05:51.755118Z")
SIGNED = attest.sign(FIELDS, JUDGE)
PINNED = "02c79978f3be4132bcf3e17bd96206648aaabf0e092217a6d5641f9f399d9305"
SIGMAS = st.builds(
    Sigma, st.sampled_from(ALGS), st.binary(min_size=32, max_size=32).map(bytes.hex), st.binary(min_size=1, max_size=80)
)


def test_the_signed_bytes_are_those_of_the_spec() -> None:
    vector = hashlib.sha256(struct.pack(">3d", 0.25, -1.5, 0.0)).hexdigest()
    body = {
        "_type": "https://in-toto.io/Statement/v1",
        "predicate": {
            "battle_id": "battle-1",
            "dbom_version": "1.0",
            "h_delta": FIELDS.h_delta,
            "score_cis": 0.875,
            "signer": {"alg": "ecdsa-p256-sha256", "keyid": JUDGE.keyid},
            "timestamp": FIELDS.timestamp,
            "v_intent": {"dim": 3, "sha256": vector},
        },
        "predicateType": attest.PREDICATE_TYPE,
        "subject": [{"digest": {"sha256": FIELDS.h_delta}, "name": "battle-1"}],
    }
    text = json.dumps(body, sort_keys=True, separators=(",", ":")).encode()
    expected = b"DSSEv1 28 application/vnd.in-toto+json %d " % len(text) + text
    assert attest.signed_bytes(FIELDS, JUDGE.alg, JUDGE.keyid) == expected


def test_this_signature_never_changes_between_versions() -> None:
    """RFC 6979 makes it a fixed text: if this fails, every stored DBOM has become unverifiable."""
    assert hashlib.sha256(SIGNED.sigma_judge.encode()).hexdigest() == PINNED


def test_every_algorithm_signs_and_verifies() -> None:
    for key in one_of_each():
        made = attest.sign(FIELDS, key)
        attest.verify(made, key.public)
        assert made.sigma_judge.startswith(f"dsse:{key.alg}:{key.keyid}:")
        assert "=" not in made.sigma_judge


def test_a_signed_dbom_verifies_after_its_file() -> None:
    attest.verify(dbom.parse(dbom.encode(SIGNED)), JUDGE.public)


@given(
    st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=8).map(tuple),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.characters(codec="utf-8"), min_size=1),
)
def test_any_good_fields_verify_after_their_file(vector: tuple[float, ...], score: float, evaluation: str) -> None:
    made = attest.sign(Fields(evaluation, FIELDS.h_delta, vector, score, FIELDS.timestamp), LOG)
    attest.verify(dbom.parse(dbom.encode(made)), LOG.public)


@pytest.mark.parametrize(
    "changed",
    [
        replace(FIELDS, evaluation_id="battle-2"),
        replace(FIELDS, h_delta="0" * 64),
        replace(FIELDS, v_intent=(0.25, -1.5)),
        replace(FIELDS, v_intent=(0.25, -1.5, 5e-324)),
        replace(FIELDS, v_intent=(0.25, -1.5, -0.0)),
        replace(FIELDS, v_intent=(-1.5, 0.25, 0.0)),
        replace(FIELDS, score_cis=0.8750000000000001),
        replace(FIELDS, timestamp="2026-01-14T21:05:51.755119Z"),
        replace(FIELDS, timestamp="2026-01-14T21:05:51.755118+00:00"),
        replace(FIELDS, dbom_version="1.1"),
        replace(FIELDS, timestamp="yesterday"),
        replace(FIELDS, evaluation_id="\ud800"),
        replace(FIELDS, h_delta=""),
    ],
    ids=repr,
)
def test_a_dbom_with_any_field_changed_is_refused(changed: Fields) -> None:
    with pytest.raises(ProofError):
        attest.verify(SignedDbom(changed, SIGNED.sigma_judge), JUDGE.public)


def test_a_dbom_signed_by_another_key_is_refused() -> None:
    other = p256(4711)
    with pytest.raises(ProofError, match="another key"):
        attest.verify(SIGNED, other.public)
    relabelled = SIGNED.sigma_judge.replace(JUDGE.keyid, other.keyid)
    with pytest.raises(ProofError):
        attest.verify(SignedDbom(FIELDS, relabelled), other.public)


def test_a_signature_cannot_be_moved_to_another_algorithm() -> None:
    moved = SIGNED.sigma_judge.replace("ecdsa-p256-sha256", "ed25519")
    with pytest.raises(ProofError):
        attest.verify(SignedDbom(FIELDS, moved), JUDGE.public)


def test_the_envelope_is_made_without_the_private_key_and_verifies() -> None:
    envelope = attest.to_envelope(SIGNED)
    assert dsse.verify(envelope, [JUDGE.public], payload_type=PAYLOAD_TYPE) == (JUDGE.public,)
    made = statement.parse(envelope.payload)
    assert made.subject[0].name == "battle-1"
    assert made.subject[0].digest == {"sha256": FIELDS.h_delta}
    assert dsse.parse(dsse.encode(envelope)) == envelope


def test_the_intent_hash_covers_big_endian_doubles() -> None:
    assert attest.hash_intent(()) == hashlib.sha256(b"").hexdigest()
    assert attest.hash_intent([1.0]) == hashlib.sha256(bytes.fromhex("3ff0000000000000")).hexdigest()
    assert attest.hash_intent([1]) == attest.hash_intent([1.0])
    for bad in (["x"], [10**400], [None]):
        with pytest.raises(InvalidInputError):
            attest.hash_intent(bad)  # type: ignore[arg-type]


@pytest.mark.parametrize("score", [float("nan"), float("inf"), True])
def test_a_score_that_is_no_number_is_not_signed(score: float) -> None:
    with pytest.raises(InvalidInputError):
        attest.sign(replace(FIELDS, score_cis=score), JUDGE)


@given(SIGMAS)
def test_a_sigma_survives_its_text(sigma: Sigma) -> None:
    assert attest.parse_sigma(attest.encode_sigma(sigma)) == sigma


KEYID = "0" * 64


@pytest.mark.parametrize(
    "text",
    [
        "",
        "dsse",
        f"dsse:ed25519:{KEYID}",
        f"dsse:ed25519:{KEYID}:",
        f"dsse:ed25519:{KEYID}:YQ==",
        f"dsse:ed25519:{KEYID}:YR",
        f"dsse:ed25519:{KEYID}:Y",
        f"dsse:ed25519:{KEYID}:Y+Q/",
        f"dsse:ed25519:{KEYID}:YWJj\n",
        f"dsse:ed25519:{KEYID.replace('0', 'A')}:YWJj",
        f"dsse:ed25519:{KEYID[1:]}:YWJj",
        f"dsse:hmac:{KEYID}:YWJj",
        f"DSSE:ed25519:{KEYID}:YWJj",
        f" dsse:ed25519:{KEYID}:YWJj",
        f"dsse:ed25519:{KEYID}:YWJj:more",
        "sig_green_b_0",
    ],
)
def test_a_malformed_sigma_is_refused(text: str) -> None:
    with pytest.raises(FormatError):
        attest.parse_sigma(text)
    with pytest.raises(FormatError):
        attest.verify(SignedDbom(FIELDS, text), JUDGE.public)


@given(st.text())
def test_arbitrary_text_is_a_sigma_or_a_format_error(text: str) -> None:
    try:
        sigma = attest.parse_sigma(text)
    except FormatError:
        return
    assert (sigma.text if isinstance(sigma, LegacySigma) else attest.encode_sigma(sigma)) == text


def test_a_legacy_signature_is_recognised_and_never_valid() -> None:
    text = legacy_sigma(FIELDS.evaluation_id, FIELDS.h_delta)
    assert text == f"SIG_GREEN_battle-1_{FIELDS.h_delta[:8]}"
    assert attest.parse_sigma(text) == LegacySigma(text)
    with pytest.raises(ProofError) as caught:
        attest.verify(SignedDbom(FIELDS, text), JUDGE.public)
    assert caught.value.fields["legacy"] is True
    with pytest.raises(ProofError):
        attest.to_envelope(SignedDbom(FIELDS, text))


def test_every_signature_of_a_real_green_agent_is_legacy_and_follows_its_formula() -> None:
    for path in sorted(fixture("green-agent/dboms").glob("*.json")):
        found = dbom.parse(path.read_bytes())
        assert attest.parse_sigma(found.sigma_judge) == LegacySigma(found.sigma_judge)
        assert found.sigma_judge == legacy_sigma(found.fields.evaluation_id, found.fields.h_delta)
        with pytest.raises(ProofError):
            attest.verify(found, JUDGE.public)


def test_one_bit_of_the_signature_changed_breaks_it() -> None:
    sigma = attest.parse_sigma(SIGNED.sigma_judge)
    assert isinstance(sigma, Sigma)
    for at in range(len(sigma.signature)):
        bad = bytearray(sigma.signature)
        bad[at] ^= 1
        text = f"dsse:{sigma.alg}:{sigma.keyid}:{b64.encode_url(bytes(bad))}"
        with pytest.raises(ProofError):
            attest.verify(SignedDbom(FIELDS, text), JUDGE.public)
