"""A log to anchor heads in, on a port of its own: the API of Rekor v2 over a tree and a key of its own.

It takes an entry as Rekor does: the signature must hold over the hash, the answer comes under a checkpoint that covers
the entry. Monitors read it by tiles: `/api/v2/checkpoint` and `/api/v2/tile/…`.
"""

import base64
import hashlib
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import rfc8785
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import Prehashed

from harness import http_service
from harness.http_service import Answer, Request
from holdproof.crypto import checkpoint, keys, merkle, tiles
from holdproof.crypto.checkpoint import LogCheckpoint, SignedCheckpoint
from holdproof.crypto.tiles import EntryBundle, Tile
from holdproof.crypto.tlog_proof import TlogProof
from holdproof.crypto.vkey import ED25519, VerifierKey

NAME = "log2026.example"


class AnchorTree:
    """The entries of the log, and what it signs about them."""

    def __init__(self, name: str = NAME, *, before: int = 5) -> None:
        self.signer = keys.generate("ed25519")
        self.name = name
        self.key = VerifierKey(name, ED25519, self.signer.public)
        self.entries = [f"an entry of others, {number}".encode() for number in range(before)]
        self._lock = threading.Lock()

    def add(self, entry: bytes) -> int:
        with self._lock:
            self.entries.append(entry)
            return len(self.entries) - 1

    def head(self, signer: keys.PrivateKey | None = None) -> SignedCheckpoint:
        root = merkle.root([merkle.leaf_hash(entry) for entry in self.entries])
        return checkpoint.sign(LogCheckpoint(self.name, len(self.entries), root), signer or self.signer)

    def tile(self, tile: Tile) -> bytes:
        """A tile as a monitor gets it: hashes of complete subtrees."""
        span = 256**tile.level
        leaves = [merkle.leaf_hash(entry) for entry in self.entries]
        first = tile.index * tiles.WIDTH
        nodes = range(first, first + tile.width)
        return b"".join(merkle.root(leaves[at * span : (at + 1) * span]) for at in nodes)

    def prove(self, index: int, *, extra: bytes = b"") -> TlogProof:
        """The proof of an entry, from tiles as anybody computes it."""
        return TlogProof(index, tiles.prove_inclusion(index, len(self.entries), self.tile), self.head(), extra)

    def create_entry(self, body: bytes) -> dict[str, Any]:
        """Answer `POST /api/v2/log/entries`; ValueError for what Rekor refuses."""
        [(kind, asked)] = json.loads(body).items()
        if kind != "hashedRekordRequestV002":
            raise ValueError("another kind of entry")
        _check_signature(asked)
        spec = {"data": {"algorithm": "SHA2_256", "digest": asked["digest"]}, "signature": asked["signature"]}
        entry = rfc8785.dumps({"apiVersion": "0.0.2", "kind": "hashedrekord", "spec": {"hashedRekordV002": spec}})
        index = self.add(entry)
        return self.answer(self.prove(index, extra=entry))

    def answer(self, proof: TlogProof) -> dict[str, Any]:
        """A TransparencyLogEntry, as JSON of protocol buffers writes it."""
        about = proof.head.checkpoint
        text = {each: base64.b64encode(each).decode() for each in (*proof.proof, about.root, proof.extra)}
        log_id = hashlib.sha256(self.name.encode() + b"\n\x01" + self.key.public.raw).digest()
        return {
            "logIndex": str(proof.index),
            "logId": {"keyId": base64.b64encode(log_id).decode()},
            "kindVersion": {"kind": "hashedrekord", "version": "0.0.2"},
            "integratedTime": "0",
            "inclusionPromise": None,
            "inclusionProof": {
                "logIndex": str(proof.index),
                "rootHash": text[about.root],
                "treeSize": str(about.size),
                "hashes": [text[each] for each in proof.proof],
                "checkpoint": {"envelope": proof.head.encode().decode()},
            },
            "canonicalizedBody": text[proof.extra],
        }


def _check_signature(asked: dict[str, Any]) -> None:
    signature = asked["signature"]
    if signature["verifier"]["keyDetails"] != "PKIX_ECDSA_P256_SHA_256":
        raise ValueError("another algorithm")
    digest = base64.b64decode(asked["digest"], validate=True)
    public = serialization.load_der_public_key(base64.b64decode(signature["verifier"]["publicKey"]["rawBytes"]))
    assert isinstance(public, ec.EllipticCurvePublicKey)
    try:
        public.verify(base64.b64decode(signature["content"]), digest, ec.ECDSA(Prehashed(hashes.SHA256())))
    except InvalidSignature as error:
        raise ValueError("the signature does not hold") from error


@contextmanager
def serving(tree: AnchorTree, change: Callable[[dict[str, Any]], None] = lambda answer: None) -> Iterator[str]:
    """The address of a log while it answers; `change` is what a lying one does to an answer."""

    def respond(request: Request) -> Answer:
        if request.method == "GET":
            return Answer(200, "application/json", _published(tree, request.path.removeprefix("/api/v2/")))
        if request.path != "/api/v2/log/entries":
            return Answer(404, "application/json", b"{}")
        try:
            answer = tree.create_entry(request.body)
        except (ValueError, KeyError) as error:
            return Answer(400, "application/json", json.dumps({"code": 3, "message": str(error)}).encode())
        change(answer)
        return Answer(201, "application/json", json.dumps(answer).encode())

    with http_service.serving(respond) as url:
        yield url


def _published(tree: AnchorTree, path: str) -> bytes:
    """What a monitor reads under a path."""
    if path == "checkpoint":
        return tree.head().encode()
    target = tiles.parse_path(path)
    if isinstance(target, EntryBundle):
        first = target.index * tiles.WIDTH
        return tiles.encode_bundle(tree.entries[first : first + target.width])
    return tree.tile(target)
