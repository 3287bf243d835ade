"""Check a bundle without store or network.

Rules:
- A bundle is untrusted: bounded size, bounded members (container.py), exactly the members of its kind; nothing is
  written to disk.
- An unknown kind is refused: the kind defines what binds the records to the subject.
- Every record: content and salt give the leaf's commitment, the leaf is under the head, a log key signed the head.
  No record is in it twice, nor in two versions.
- Every key comes from trust.json; with a root key from elsewhere only root's signature on it counts, without one the
  bundle is trusted by its own keys, and the report says so (`trusted` false). Where it lists an ML-DSA-44 key that
  counts, such a key signed the head too. It is not older than the head: one from
  before a revocation would let the revoked key count.
- Of an evaluation: the signature of its DBOM holds under a judge key that counted at that leaf, and the result is the
  one that was hashed.
  It is one of the namespace that bundles are made of: another may have an evaluation of the same name.
- Of a flow: every record names it, and its transitions lead from its opening, in their order, without a gap. The large
  parts of what it recorded are there, all of them and no others, each the block that its name hashes.
- The page `report.html`, if there is one, shows exactly the records of the bundle.
- Of a time token and of an anchor: the attested head covers every record, the bundle's head continues it, and the token
  holds under the certificate, the anchor under the key that came with it, which the report tells (bundle_heads.py). A
  bundle without them holds too, so that their absence proves nothing: who needs them says so (`attested`).
- What no bundle can prove is said in `notes`: that nothing was left out of a flow. So is a VERIFY.md that is not
  that of this version: a reader must not follow a page that came with what it is to check.
"""

import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from importlib import resources
from typing import Any, Final

from holdproof import validation
from holdproof.crypto import attest, canonical, checkpoint, dbom, dsse, merkle, note, tlog_proof
from holdproof.crypto.checkpoint import SignedCheckpoint
from holdproof.crypto.keys import PublicKey
from holdproof.crypto.statement import PAYLOAD_TYPE
from holdproof.crypto.vkey import ED25519, ML_DSA_44, VerifierKey
from holdproof.errors import FormatError, InvalidInputError, ProofError
from holdproof.evidence import trust as trusts
from holdproof.evidence.dbom_files import MAIN
from holdproof.evidence.trust import Trust, TrustedKey
from holdproof.model.flows import STATUSES, status_after
from holdproof.model.verdicts import Verdict, worst
from holdproof.model.verify import BundleReport, Finding
from holdproof.upkeep.verification import bundle_heads, bundle_values, container, report_page

MOST_BYTES: Final = container.MOST_BYTES
_MOST_MEMBER: Final = 32 << 20
MOST_RECORDS: Final = 1000
_NAME: Final = report_page.NAME
_COMMON: Final = ("VERIFY.md", "bundle.json", "head.note", "trust.json")
_SALT_BYTES: Final = 16
_SUFFIXES: Final = (".json", ".leaf.json", ".tlog-proof")
MOST_MEMBERS: Final = MOST_RECORDS * len(_SUFFIXES) + bundle_values.MOST + 16
_ABOUT: Final = {"v", "kind", "subject", "records"}
_ABSENT: Final = "ask its sender for a bundle with it: whoever passed it on may have taken it out"
_REMEDY: Final = "do not rely on this bundle; ask its sender for another and say what was found"


@dataclass(frozen=True, slots=True)
class ProvenRecord:
    """A record whose leaf is proven to be under the head."""

    table: str
    index: int
    kind: str
    content: Mapping[str, Any]
    at: str
    version: int


def check(data: bytes, *, root: PublicKey | None = None, attested: Collection[str] = ()) -> BundleReport:
    """Check what a bundle proves; a malformed one is a FormatError, a false one a finding.

    `attested` names what it must bring, `time` or `anchor`: whoever passes a bundle on can take that out, and what is
    left still holds.
    """
    for each in attested:
        validation.one_of("attested", each, tuple(bundle_heads.ATTESTATIONS))
    report, _ = examine(data, root=root)
    if not attested:
        return report
    about = _about(unpack(data)["bundle.json"])
    missing = [name for name in bundle_heads.ATTESTATIONS if name in attested and name not in about]
    findings = [Finding(Verdict.MISSING_HERE, f"it has no part `{name}/`", _ABSENT, file="bundle") for name in missing]
    verdict = worst([report.verdict, *(each.verdict for each in findings)])
    return replace(report, verdict=verdict, findings=[*report.findings, *findings])


