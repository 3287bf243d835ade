"""Check a person's file (upkeep/person_file.py) without store or network.

Rules:
- The file is untrusted: exactly its three members, of bounded size; nothing is written to disk.
- Every entry stands under the head, which a log key of the trust file signed. A row that is shown is the one that its
  entry commits to, and person.json has the same row: its key, and every column that was not encrypted.
- person.json has as many rows of a table under the log as entries of it are proven, each once: none can be added.
- What cannot be checked is said in `notes`: that encrypted content is what the entry committed to (only the subject's
  key shows it), that nothing was left out, and what is under no log.
"""

import json
import zipfile
import zlib
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from holdproof.crypto import canonical, checkpoint, merkle, tlog_proof
from holdproof.crypto.checkpoint import SignedCheckpoint
from holdproof.crypto.keys import PublicKey
from holdproof.crypto.vkey import ED25519, VerifierKey
from holdproof.errors import FormatError, HoldproofError, InvalidInputError, ProofError
from holdproof.evidence import submissions
from holdproof.evidence import trust as trusts
from holdproof.evidence.trust import Trust
from holdproof.model.verdicts import Verdict
from holdproof.model.verify import BundleReport, Finding
from holdproof.upkeep import kernel_tables, person_page
from holdproof.upkeep.verification import container, offline

MEMBERS: Final = ("report.html", "person.json", "proofs.json")
KIND: Final = "person"
_REFERENCES: Final = ('"$sealed"', '"$cid"', '"$fields"')
"""What a column has in it that the file shows decrypted, or with parts that are stored elsewhere."""
_Rows = dict[str, dict[str, Mapping[str, Any]]]
_SUBJECT_COLUMNS: Final = {"accesses": "target", "subjects": "handle"}
"""Where a row names its subject, if not in the column of that name."""
_MALFORMED: Final = (AssertionError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""What parts raise that are missing or of another kind than they must be."""
_REMEDY: Final = "do not rely on this file; ask its sender for another and say what was found"
_NOTES: Final = (
    "that decrypted content is what the entries committed to, only the subject's key shows; that nothing was left out,"
    " only the store",
)


def is_person_file(data: bytes) -> bool:
    """Whether bytes look like a person's file, and not like a bundle."""
    try:
        with container.opened(data, "person's file", most_members=len(MEMBERS)) as archive:
            return "person.json" in archive.namelist()
    except (FormatError, zipfile.BadZipFile, ValueError, OSError):
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
        rows = _rows(about["sections"], proofs["records"])
        disclosed = sum(_check_record(each, subject, rows, trust, head) for each in proofs["records"])
        usual_page = person_page.is_of_this_version(members["report.html"], about)
    except (FormatError, InvalidInputError, *_MALFORMED) as error:
        what = str(error) if isinstance(error, HoldproofError) else "parts are missing or malformed"
        finding = Finding(Verdict.TAMPERED, what, _REMEDY, file="person's file")
        return BundleReport(Verdict.TAMPERED, subject, KIND, findings=[finding])
    facts = {"origin": head.checkpoint.origin, "size": head.checkpoint.size, "root": head.checkpoint.root.hex()}
    keys = {f"{key.role} {keyid}": "" for keyid, key in trust.keys.items()}
    count = f"{len(proofs['records'])} entries are proven, {disclosed} of them with the row they commit to"
    notes = [count, *_NOTES]
    if unproven := sorted(about["sections"].keys() - kernel_tables.LOGGED.keys()):
        notes.append(f"{', '.join(unproven)}: under no log, nothing is proven of them")
    if not usual_page:
        notes.append("report.html is not the page of this version of Holdproof: rely on person.json instead")
    return BundleReport(Verdict.VALID, subject, KIND, keys, root is not None, facts, [], notes)


def _unpack(data: bytes) -> dict[str, bytes]:
    try:
        with container.opened(data, "person's file", most_members=len(MEMBERS)) as archive:
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


def _rows(sections: Mapping[str, Any], records: list[Any]) -> _Rows:
    """Return the rows of tables under the log by table and key; ProofError for one twice, or more than are proven."""
    proven = Counter(str(each["table"]) for each in records)
    by_table: _Rows = {}
    for table in sections.keys() & kernel_tables.LOGGED.keys():
        key = kernel_tables.LOGGED[table].key
        rows = sections[table]
        by_key = {str(each[key]): each for each in rows}
        if not len(by_key) == len(rows) == proven[table]:
            raise ProofError(f"person.json: {table} has {len(rows)} rows, {proven[table]} are proven", table=table)
        by_table[table] = by_key
    return by_table


def _check_record(record: Mapping[str, str], subject: str, rows: _Rows, trust: Trust, head: SignedCheckpoint) -> bool:
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
    column = _SUBJECT_COLUMNS.get(record["table"], "subject")
    if row.get(column, subject) != subject:
        raise ProofError(f"person.json: {subject} is not the subject of {record['table']}")
    _check_shown(record["table"], row, rows)
    return True


def _check_shown(table: str, row: Mapping[str, Any], rows: _Rows) -> None:
    """Refuse a person.json that shows another row than the proven one."""
    key = kernel_tables.LOGGED[table].key
    record = rows.get(table, {}).get(str(row[key]))
    if record is None:
        raise ProofError(f"person.json: the proven row {row[key]} of {table} is not in it")
    for name, value in row.items():
        if name not in record or not _shows(record[name], value):
            raise ProofError(f"person.json: {name} of {table} {row[key]} is not what the log proves")


def _shows(in_file: Any, value: Any) -> bool:
    """Whether a column is shown as it is proven; of what was encrypted or is stored elsewhere nobody can say."""
    if in_file == value and type(in_file) is type(value):
        return True
    if not isinstance(value, str):
        return False
    if value.startswith(submissions.SEALED) or any(each in value for each in _REFERENCES):
        return True
    # As texts: 1 is not true, and what is no number equals itself.
    return value.startswith(("{", "[", '"')) and _text(json.loads(value)) == _text(in_file)


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)
