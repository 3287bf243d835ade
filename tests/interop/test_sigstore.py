"""npm `@sigstore/verify` accepts our DBOMs as Sigstore bundles, and refuses every tampered twin.

It is told what a verifier of a bare public key has to be told: the key, and to ask for no log entry and no timestamp.
RSA-PSS is left out: the package verifies RSA with PKCS#1 v1.5 only.
"""

import base64
import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.filling import settled
from holdproof import sync
from holdproof.crypto import attest, dsse, keys, sigstore
from holdproof.crypto.dbom import Fields
from holdproof.crypto.keys import Alg, PublicKey
from tests.interop.npm import Node

PACKAGES = ("@sigstore/verify@3.1.1", "@sigstore/bundle@4.0.0")

SCRIPT = """
const { bundleFromJSON } = require("@sigstore/bundle");
const { Verifier, toSignedEntity, toTrustMaterial } = require("@sigstore/verify");

const none = { certificateAuthorities: [], timestampAuthorities: [], tlogs: [], ctlogs: [] };

const verdict = (bundle, keys) => {
  const known = Object.entries(keys).map(([id, der]) => [id, { rawBytes: Buffer.from(der, "base64") }]);
  const trust = toTrustMaterial(none, Object.fromEntries(known));
  try {
    const verifier = new Verifier(trust, { ctlogThreshold: 0, tlogThreshold: 0, timestampThreshold: 0 });
    verifier.verify(toSignedEntity(bundleFromJSON(bundle)));
    return "";
  } catch (error) {
    return (error.code || error.name) + ": " + error.message;
  }
};

const calls = { verdict };
"""


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Node:
    return Node(tmp_path_factory.mktemp("sigstore"), SCRIPT, *PACKAGES)


def trusting(*known: PublicKey) -> dict[str, str]:
    return {key.keyid: base64.b64encode(key.der).decode() for key in known}


@pytest.mark.parametrize("server", [False, True], ids=["sqlite", "postgres"])
def test_a_stored_dbom_and_the_envelope_of_its_bundle_are_accepted(
    node: Node, tmp_path: Path, server: bool, request: pytest.FixtureRequest
) -> None:
    url = request.getfixturevalue("postgres_url") if server else None
    with sync.open(tmp_path / "home", url) as store:
        store.evaluations.submit({"task": "t"}, evaluation_id="b-1", score=0.875, intent=[0.25, -1.5])
        exported = json.loads(store.dbom.envelope("b-1", format="sigstore"))
        envelope = store.dbom.envelope("b-1")
        [judge] = [keys.load_public_pem(key.public.encode()) for key in store.keys.list(role="judge").items]
        settled(store)
        archive = zipfile.ZipFile(io.BytesIO(store.bundle.export("b-1")))
    assert archive.read("dbom.dsse.json").decode() == envelope
    assert exported["dsseEnvelope"] == json.loads(envelope)
    assert node.run(["verdict", exported, trusting(judge)]) == [""]


def signed(alg: Alg = "ecdsa-p256-sha256") -> tuple[dict[str, Any], PublicKey]:
    key = keys.generate(alg)
    fields = Fields("battle-1", "ab" * 32, (0.25, -1.5), 0.875, "2026-01-14T21:05:51Z")
    bundle: dict[str, Any] = json.loads(sigstore.encode(attest.to_envelope(attest.sign(fields, key))))
    return bundle, key.public


@pytest.mark.parametrize("alg", ["ecdsa-p256-sha256", "ed25519"])
def test_judges_of_both_kinds_are_accepted(node: Node, alg: Alg) -> None:
    bundle, key = signed(alg)
    assert node.run(["verdict", bundle, trusting(key)]) == [""]


def _payload(bundle: dict[str, Any], old: bytes, new: bytes) -> None:
    inner = bundle["dsseEnvelope"]
    payload = base64.b64decode(inner["payload"])
    assert old in payload
    inner["payload"] = base64.b64encode(payload.replace(old, new)).decode()


def _cut(bundle: dict[str, Any]) -> None:
    inner = bundle["dsseEnvelope"]
    inner["payload"] = base64.b64encode(base64.b64decode(inner["payload"])[:-1]).decode()


def _flip(bundle: dict[str, Any]) -> None:
    [signature] = bundle["dsseEnvelope"]["signatures"]
    raw = bytearray(base64.b64decode(signature["sig"]))
    raw[-1] ^= 1
    signature["sig"] = base64.b64encode(raw).decode()


TWINS: dict[str, Callable[[dict[str, Any]], object]] = {
    "another score": lambda bundle: _payload(bundle, b"0.875", b"0.975"),
    "another battle": lambda bundle: _payload(bundle, b"battle-1", b"battle-2"),
    "another result": lambda bundle: _payload(bundle, b"abab", b"abac"),
    "another payload type": lambda bundle: bundle["dsseEnvelope"].update(payloadType="application/json"),
    "a flipped bit in the signature": _flip,
    "another time": lambda bundle: _payload(bundle, b"2026-", b"2027-"),
    "another kind of predicate": lambda bundle: _payload(bundle, b"predicateType", b"predicateKind"),
    "a payload cut short": _cut,
    "no signature": lambda bundle: bundle["dsseEnvelope"].update(signatures=[]),
    "a key that nobody trusts": lambda bundle: bundle["verificationMaterial"]["publicKey"].update(hint="0" * 64),
}


def test_every_tampered_twin_is_refused(node: Node) -> None:
    calls = []
    for tamper in TWINS.values():
        bundle, key = signed()
        tamper(bundle)
        calls.append(["verdict", bundle, trusting(key)])
    told = dict(zip(TWINS, node.run(*calls), strict=True))
    assert all(told.values()), told
    assert told["another score"].startswith("SIGNATURE_ERROR")
    assert told["a key that nobody trusts"].startswith("PUBLIC_KEY_ERROR")


def test_a_stranger_who_signs_under_the_judges_name_is_refused(node: Node) -> None:
    bundle, key = signed()
    _, stranger = signed()
    forged = {key.keyid: next(iter(trusting(stranger).values()))}
    [told] = node.run(["verdict", bundle, forged])
    assert told.startswith("SIGNATURE_ERROR")


def test_our_own_reader_takes_the_envelope_out_again() -> None:
    bundle, key = signed()
    envelope = dsse.parse(json.dumps(bundle["dsseEnvelope"]).encode())
    assert dsse.verify(envelope, [key], payload_type="application/vnd.in-toto+json") == (key,)
