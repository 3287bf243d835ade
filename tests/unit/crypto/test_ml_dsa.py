"""ML-DSA-44: published vectors, cosignatures of checkpoints (C2SP type 6), and an implementation nobody here wrote."""

from collections.abc import Callable
from typing import Any

import pytest
from dilithium_py.ml_dsa import ML_DSA_44

from holdproof.crypto import checkpoint, keys, ml_dsa, note, vkey
from holdproof.crypto.checkpoint import LogCheckpoint, SignedCheckpoint
from holdproof.crypto.keys import PrivateKey
from holdproof.crypto.note import SignedNote
from holdproof.crypto.vkey import COSIGNATURE_V1, ED25519, VerifierKey
from holdproof.crypto.vkey import ML_DSA_44 as TYPE_6
from holdproof.errors import BadKeyError, FormatError, ProofError
from tests.fixtures import load

ORIGIN = "example.com/behind-the-sofa"
HEAD = LogCheckpoint(ORIGIN, 20852163, bytes(range(32)))
SECONDS = 1679315147
LOG_KEY = keys.from_seed(b"\1" * 32)
PQ_KEY = keys.generate("ml-dsa-44")
LOG_VKEY = VerifierKey(ORIGIN, ED25519, LOG_KEY.public)
PQ_VKEY = VerifierKey(ORIGIN, TYPE_6, PQ_KEY.public)


def signed(second: PrivateKey = PQ_KEY, *, name: str = ORIGIN, head: LogCheckpoint = HEAD) -> SignedCheckpoint:
    """A head with a signature of each type."""
    once = checkpoint.sign(head, LOG_KEY)
    return SignedCheckpoint(head, once.note.add(note.cosign(head.text(), name, second, seconds=SECONDS)))


def test_every_wycheproof_signature_is_judged_as_published() -> None:
    count, wrong = 0, []
    for group in load("wycheproof/mldsa_44_verify_test.json")["testGroups"]:
        for case in group["tests"]:
            if case.get("ctx"):  # a context string, which no format here has
                continue
            count += 1
            if _holds(group, case) != (case["result"] == "valid"):
                wrong.append(case["tcId"])
    assert count > 100
    assert wrong == []


def _holds(group: dict[str, Any], case: dict[str, Any]) -> bool:
    try:
        key = keys.load_public_raw("ml-dsa-44", bytes.fromhex(group["publicKey"]))
        key.verify(bytes.fromhex(case["msg"]), bytes.fromhex(case["sig"]))
    except (BadKeyError, ProofError):
        return False
    return True


def test_the_signed_message_is_the_one_of_the_specification() -> None:
    label = b"subtree/v1\n\0"
    assert len(label) == 12
    expected = b"".join(
        (
            label,
            b"\x14witness.example.com/",
            SECONDS.to_bytes(8, "big"),
            b"\x1b" + ORIGIN.encode(),
            (0).to_bytes(8, "big"),
            (20852163).to_bytes(8, "big"),
            HEAD.root,
        )
    )
    assert vkey.subtree_message("witness.example.com/", HEAD.text(), SECONDS) == expected


def test_a_key_id_commits_to_name_type_and_key() -> None:
    line = PQ_VKEY.encode()
    assert vkey.parse(line) == PQ_VKEY
    assert len(PQ_KEY.public.raw) == 1312
    [signature] = [each for each in signed().note.signatures if each.key_id == PQ_VKEY.key_id]
    assert len(signature.signature) == 8 + 2420
    for kind in (ED25519, COSIGNATURE_V1):
        with pytest.raises(BadKeyError):
            VerifierKey(ORIGIN, kind, PQ_KEY.public)
    with pytest.raises(BadKeyError):
        VerifierKey(ORIGIN, TYPE_6, LOG_KEY.public)


def test_a_key_survives_its_file_with_and_without_a_passphrase() -> None:
    for passphrase in (None, b"a passphrase"):
        again = keys.load_private(PQ_KEY.to_pem(passphrase), passphrase)
        assert again.public == PQ_KEY.public
        again.public.verify(b"text", again.sign(b"text"))
    assert keys.load_public_pem(PQ_KEY.public.to_pem()) == PQ_KEY.public


