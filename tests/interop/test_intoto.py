"""Third-party DSSE and in-toto libraries accept our envelope and statement, and refuse a tampered twin."""

import json
from dataclasses import replace
from typing import Any

import pytest

from holdproof.crypto import attest, dsse, keys
from holdproof.crypto.dbom import Fields
from holdproof.crypto.dsse import Envelope
from holdproof.crypto.keys import Alg, PrivateKey

FIELDS = Fields("battle-1", "ab" * 32, (0.25, -1.5), 0.875, "2026-01-14T21:05:51Z")
REASON = "not installed: pip install"

# What securesystemslib calls our algorithms.
SCHEMES: dict[Alg, tuple[str, str]] = {
    "ecdsa-p256-sha256": ("ecdsa", "ecdsa-sha2-nistp256"),
    "ed25519": ("ed25519", "ed25519"),
    "rsa-pss-sha256": ("rsa", "rsassa-pss-sha256"),
}


def foreign_key(key: PrivateKey) -> Any:
    signer = pytest.importorskip("securesystemslib.signer", reason=f"{REASON} securesystemslib[crypto]")
    keytype, scheme = SCHEMES[key.alg]
    public = key.public.raw.hex() if key.alg == "ed25519" else key.public.to_pem().decode()
    return signer.SSlibKey(key.keyid, keytype, scheme, {"public": public})


def foreign_verify(envelope: Envelope, key: PrivateKey) -> dict[str, Any]:
    """The keys that securesystemslib accepts for our envelope's JSON."""
    module = pytest.importorskip("securesystemslib.dsse", reason=f"{REASON} securesystemslib[crypto]")
    parsed = module.Envelope.from_dict(json.loads(dsse.encode(envelope)))
    accepted: dict[str, Any] = parsed.verify([foreign_key(key)], 1)
    return accepted


@pytest.mark.parametrize("alg", SCHEMES)
def test_securesystemslib_accepts_our_envelope(alg: Alg) -> None:
    key = keys.generate(alg, rsa_bits=2048)
    envelope = attest.to_envelope(attest.sign(FIELDS, key))
    assert list(foreign_verify(envelope, key)) == [key.keyid]


@pytest.mark.parametrize("alg", SCHEMES)
def test_securesystemslib_refuses_a_tampered_twin(alg: Alg) -> None:
    key = keys.generate(alg, rsa_bits=2048)
    good = attest.to_envelope(attest.sign(FIELDS, key))
    errors = pytest.importorskip("securesystemslib.exceptions", reason=f"{REASON} securesystemslib[crypto]")
    for bad in (
        replace(good, payload=good.payload.replace(b"0.875", b"0.975")),
        replace(good, payload_type="application/json"),
    ):
        assert bad != good
        with pytest.raises(errors.VerificationError):
            foreign_verify(bad, key)


def test_we_accept_the_envelope_that_securesystemslib_signs() -> None:
    signer = pytest.importorskip("securesystemslib.signer", reason=f"{REASON} securesystemslib[crypto]")
    module = pytest.importorskip("securesystemslib.dsse", reason=f"{REASON} securesystemslib[crypto]")
    foreign = signer.CryptoSigner.generate_ecdsa()
    key = keys.load_public_pem(foreign.public_key.keyval["public"].encode())
    made = module.Envelope(b"payload", "text/x", {})
    made.sign(foreign)
    found = dsse.parse(json.dumps(made.to_dict()).encode())
    assert dsse.verify(found, [key], payload_type="text/x") == (key,)


def foreign_statement(payload: bytes) -> Any:
    """Our statement as in-toto-attestation reads it, validated."""
    module = pytest.importorskip("in_toto_attestation.v1.statement", reason=f"{REASON} in-toto-attestation")
    json_format = pytest.importorskip("google.protobuf.json_format", reason=f"{REASON} protobuf")
    pb = pytest.importorskip("in_toto_attestation.v1.statement_pb2", reason=f"{REASON} in-toto-attestation")
    found = module.Statement.copy_from_pb(json_format.Parse(payload, pb.Statement()))
    found.validate()
    return found


def test_in_toto_attestation_accepts_our_statement() -> None:
    key = keys.generate()
    envelope = attest.to_envelope(attest.sign(FIELDS, key))
    found = foreign_statement(envelope.payload).pb
    assert found.predicate_type == attest.PREDICATE_TYPE
    assert found.subject[0].name == "battle-1"
    assert dict(found.subject[0].digest) == {"sha256": FIELDS.h_delta}
    assert found.predicate["score_cis"] == 0.875
    assert found.predicate["signer"]["keyid"] == key.keyid


@pytest.mark.parametrize(
    ("part", "twin"),
    [
        (b"Statement/v1", b"Statement/v9"),
        (b'"_type":', b'"_types":'),
        (b'"predicateType":', b'"predicateKind":'),
        (b'"subject":', b'"subjects":'),
        (b'"subject":[{', b'"subject":{"first":[{'),
        (b'"name":"battle-1"', b'"name":17'),
        (b'"name":', b'"nome":'),
        (b'"digest":{"sha256":', b'"digest":{"sha256":17,"sha256":'),
        (b'"digest":{', b'"digests":{'),
        (b'"predicate":{', b'"predicate":"no object","predicates":{'),
    ],
)
def test_in_toto_attestation_refuses_a_damaged_twin(part: bytes, twin: bytes) -> None:
    payload = attest.to_envelope(attest.sign(FIELDS, keys.generate())).payload
    assert part in payload
    foreign_statement(payload)
    with pytest.raises(Exception, match=r".+"):
        foreign_statement(payload.replace(part, twin))