def examine(data: bytes, *, root: PublicKey | None = None) -> tuple[BundleReport, list[ProvenRecord]]:
    """Check what a bundle proves, and return its records too; none where it is not sound."""
    members = unpack(data)
    about = _about(members["bundle.json"])
    kind = about["kind"]
    subject = about["subject"]
    try:
        trust = trusts.parse(members["trust.json"], root=root)
        head = checkpoint.parse(members["head.note"])
        check_head(head, trust)
        _check_handles(about["records"])
        records = [_record(members, entry, trust, head) for entry in about["records"]]
        _check_values(members, about.get("values", []), records)
        findings = _KINDS[kind](members, subject, records, trust)
        last = max(each.index for each in records)
        attested = bundle_heads.check(members, about, last, head)
        signed_twice = _second_signature(head, trust)
        usual_page = _NAME not in members or report_page.is_of_this_version(members[_NAME], members)
    except (
        FormatError,
        InvalidInputError,
        UnicodeEncodeError,
    ) as error:  # an origin that names no key, a lone surrogate
        finding = Finding(Verdict.TAMPERED, str(error), _REMEDY, file="bundle")
        return BundleReport(Verdict.TAMPERED, subject, kind, findings=[finding]), []
    keys = {f"{key.role} {keyid}": until(key) for keyid, key in trust.keys.items()}
    facts = {"origin": head.checkpoint.origin, "size": head.checkpoint.size, "root": head.checkpoint.root.hex()}
    verdict = worst(each.verdict for each in findings)
    notes = _notes(members["VERIFY.md"], kind, records) + attested + signed_twice
    if not usual_page:
        notes.append("report.html is not the page of this version of Holdproof: rely on this report instead")
    return BundleReport(verdict, subject, kind, keys, root is not None, facts, findings, notes), records


def _notes(page: bytes, kind: str, records: list[ProvenRecord]) -> list[str]:
    """Return what the reader must know beside the verdict."""
    notes = []
    if page != instructions():
        notes.append("VERIFY.md is not the page of this version of Holdproof: take it from the documentation instead")
    if kind == "flow":
        counts = Counter(each.table for each in records)
        contents = ", ".join(f"{count} of {table}" for table, count in sorted(counts.items()))
        notes.append(f"it holds {contents}; that nothing was left out, only the store can show")
    ns = records[0].content.get("ns")
    if isinstance(ns, str) and ns != MAIN:
        notes.append(f"it is of the namespace {ns}: a record of the same id in another namespace is another record")
    return notes


def instructions() -> bytes:
    """Return the text of VERIFY.md, the page that goes into every bundle."""
    return (resources.files("holdproof.upkeep") / "VERIFY.md").read_bytes()


def until(key: TrustedKey) -> str:
    """Say up to where a key counts."""
    return "until now" if key.until is None else f"until {key.until}"


# --- the container -----------------------------------------------------------------------------------------------


def unpack(data: bytes) -> dict[str, bytes]:
    """Return the members of a bundle; FormatError unless they are exactly those of its kind."""
    try:
        with container.opened(data, "bundle", most_members=MOST_MEMBERS) as archive:
            listed = archive.infolist()
            names = [each.filename for each in listed]
            if len(set(names)) != len(names):
                raise FormatError("bundle: a member twice, or too many", count=len(names))
            if sum(each.file_size for each in listed) > 2 * MOST_BYTES:
                raise FormatError("bundle: its members are too large")
            # bundle.json is read first: it says which members there must be. Nothing else is unpacked before that.
            members = {"bundle.json": member(archive, "bundle.json")}
            # Bundles of older versions have no page.
            expected = _wanted(_about(members["bundle.json"])) | ({_NAME} & set(names))
            if set(names) != expected:
                raise FormatError("bundle: not exactly its members", odd=sorted(set(names) ^ expected)[:5])
            return members | {name: member(archive, name) for name in sorted(expected)}
    except (zipfile.BadZipFile, zlib.error, RuntimeError, EOFError, OSError, ValueError) as error:
        raise FormatError(f"not a bundle: {error}") from error


