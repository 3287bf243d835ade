"""npm `@sigstore/verify` accepts a stored anchor as an entry of a Rekor v2, and refuses every tampered twin.

It checks what a client of Sigstore checks: the checkpoint under the log's key, the path, that the entry is about this
head, and the signature in it. So what we send and keep is what Rekor's own clients understand.
"""

import base64
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness import anchor_log
from harness.anchor_log import NAME, AnchorTree
from harness.filling import running, settled
from holdproof import sync
from holdproof.crypto import tlog_proof
from tests.interop.npm import Node

PACKAGES = ("@sigstore/verify@3.1.1", "@sigstore/bundle@4.0.0", "@sigstore/protobuf-specs@0.5.0")

SCRIPT = """
const { bundleFromJSON } = require("@sigstore/bundle");
const { TrustedRoot } = require("@sigstore/protobuf-specs");
const { Verifier, toSignedEntity, toTrustMaterial } = require("@sigstore/verify");

const verdict = (bundle, tlog, key, artifact) => {
  const nobody = { certificateAuthorities: [], timestampAuthorities: [], ctlogs: [] };
  const root = TrustedRoot.fromJSON({ ...nobody, tlogs: [tlog] });
  const trust = toTrustMaterial(root, { once: { rawBytes: Buffer.from(key, "base64") } });
  try {
    const verifier = new Verifier(trust, { ctlogThreshold: 0, tlogThreshold: 1, timestampThreshold: 0 });
    verifier.verify(toSignedEntity(bundleFromJSON(bundle), Buffer.from(artifact, "base64")));
    return "";
  } catch (error) {
    return (error.code || error.name) + ": " + error.message;
  }
};

const calls = { verdict };
"""

Case = dict[str, Any]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Node:
    return Node(tmp_path_factory.mktemp("rekor"), SCRIPT, *PACKAGES)


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def case(tree: AnchorTree, head: bytes, proof: bytes) -> Case:
    """What the judge is given for an anchor as it is stored."""
    parsed = tlog_proof.parse(proof)
    signature = json.loads(parsed.extra)["spec"]["hashedRekordV002"]["signature"]
    answer = tree.answer(parsed)
    answer.pop("inclusionPromise")
    log_id = hashlib.sha256(NAME.encode() + b"\n\x01" + tree.key.public.raw).digest()
    return {
        "bundle": {
            "mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json",
            "verificationMaterial": {"publicKey": {"hint": "once"}, "tlogEntries": [answer]},
            "messageSignature": {
                "messageDigest": {"algorithm": "SHA2_256", "digest": b64(hashlib.sha256(head).digest())},
                "signature": signature["content"],
            },
        },
        "tlog": {
            "baseUrl": f"https://{NAME}",
            "hashAlgorithm": "SHA2_256",
            "publicKey": {"rawBytes": b64(tree.key.public.der), "keyDetails": "PKIX_ED25519"},
            "logId": {"keyId": b64(log_id)},
        },
        "key": signature["verifier"]["publicKey"]["rawBytes"],
        "head": b64(head),
    }


def call(each: Case) -> list[Any]:
    return ["verdict", each["bundle"], each["tlog"], each["key"], each["head"]]


@pytest.fixture
def anchored(tmp_path: Path) -> Callable[[], Case]:
    tree = AnchorTree()
    with anchor_log.serving(tree) as url:
        settings = tmp_path / "config" / "config.yaml"
        settings.parent.mkdir()
        settings.write_text(f"anchor: {{url: '{url}', key: '{tree.key.encode()}'}}\n")
        with sync.open(tmp_path) as store:
            store.agents.register("trader", version="1.0.0")
            running(store)
            settled(store)
            kept = store.anchors.get(store.anchors.create().id)
    return lambda: case(tree, kept.head.encode(), kept.proof.encode())


def _entry(each: Case) -> Any:
    [entry] = each["bundle"]["verificationMaterial"]["tlogEntries"]
    return entry


def _body(each: Case, old: bytes, new: bytes) -> None:
    body = base64.b64decode(_entry(each)["canonicalizedBody"])
    assert old in body
    _entry(each)["canonicalizedBody"] = b64(body.replace(old, new))


def _flip(text: str) -> str:
    data = bytearray(base64.b64decode(text))
    data[-1] ^= 1
    return b64(bytes(data))


def _note(each: Case, change: Callable[[list[str]], None]) -> None:
    checkpoint = _entry(each)["inclusionProof"]["checkpoint"]
    lines = checkpoint["envelope"].split("\n")
    change(lines)
    checkpoint["envelope"] = "\n".join(lines)


TWINS: dict[str, Callable[[Case], Any]] = {
    "another head": lambda each: each.update(head=b64(base64.b64decode(each["head"]) + b"x")),
    "another digest in the entry": lambda each: _body(each, b'"digest":"', b'"digest":"AA'),
    "another kind": lambda each: _body(each, b"hashedrekord", b"hashedrecord"),
    "another place": lambda each: _entry(each)["inclusionProof"].update(logIndex="2"),
    "a place behind the tree": lambda each: _entry(each)["inclusionProof"].update(logIndex="99"),
    "a hash of the path": lambda each: _entry(each)["inclusionProof"]["hashes"].append(
        _flip(_entry(each)["inclusionProof"]["hashes"].pop())
    ),
    "the path cut": lambda each: _entry(each)["inclusionProof"]["hashes"].pop(),
    "another root": lambda each: _note(each, lambda lines: lines.__setitem__(2, _flip(lines[2]))),
    "another size": lambda each: _note(each, lambda lines: lines.__setitem__(1, "7")),
    "another log": lambda each: _note(each, lambda lines: lines.__setitem__(0, "other.example")),
    "another key of the log": lambda each: each["tlog"]["publicKey"].update(rawBytes=b64(AnchorTree().key.public.der)),
    "another signature": lambda each: each["bundle"]["messageSignature"].update(signature=b64(bytes(70))),
}


def test_a_stored_anchor_is_accepted(node: Node, anchored: Callable[[], Case]) -> None:
    assert node.run(call(anchored())) == [""]


def test_every_tampered_twin_is_refused(node: Node, anchored: Callable[[], Case]) -> None:
    calls = []
    for tamper in TWINS.values():
        each = anchored()
        tamper(each)
        calls.append(call(each))
    told = dict(zip(TWINS, node.run(*calls), strict=True))
    assert all(told.values()), told
    assert told["another head"].startswith("SIGNATURE_ERROR")
    assert told["another root"].startswith("TLOG_INCLUSION_PROOF_ERROR")
