"""Check a person's file (upkeep/person_file.py) without store or network.

Rules:
- The file is untrusted: exactly its three members, of bounded size; nothing is written to disk.
- Every entry stands under the head, which a log key of the trust file signed. A row that is shown is the one that its
  entry commits to, and person.json has the same row: its key, and every column that was not encrypted.
- What cannot be checked is said in `notes`: that encrypted content is what the entry committed to (only the subject's
  key shows it), that nothing was left out, and what is under no log.
"""

import io
import json
import zipfile
import zlib
from collections.abc import Mapping
from typing import Any, Final

from holdproof.crypto import canonical, checkpoint, merkle, tlog_proof
from holdproof.crypto.checkpoint import SignedCheckpoint
from holdproof.crypto.keys import PublicKey
from holdproof.crypto.vkey import ED25519, VerifierKey
from holdproof.errors import FormatError, InvalidInputError, ProofError
from holdproof.evidence import submissions
from holdproof.evidence import trust as trusts
from holdproof.evidence.trust import Trust
from holdproof.model.verdicts import Verdict
from holdproof.model.verify import BundleReport, Finding
from holdproof.upkeep import kernel_tables
from holdproof.upkeep.verification import offline

MEMBERS: Final = ("report.html", "person.json", "proofs.json")
KIND: Final = "person"
_OPENED: Final = ("{", "[", '"', submissions.SEALED)
"""How texts begin that the file shows decrypted or parsed."""
_REMEDY: Final = "do not rely on this file; ask its sender for another and say what was found"
_NOTES: Final = (
    "that decrypted content is what the entries committed to, only the subject's key shows; that nothing was left out,"
    " only the store",
    "notes, transcripts, blobs and sessions are under no log: nothing is proven of them",
)


def is_person_file(data: bytes) -> bool:
    """Whether bytes look like a person's file, and not like a bundle."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            return "person.json" in archive.namelist()
    except (zipfile.BadZipFile, ValueError, OSError):
        return False


def check(data: bytes, *, root: PublicKey | None = None) -> BundleReport:
    """Check what a person's file proves; a malformed one is a FormatError, a false one a finding."""
    members = _unpack(data)
    about = _object(members["person.json"], "person.json")
    proofs = _object(members["proofs.json"], "proofs.json")
    subject = str(about.get("subject"))
    try:
        trust = trusts.parse(str(proofs["trust"]).encode(), root=root)
        head = checkpoint.parse(str(proofs["head"]).encode())
        offline.check_head(head, trust)
        disclosed = sum(_check_record(each, about, trust, head) for each in proofs["records"])
    except (FormatError, InvalidInputError, KeyError, TypeError, UnicodeEncodeError) as error:
        finding = Finding(Verdict.TAMPERED, str(error), _REMEDY, file="person's file")
        return BundleReport(Verdict.TAMPERED, subject, KIND, findings=[finding])
    facts = {"origin": head.checkpoint.origin, "size": head.checkpoint.size, "root": head.checkpoint.root.hex()}
    keys = {f"{key.role} {keyid}": "" for keyid, key in trust.keys.items()}
    count = f"{len(proofs['records'])} entries are proven, {disclosed} of them with the row they commit to"
    return BundleReport(Verdict.VALID, subject, KIND, keys, root is not None, facts, [], [count, *_NOTES])


def _unpack(data: bytes) -> dict[str, bytes]:
    if len(data) > offline.MOST_BYTES:
        raise FormatError(f"a person's file has at most {offline.MOST_BYTES} bytes", length=len(data))
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            if sorted(archive.namelist()) != sorted(MEMBERS):
                raise FormatError("person's file: not exactly its members", odd=sorted(archive.namelist())[:5])
            return {name: offline.member(archive, name) for name in MEMBERS}
    except (zipfile.BadZipFile, zlib.error, RuntimeError, EOFError, OSError, ValueError) as error:
        raise FormatError(f"not a person's file: {error}") from error


def _object(data: bytes, name: str) -> dict[str, Any]:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{name}: no JSON") from error
    if not isinstance(value, dict) or value.get("v") != 1:
        raise FormatError(f"{name}: not of this version")
    return value


def _check_record(record: Mapping[str, str], about: Mapping[str, Any], trust: Trust, head: SignedCheckpoint) -> bool:
    """Check one entry, and its row where that is shown; return whether it is."""
    entry = record["entry"].encode()
    fields = canonical.loads(entry)
    if not isinstance(fields, dict) or str(fields.get("p")).partition("/")[0] != record["table"]:
        raise ProofError(f"{record['table']}: the entry is of another table")
    proof = tlog_proof.parse(record["proof"].encode())
    if proof.head.encode() != head.encode():
        raise ProofError(f"{record['table']}: a proof leads to another head")
    origin = head.checkpoint.origin
    log_keys = [VerifierKey(origin, ED25519, key) for key in trust.of("log")]
    tlog_proof.verify(proof, merkle.leaf_hash(entry), origin=origin, log_keys=log_keys)
    if "content" not in record:
        return False
    content = record["content"].encode()
    if canonical.sha256_hex(bytes.fromhex(record["salt"]) + content) != fields.get("h"):
        raise ProofError(f"{record['table']}: a row is not the one its entry commits to")
    row = canonical.loads(content)
    assert isinstance(row, dict), "its hash is that of a row"
    _check_shown(record["table"], row, about)
    return True


def _check_shown(table: str, row: Mapping[str, Any], about: Mapping[str, Any]) -> None:
    """Refuse a person.json that shows another row than the proven one."""
    key = kernel_tables.LOGGED[table].key
    record = next((each for each in about["sections"].get(table, ()) if each.get(key) == row[key]), None)
    if record is None:
        raise ProofError(f"person.json: the proven row {row[key]} of {table} is not in it")
    for name, value in row.items():
        if isinstance(value, str) and value.startswith(_OPENED):
            continue
        if record.get(name) != value:
            raise ProofError(f"person.json: {name} of {table} {row[key]} is not what the log proves")
