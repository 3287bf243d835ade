"""Check the certificate of an erasure without store or network.

Rules:
- The document is untrusted: of bounded size, exactly its members.
- A judge key of the trust file that was not revoked signed the statement, and the statement is canonical.
- The row says word for word what the statement says; salt and row give the entry's commitment; the entry is of an
  erasure, stands under the head, and a log key signed the head. The trust file is not older than the head.
- What no certificate shows is said in `notes`: that nothing else was derived, and what became of copies elsewhere.
"""

import json
from typing import Any, Final

from holdproof.crypto import canonical, dsse, merkle, statement, tlog_proof
from holdproof.crypto.checkpoint import SignedCheckpoint
from holdproof.crypto.keys import PublicKey
from holdproof.crypto.statement import PAYLOAD_TYPE
from holdproof.errors import FormatError, HoldproofError, InvalidInputError, ProofError
from holdproof.evidence import trust as trusts
from holdproof.evidence.trust import Trust
from holdproof.model.verdicts import Verdict
from holdproof.model.verify import BundleReport, Finding
from holdproof.upkeep import erasure_certificate
from holdproof.upkeep.verification import offline

KIND: Final = "erasure"
_MOST_BYTES: Final = offline.MOST_BYTES
"""As of a bundle: an erasure names each of its entries, and there may be a million."""
_MEMBERS: Final = {"payload", "payloadType", "signatures", "log"}
_PARTS: Final = {"row", "salt", "entry", "proof", "trust"}
_SALT_BYTES: Final = 16
_MALFORMED: Final = (AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""What parts raise that are missing or of another kind than they must be."""
_REMEDY: Final = "do not rely on this certificate; ask its sender for another and say what was found"
_NOTES: Final = (
    "it says what was recorded as derived; what people or programs copied elsewhere, no store can know",
    "backups that were made before keep what they hold until they are deleted; a restore of one erases again",
)


def is_certificate(data: bytes) -> bool:
    """Whether bytes look like a certificate, and not like a bundle."""
    return data.lstrip()[:1] == b"{"


def check(data: bytes, *, root: PublicKey | None = None) -> BundleReport:
    """Check what a certificate proves; a malformed one is a FormatError, a false one a finding."""
    document = _document(data)
    log = document["log"]
    subject = ""
    try:
        trust = trusts.parse(log["trust"].encode(), root=root)
        proof = tlog_proof.parse(log["proof"].encode())
        offline.check_head(proof.head, trust)
        parsed = _statement(data, trust)
        subject = str(parsed.predicate.get("subject"))
        row = _row(log, proof, trust)
        _compare(parsed, row, trust)
        notes = _notes(parsed.predicate)
    except (FormatError, InvalidInputError, *_MALFORMED) as error:
        what = str(error) if isinstance(error, HoldproofError) else "parts are missing or malformed"
        finding = Finding(Verdict.TAMPERED, what, _REMEDY, file="certificate")
        return BundleReport(Verdict.TAMPERED, subject, KIND, findings=[finding])
    keys = {f"{key.role} {keyid}": "" for keyid, key in trust.keys.items()}
    return BundleReport(Verdict.VALID, subject, KIND, keys, root is not None, _head(proof.head), [], notes)


def _head(head: SignedCheckpoint) -> dict[str, Any]:
    point = head.checkpoint
    return {"origin": point.origin, "size": point.size, "root": point.root.hex()}


def _notes(predicate: Any) -> list[str]:
    """Return what was erased and left in words, and what no certificate shows."""
    counts = ", ".join(f"{count} {kind}" for kind, count in predicate["derived"]["counts"].items()) or "nothing"
    records = predicate["erased"]["records"]
    erased = f"erased at {predicate['erased_at']}: {records} records; of what was derived, {counts}"
    return [erased, f"{len(predicate['left'])} derived items are left, each with its reason", *_NOTES]


def _document(data: bytes) -> dict[str, Any]:
    if len(data) > _MOST_BYTES:
        raise FormatError(f"a certificate has at most {_MOST_BYTES} bytes", length=len(data))
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise FormatError("not a certificate: no JSON") from error
    if not isinstance(document, dict) or set(document) != _MEMBERS:
        raise FormatError("not a certificate: not exactly its members")
    if not isinstance(document["log"], dict) or set(document["log"]) != _PARTS:
        raise FormatError("not a certificate: its log has not exactly its parts")
    return document


def _statement(data: bytes, trust: Trust) -> statement.Statement:
    """Return the statement, signed by a judge key that still counts."""
    envelope = dsse.parse(data)
    judges = [key.public for key in trust.keys.values() if key.role == "judge" and key.until is None]
    dsse.verify(envelope, judges, payload_type=PAYLOAD_TYPE)
    parsed = statement.parse_whole(envelope.payload)
    if parsed.predicate_type != erasure_certificate.PREDICATE_TYPE:
        raise ProofError("it is another kind of statement", predicate_type=parsed.predicate_type)
    return parsed


def _row(log: dict[str, str], proof: tlog_proof.TlogProof, trust: Trust) -> dict[str, Any]:
    """Return the erasure's row, which its entry commits to, which stands under the head."""
    entry = log["entry"].encode()
    fields = canonical.loads(entry)
    if not isinstance(fields, dict) or fields.get("t") != "erasure" or not str(fields.get("p")).startswith("erasures/"):
        raise ProofError("the entry is not of an erasure")
    row = log["row"].encode()
    salt = bytes.fromhex(log["salt"])
    if len(salt) != _SALT_BYTES or canonical.sha256_hex(salt + row) != fields.get("h"):
        raise ProofError("the row is not the one its entry commits to")
    if proof.extra not in (b"", entry):  # not covered by the proof, but a reader of the proof alone would rely on it
        raise ProofError("the proof carries another entry")
    head = proof.head.checkpoint
    log_keys = trust.head_keys(head.origin, head.size)
    tlog_proof.verify(proof, merkle.leaf_hash(entry), origin=head.origin, log_keys=log_keys)
    value = canonical.loads(row)
    if not isinstance(value, dict):
        raise FormatError("the row is no object")
    return value


def _compare(parsed: statement.Statement, row: dict[str, Any], trust: Trust) -> None:
    """Refuse a statement that says anything else than the row."""
    text = str(row["certificate"])
    if erasure_certificate.encode(str(row["id"]), text) != statement.encode(parsed):
        raise ProofError("the statement does not say what the log's row says")
    predicate = parsed.predicate
    if (predicate["erasure"], predicate["subject"]) != (row["id"], row["target"]):
        raise ProofError("the certificate is of another erasure")
    if predicate["origin"] not in trust.origins:
        raise ProofError("the certificate is of another store", origin=predicate["origin"])