def refuse_large(members: Mapping[str, bytes], packed: bytes) -> None:
    """Raise InvalidInputError for a bundle that `unpack` would refuse as too large."""
    sizes = {name: len(data) for name, data in members.items()}
    name = max(sizes, key=lambda each: sizes[each])
    if sizes[name] > _MOST_MEMBER or sum(sizes.values()) > 2 * MOST_BYTES or len(packed) > MOST_BYTES:
        raise InvalidInputError(
            f"the record is too large for a bundle: a part has at most {_MOST_MEMBER} bytes, all of it {MOST_BYTES}",
            member=name,
            length=sizes[name],
        )


def member(archive: zipfile.ZipFile, name: str) -> bytes:
    """Read one member; FormatError if it is larger than allowed, whatever its header says."""
    try:
        with archive.open(name) as file:
            data = file.read(_MOST_MEMBER + 1)
    except KeyError as error:
        raise FormatError(f"bundle: no {name}", member=name) from error
    if len(data) > _MOST_MEMBER:
        raise FormatError(f"bundle: {name} is too large", member=name)
    return data


def _about(data: bytes) -> dict[str, Any]:
    value = canonical.loads(data)
    if (
        not isinstance(value, dict)
        or value.get("v") != 1
        or set(value) - {"values", *bundle_heads.ATTESTATIONS} != _ABOUT
    ):
        raise FormatError("bundle.json: not of this version")
    if "values" in value:
        bundle_values.check_names(value["values"])
    bundle_heads.check_proofs(value)
    if not isinstance(value["kind"], str) or value["kind"] not in _KINDS or not isinstance(value["subject"], str):
        raise FormatError(f"bundle.json: not a bundle of {' or '.join(sorted(_KINDS))}", kind=str(value["kind"])[:100])
    records = value["records"]
    if not isinstance(records, list) or not 1 <= len(records) <= MOST_RECORDS:
        raise FormatError(f"bundle.json: not 1 to {MOST_RECORDS} records")
    names = {"name", "projection", "leaf_id", "leaf_ver", "salt"}
    for number, each in enumerate(records, 1):
        if not isinstance(each, dict) or set(each) != names or each["name"] != f"records/{number:04}":
            raise FormatError("bundle.json: a record is not described as it must be", number=number)
    return value


def _wanted(about: dict[str, Any]) -> set[str]:
    extra = ("dbom.json", "dbom.dsse.json") if about["kind"] == "evaluation" else ()
    records = [f"{each['name']}{suffix}" for each in about["records"] for suffix in _SUFFIXES]
    values = [f"{bundle_values.FOLDER}{cid}" for cid in about.get("values", ())]
    return {*_COMMON, *extra, *records, *values, *bundle_heads.names(about)}


# --- what it proves ----------------------------------------------------------------------------------------------


def check_head(head: SignedCheckpoint, trust: Trust) -> None:
    """Refuse a head that no log key of the trust file signed, and a trust file that is older than the head."""
    origin = head.checkpoint.origin
    size = head.checkpoint.size
    if origin not in trust.origins:
        raise ProofError("the head is of a log that trust.json does not name", origin=origin)
    # An old trust file would not list a later revocation.
    if trust.size < size:
        what = f"trust.json is older than the head: it does not know what became of keys after leaf {trust.size}"
        raise ProofError(what, trusted=trust.size, size=size)
    checkpoint.verify(head, origin=origin, log_keys=trust.head_keys(origin, size))


def _second_signature(head: SignedCheckpoint, trust: Trust) -> list[str]:
    """Return what to say of the post-quantum signature of a head that was checked; nothing where it has none."""
    keys = trust.head_keys(head.checkpoint.origin, head.checkpoint.size)
    second = [key for key in keys if key.kind == ML_DSA_44]
    signed = note.verify(head.note, second) if second else ()
    return [f"its head is signed with ML-DSA-44 too, by the key {each.key.public.keyid}" for each in signed]


