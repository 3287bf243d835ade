"""Anchors: heads of one log as entries of another, which others run (Rekor v2, or any log of C2SP's formats).

    sent = anchor.request(head, keys.generate())    # POST /api/v2/log/entries of a Rekor v2
    proof = anchor.parse_answer(answer)             # its TransparencyLogEntry, as a tlog-proof
    anchor.verify(proof, head, key)                 # offline: path, checkpoint and the key of that log

Rules:
- What comes from the other log is untrusted: a malformed one is a FormatError, a false one a ProofError.
- One form is kept whichever log it was: a C2SP tlog-proof. Its `extra` is the entry where that is not the head itself.
- An entry is about a head if it is the very bytes of the head, or a `hashedrekord` 0.0.2 with their SHA-256.
- The signature in a hashedrekord is there because Rekor takes no entry without one. Nothing rests on it: the key is
  used once, and whose head it is says the signature of the head, which the hash covers.
- Size and root are those of the checkpoint that the log signed; what an answer says of them beside it is not read.
"""

from typing import Any, Final

from holdproof.crypto import b64, canonical, checkpoint, merkle, tlog_proof, vkey
from holdproof.crypto.canonical import Json
from holdproof.crypto.keys import Signer
from holdproof.crypto.lines import MAX_SIZE
from holdproof.crypto.tlog_proof import TlogProof
from holdproof.crypto.vkey import ED25519, VerifierKey
from holdproof.errors import BadKeyError, FormatError, HoldproofError, ProofError

PATH: Final = "/api/v2/log/entries"
CONTENT_TYPE: Final = "application/json"
_KIND: Final = "hashedrekord"
_VERSION: Final = "0.0.2"
_SPEC: Final = "hashedRekordV002"
_HASH: Final = "SHA2_256"
_KEY_DETAILS: Final = "PKIX_ECDSA_P256_SHA_256"
_MOST_HASHES: Final = 64


def request(head: bytes, signer: Signer) -> bytes:
    """Return the body that asks a Rekor v2 to log the hash of a head, signed with an ECDSA key on P-256."""
    if signer.alg != "ecdsa-p256-sha256":
        raise BadKeyError("an entry of Rekor is signed with ecdsa-p256-sha256 here", alg=signer.alg)
    verifier: Json = {"publicKey": {"rawBytes": b64.encode(signer.public.der)}, "keyDetails": _KEY_DETAILS}
    signature: Json = {"content": b64.encode(signer.sign(head)), "verifier": verifier}
    digest = b64.encode(canonical.sha256(head))
    return canonical.dumps({"hashedRekordRequestV002": {"digest": digest, "signature": signature}})


def parse_answer(answer: bytes) -> TlogProof:
    """Return the proof in the answer of a Rekor v2 (TransparencyLogEntry in JSON); verifies nothing."""
    fields = _object(canonical.loads(answer), "the answer")
    kind = _object(fields.get("kindVersion"), "kindVersion")
    if (kind.get("kind"), kind.get("version")) != (_KIND, _VERSION):
        raise FormatError(f"the log made an entry that is no {_KIND} {_VERSION}", kind=str(kind)[:100])
    inclusion = _object(fields.get("inclusionProof"), "inclusionProof")
    envelope = _object(inclusion.get("checkpoint"), "checkpoint").get("envelope")
    # JSON of protocol buffers leaves out what is empty: the first entry of a log has no path, and the number 0.
    hashes = inclusion.get("hashes", [])
    if not isinstance(envelope, str) or not isinstance(hashes, list) or len(hashes) > _MOST_HASHES:
        raise FormatError("the log's answer has no checkpoint, or no path")
    path = tuple(_bytes(each, "a hash of the path") for each in hashes)
    if any(len(each) != 32 for each in path):
        raise FormatError("a hash of the path has not 32 bytes")
    body = _bytes(fields.get("canonicalizedBody"), "canonicalizedBody")
    try:
        signed = checkpoint.parse(envelope.encode())
    except UnicodeEncodeError as error:
        raise FormatError("the log's checkpoint is no text") from error
    return TlogProof(_number(fields.get("logIndex", 0)), path, signed, body)


def parse_key(line: str) -> VerifierKey:
    """Return the key of the other log from its vkey line; BadKeyError for any but an Ed25519 one."""
    key = vkey.parse(line.strip())
    if key.kind != ED25519:
        raise BadKeyError("the key of a log is an Ed25519 one (type 1): NAME+ID+KEY, as the log publishes it")
    return key


def verify(proof: TlogProof, head: bytes, key: VerifierKey) -> None:
    """Check that a head is an entry of the log with this key; ProofError or FormatError if it is not."""
    if proof.extra:
        _check_entry(proof.extra, head)
    try:
        tlog_proof.verify(proof, merkle.leaf_hash(proof.extra or head), origin=key.name, log_keys=[key])
    except ProofError as error:
        raise ProofError(f"the anchor does not hold: {error.message}", log=key.name) from error


def _check_entry(entry: bytes, head: bytes) -> None:
    """Refuse an entry that is not about these bytes, or whose kind is not known."""
    try:
        fields = _object(canonical.loads(entry), "the entry")
        if (fields.get("kind"), fields.get("apiVersion")) != (_KIND, _VERSION):
            raise FormatError(f"it is no {_KIND} {_VERSION}")
        record = _object(_object(fields.get("spec"), "spec").get(_SPEC), _SPEC)
    except HoldproofError as error:
        raise FormatError(f"an anchor whose entry cannot be read: {error.message}") from error
    if record.get("data") != {"algorithm": _HASH, "digest": b64.encode(canonical.sha256(head))}:
        raise ProofError("the anchor does not hold: its entry is about other bytes")


def _object(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise FormatError(f"the log's answer: {what} is no object")
    return value


def _bytes(value: Any, what: str) -> bytes:
    if not isinstance(value, str):
        raise FormatError(f"the log's answer: {what} is missing")
    return b64.decode(value)


def _number(value: Any) -> int:
    """Return a number as JSON of protocol buffers writes one of 64 bits: in a string, or plain."""
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) <= 20:
        value = int(value)
    if type(value) is not int or not 0 <= value <= MAX_SIZE:
        raise FormatError("the log's answer: logIndex is no number")
    return value