def test_another_implementation_accepts_our_signature_and_refuses_ten_tampered_ones() -> None:
    text = HEAD.text()
    [line] = [each for each in signed().note.signatures if each.key_id == PQ_VKEY.key_id]
    message = vkey.subtree_message(ORIGIN, text, SECONDS)
    signature = line.signature[8:]
    public = PQ_KEY.public.raw
    assert line.signature[:8] == SECONDS.to_bytes(8, "big")
    assert ML_DSA_44.verify(public, message, signature)
    for place in range(5):
        at = place * len(signature) // 5
        flipped = signature[:at] + bytes([signature[at] ^ 1]) + signature[at + 1 :]
        assert not ML_DSA_44.verify(public, message, flipped)
        at = place * len(message) // 5
        other = message[:at] + bytes([message[at] ^ 1]) + message[at + 1 :]
        assert not ML_DSA_44.verify(public, other, signature)


def test_a_signature_of_another_implementation_holds_here() -> None:
    public, private = ML_DSA_44.keygen()
    key = VerifierKey("example.com/pq", TYPE_6, keys.load_public_raw("ml-dsa-44", public))
    message = vkey.subtree_message("example.com/pq", HEAD.text(), SECONDS)
    signature = SECONDS.to_bytes(8, "big") + ML_DSA_44.sign(private, message)
    assert key.verify(HEAD.text(), signature) == SECONDS
    with pytest.raises(ProofError):
        key.verify(LogCheckpoint(ORIGIN, HEAD.size + 1, HEAD.root).text(), signature)


def test_a_head_needs_a_signature_of_each_type_that_its_log_signs_with() -> None:
    both = [LOG_VKEY, PQ_VKEY]
    checkpoint.verify(signed(), origin=ORIGIN, log_keys=both)
    checkpoint.verify(signed(), origin=ORIGIN, log_keys=[LOG_VKEY])
    for bad in BAD_HEADS.values():
        with pytest.raises(ProofError):
            checkpoint.verify(bad(), origin=ORIGIN, log_keys=both)


def _only(key_id: bytes) -> SignedCheckpoint:
    whole = signed()
    lines = tuple(each for each in whole.note.signatures if each.key_id == key_id)
    return SignedCheckpoint(HEAD, SignedNote(HEAD.text(), lines))


def _altered() -> SignedCheckpoint:
    data = bytearray(signed().encode())
    # A character of base64 in the middle of the last line.
    data[-1000] = ord("A") if data[-1000] != ord("A") else ord("B")
    return checkpoint.parse(bytes(data))


BAD_HEADS: dict[str, Callable[[], SignedCheckpoint]] = {
    "without the second": lambda: _only(LOG_VKEY.key_id),
    "without the first": lambda: _only(PQ_VKEY.key_id),
    "by another key": lambda: signed(keys.generate("ml-dsa-44")),
    "under another name": lambda: signed(name="example.com/other"),
    "altered": _altered,
}


def test_a_head_with_extension_lines_is_refused_as_the_signature_would_not_cover_them() -> None:
    with pytest.raises(FormatError, match="extension"):
        signed(head=LogCheckpoint(ORIGIN, 7, bytes(32), ("more",)))
    head = LogCheckpoint(ORIGIN, HEAD.size, HEAD.root, ("more",))
    lines = (*checkpoint.sign(head, LOG_KEY).note.signatures, signed().note.signatures[-1])
    with pytest.raises(FormatError, match="extension"):
        checkpoint.verify(
            SignedCheckpoint(head, SignedNote(head.text(), lines)), origin=ORIGIN, log_keys=[LOG_VKEY, PQ_VKEY]
        )


def test_a_library_without_the_algorithm_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    class Missing:
        """What stands there where `cryptography` has no ML-DSA."""

    monkeypatch.setattr(ml_dsa, "MLDSA44PrivateKey", Missing)
    monkeypatch.setattr(ml_dsa, "MLDSA44PublicKey", Missing)
    with pytest.raises(BadKeyError, match="cryptography 50"):
        keys.generate("ml-dsa-44")
    with pytest.raises(BadKeyError, match="cryptography 50"):
        keys.load_public_raw("ml-dsa-44", bytes(1312))