def _check_handles(entries: list[Mapping[str, Any]]) -> None:
    """Refuse a record that is listed twice: what happened once must not look as if it happened twice."""
    handles: set[str] = set()
    for entry in entries:
        if str(entry["leaf_id"]) in handles:
            raise ProofError(f"{entry['name']}: the record stands in the bundle twice", leaf_id=str(entry["leaf_id"]))
        handles.add(str(entry["leaf_id"]))


def _check_values(members: Mapping[str, bytes], listed: list[str], records: list[ProvenRecord]) -> None:
    """Refuse parts of values that no record leads to, that are missing, or that are not what their names hash."""
    named = {cid for each in records for cid in bundle_values.named(each.table, each.content)}
    parts = bundle_values.closure(lambda cid: members.get(f"{bundle_values.FOLDER}{cid}"), named)
    if sorted(parts) != listed:
        raise ProofError("the bundle holds values that no record names")


def _record(
    members: Mapping[str, bytes], entry: Mapping[str, Any], trust: Trust, head: SignedCheckpoint
) -> ProvenRecord:
    name = str(entry["name"])
    content = members[f"{name}.json"]
    leaf = members[f"{name}.leaf.json"]
    fields = canonical.loads(leaf)
    value = canonical.loads(content)
    if not isinstance(fields, dict) or not isinstance(value, dict):
        raise FormatError(f"{name}: record or leaf is no object")
    if [fields.get(key) for key in ("p", "id", "ver")] != [entry[key] for key in ("projection", "leaf_id", "leaf_ver")]:
        raise ProofError(f"{name}: the leaf is of another record")
    try:
        salt = bytes.fromhex(str(entry["salt"]))
    except ValueError as error:
        raise FormatError(f"{name}: the salt is not hex") from error
    if len(salt) != _SALT_BYTES or canonical.sha256_hex(salt + content) != fields.get("h"):
        raise ProofError(f"{name}: the record is not the one its leaf commits to")
    proof = tlog_proof.parse(members[f"{name}.tlog-proof"])
    if proof.head.encode() != members["head.note"]:
        raise ProofError(f"{name}: its proof leads to another head")
    if proof.extra not in (b"", leaf):  # not covered by the proof, but a reader of the proof alone would rely on it
        raise ProofError(f"{name}: its proof carries another leaf")
    origin = head.checkpoint.origin
    # The head itself was checked against keys that counted at its size; here it only has to be the same head.
    log_keys = [VerifierKey(origin, ED25519, key) for key in trust.of("log")]
    tlog_proof.verify(proof, merkle.leaf_hash(leaf), origin=origin, log_keys=log_keys)
    table = str(fields.get("p")).partition("/")[0]
    version = int(str(fields.get("ver")))
    return ProvenRecord(table, proof.index, str(fields.get("t")), value, str(fields.get("ts")), version)


