"""What proofs are made of: notes, heads, tree proofs, tiles, DBOMs, envelopes, manifests, bundles."""

import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Final

from harness.damaged_bytes import JSON_MARKS
from holdproof import sync
from holdproof.crypto import attest, checkpoint, dbom, dsse, frontier, merkle, note, statement, tiles, tlog_proof, vkey
from holdproof.crypto import witness as witnesses
from holdproof.crypto.checkpoint import LogCheckpoint
from holdproof.crypto.dbom import Fields
from holdproof.crypto.tlog_proof import TlogProof
from holdproof.crypto.vkey import ED25519, VerifierKey
from holdproof.crypto.witness import AddCheckpoint
from holdproof.evidence import evaluations
from holdproof.memory.images import image_files
from holdproof.upkeep.backups import manifest
from holdproof.upkeep.bundle import pack
from holdproof.upkeep.verification import offline
from proof.fuzz.targets.formats import KEY
from proof.fuzz.targets.target import Target

_ORIGIN: Final = "holdproof/fuzz"
_LEAVES: Final = [merkle.leaf_hash(b"%d" % at) for at in range(70)]
_HEAD: Final = checkpoint.sign(LogCheckpoint(_ORIGIN, 70, merkle.root(_LEAVES)), KEY)
_LINES: Final = (b"\n", b"\xe2\x80\x94 ", b"=\n", b"0\n", b"18446744073709551616\n", b"c2sp.org/", b"index ", b"old ")


def _node(level: int, index: int) -> bytes:
    return merkle.root(_LEAVES[index << level : (index + 1) << level])


def _note(data: bytes) -> None:
    found = note.parse(data)
    assert note.encode(found) == data, "two ways to write one note"
    checkpoint.parse(data)


def _vkey(data: bytes) -> None:
    vkey.parse(data.decode(errors="replace"))


def _proof_seeds() -> Sequence[bytes]:
    path = merkle.prove_inclusion(33, 70, _node)
    proof = TlogProof(index=33, proof=path, head=_HEAD, extra=b"leaf")
    old = merkle.prove_consistency(40, 70, _node)
    return [tlog_proof.encode(proof), witnesses.encode_request(AddCheckpoint(40, old, _HEAD))]


def _proof(data: bytes) -> None:
    """A proof that is read says where its leaf is, and holds only for that; a request to a witness is answered."""
    if data.startswith(b"old "):
        request = witnesses.parse_request(data)
        witnesses.review(request, None)
        return
    found = tlog_proof.parse(data)
    assert tlog_proof.encode(found) == data, "two ways to write one proof"
    head = found.head.checkpoint
    merkle.verify_inclusion(_LEAVES[33], found.index, head.size, found.proof, head.root)
    assert (found.index, head.root) == (33, _HEAD.checkpoint.root), "a proof of something else"


def _tiles(data: bytes) -> None:
    kind, _, rest = data.partition(b"\0")
    if kind == b"path":
        tiles.parse_path(rest.decode(errors="replace"))
    else:
        assert frontier.from_bytes(rest).to_bytes() == rest, "two ways to write one frontier"


def _tile_seeds() -> Sequence[bytes]:
    peaks = frontier.append(frontier.EMPTY, _LEAVES).frontier.to_bytes()
    return [b"path\0tile/0/x001/234.p/5", b"path\0tile/entries/067", b"frontier\0" + peaks]


def _dbom_seeds() -> Sequence[bytes]:
    made = attest.sign(Fields("b-1", "a" * 64, (0.5, -1.0, 2e-7), 0.75, "2026-01-14T21:05:51Z"), KEY)
    envelope = attest.to_envelope(made)
    return [dbom.encode(made), dsse.encode(envelope), envelope.payload]


def _dbom(data: bytes) -> None:
    """A DBOM, the envelope around one, or the statement inside."""
    if b'"payload"' in data[:40]:
        dsse.parse(data)
    elif b'"_type"' in data[:40]:
        statement.parse(data)
    else:
        found = dbom.parse(data)
        attest.parse_sigma(found.sigma_judge)
        attest.verify(found, KEY.public)


@cache
def _store() -> tuple[bytes, bytes, bytes]:
    """A bundle, the manifest of an image and that of a backup, as a real store makes them."""
    with tempfile.TemporaryDirectory() as folder, sync.open(Path(folder) / "home") as store:
        store.run(evaluations.submit(store.context, {"task": "b"}, evaluation_id="b", score=0.5, intent=[0.5, 1.0]))
        store.objects.put("a", type="note", content="text")
        store.snapshots.create("first")
        bundle = store.bundle.export("b")
        backup = Path(store.backup.create(Path(folder) / "backup").path)
        store.image.dump(Path(folder) / "image")
        [image] = (Path(folder) / "image").glob("*.image.json")
        return bundle, image.read_bytes(), (backup / "manifest.json").read_bytes()


def _manifests(data: bytes) -> None:
    if b"payload" in data[:400]:
        image_files.parse(data)
    else:
        manifest.parse(data)


def _bundle(data: bytes) -> None:
    """A whole bundle, or one of its members by name, put into the good one."""
    name, zero, content = data.partition(b"\0")
    member = name.decode("latin-1")
    if not zero or data.startswith(b"PK"):
        offline.check(data)
    else:
        found = offline.check(pack({**offline.unpack(_store()[0]), member: content}))
        whole = offline.unpack(_store()[0]).get(member) == content
        assert whole or not found.verdict.sound or member in _SAID, f"another {member} is {found.verdict}"


_SAID: Final = frozenset({"VERIFY.md", "report.html"})
"""What a bundle says to people; nothing is proven by it."""


def _bundle_seeds() -> Sequence[bytes]:
    good = _store()[0]
    return [good, *(name.encode() + b"\0" + content for name, content in offline.unpack(good).items())]


TARGETS: Final = (
    Target("notes", lambda: [_HEAD.encode()], _note, _LINES),
    Target("verifier-keys", lambda: [VerifierKey(_ORIGIN, ED25519, KEY.public).encode().encode()], _vkey, (b"+",)),
    Target("tree-proofs", _proof_seeds, _proof, _LINES),
    Target("tiles", _tile_seeds, _tiles, (b"path\0", b"edge\0", b"x999/", b".p/256")),
    Target("dbom", _dbom_seeds, _dbom, JSON_MARKS),
    Target("manifests", lambda: _store()[1:], _manifests, JSON_MARKS),
    Target("bundles", _bundle_seeds, _bundle, (b"PK\x03\x04", b"PK\x01\x02", b"PK\x05\x06")),
)