def _evaluation(members: Mapping[str, bytes], subject: str, records: list[ProvenRecord], trust: Trust) -> list[Finding]:
    """Check the record of an evaluation: its DBOM, the judge's signature, and that the key counted then."""
    record = next((each for each in records if (each.table, each.kind) == ("battles", "dbom")), None)
    if record is None or record.content.get("battle_id") != subject or record.content.get("ns") != MAIN:
        raise ProofError("the bundle holds no record of that evaluation", evaluation_id=subject)
    parsed = dbom.parse(members["dbom.json"])
    result = record.content.get("raw_result")
    if parsed.fields.evaluation_id != subject:
        raise ProofError("the DBOM is of another evaluation", evaluation_id=parsed.fields.evaluation_id)
    if not isinstance(result, str) or canonical.sha256_hex(result.encode()) != parsed.fields.h_delta:
        raise ProofError("the result is not the one that the DBOM hashes", evaluation_id=subject)
    columns = [record.content.get(name) for name in ("dbom_hash", "score", "timestamp")]
    if columns != [parsed.fields.h_delta, parsed.fields.score_cis, parsed.fields.timestamp]:
        raise ProofError("the record names another DBOM", evaluation_id=subject)
    if record.content.get("dbom") != members["dbom.json"].decode():
        raise ProofError("the DBOM is not the one in the record", evaluation_id=subject)
    sigma = attest.parse_sigma(parsed.sigma_judge)
    if isinstance(sigma, attest.LegacySigma):
        raise ProofError("the DBOM carries a simulated signature: a downgrade", evaluation_id=subject)
    key = trust.keys.get(sigma.keyid)
    if key is None or key.role != "judge":
        raise ProofError("the DBOM is signed with a key that is no judge's", keyid=sigma.keyid)
    attest.verify(parsed, key.public)
    envelope = dsse.parse(members["dbom.dsse.json"])
    dsse.verify(envelope, [key.public], payload_type=PAYLOAD_TYPE)
    if envelope != attest.to_envelope(parsed):
        raise ProofError("the envelope is not that of the DBOM", evaluation_id=subject)
    if not key.trusted_at(record.index):
        what = f"the judge's key does not count from leaf {key.until} on; this is leaf {record.index}"
        return [Finding(Verdict.REVOKED_KEY, what, "ask for a decision under a key that counts", file="dbom.json")]
    return []


def _imported(members: Mapping[str, bytes], subject: str, records: list[ProvenRecord], trust: Trust) -> list[Finding]:
    """Check an imported evaluation: the log proves that it was imported like that, not that it is true."""
    del members, trust
    identities = {(each.table, each.kind, each.content.get("battle_id"), each.content.get("ns")) for each in records}
    if identities != {("battles", "legacy_import", subject, MAIN)}:
        raise ProofError("the bundle holds no import of that evaluation", evaluation_id=subject)
    what = "imported from an older Green Agent: no judge of this store signed it"
    return [Finding(Verdict.UNSIGNED, what, "rely on the log alone, or not at all", file="records/0001.json")]


def _checkpoint(members: Mapping[str, bytes], subject: str, records: list[ProvenRecord], trust: Trust) -> list[Finding]:
    """Check the entry of a checkpoint: it is of that thread and of that checkpoint, and of nothing else."""
    del members, trust
    names = {f"{each.content.get('thread_id')}/{each.content.get('checkpoint_id')}" for each in records}
    if len(records) != 1 or records[0].table != "thread_entries" or names != {subject}:
        raise ProofError("the bundle holds no entry of that checkpoint", subject=subject)
    return []


def _flow(members: Mapping[str, bytes], subject: str, records: list[ProvenRecord], trust: Trust) -> list[Finding]:
    """Check the records of a flow: all are its own, and its transitions follow one another."""
    del members, trust
    if sum(each.table == "decision_flows" for each in records) != 1:
        raise ProofError("the bundle holds no opening of that flow", flow_id=subject)
    # Two namespaces may each have a flow of that id: records of both prove neither.
    ns = records[0].content.get("ns")
    if any(each.content.get("dfid") != subject or each.content.get("ns") != ns for each in records):
        raise ProofError("a record is of another flow", flow_id=subject)
    _check_moves([each.content for each in records if each.table == "flow_transitions"], subject)
    return []


def _check_moves(moves: list[Mapping[str, Any]], flow_id: str) -> None:
    """Refuse transitions with a gap; statuses of another kernel, in imported flows, are accepted as they are."""
    numbers: list[Any] = [each.get("id") for each in moves]
    if not all(type(number) is int for number in numbers) or numbers != sorted(set(numbers)):
        raise ProofError("the transitions are not in their order", flow_id=flow_id)
    status = "CREATED"
    for each in moves:
        before = str(each.get("from_status"))
        word = str(each.get("to_status"))
        if before in STATUSES and before != status:
            raise ProofError("a transition is missing", flow_id=flow_id, expected=status)
        status = status_after(status, word) or status


Judge = Callable[[Mapping[str, bytes], str, list[ProvenRecord], Trust], list[Finding]]
_KINDS: Final[dict[str, Judge]] = {
    "checkpoint": _checkpoint,
    "evaluation": _evaluation,
    "flow": _flow,
    "imported": _imported,
}
