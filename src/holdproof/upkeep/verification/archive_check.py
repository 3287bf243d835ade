"""Check an archive that retention wrote, without store or network.

    archive.json      what it holds, with the hash of every other file: a DSSE envelope, signed by root or the log key
    records.parquet   each record with its salt, its entry as it stands in the log, and the place of that
    proof.bin         the hashes that, with all the entries at their places, give the root of the log
    head.note         the signed head with that root
    trust.json        which keys count, for what, up to where

Rules:
- An archive is untrusted: exactly these files, each as long as it is said to be, and memory bounded by the most
  records that an archive has.
- Every record: content and salt give its entry's commitment, the entry is of that table and names a record once, and
  its time is in the month. All entries are under the head, at their places.
- Keys count as in a bundle (offline.py): with a root key from elsewhere only root's signature on trust.json counts.
- That no record of the month was left out, an archive does not prove; the entry of the store names its hash.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO, Final

from holdproof.content import disk, parquet_reader
from holdproof.content.parquet import ParquetColumn
from holdproof.crypto import canonical, checkpoint, dsse, merkle
from holdproof.crypto.checkpoint import SignedCheckpoint
from holdproof.crypto.dsse import Envelope
from holdproof.crypto.keys import PublicKey
from holdproof.errors import FormatError, InvalidInputError, ProofError
from holdproof.evidence import archives, leaves
from holdproof.evidence import trust as trusts
from holdproof.evidence.logged_tables import LoggedTable
from holdproof.evidence.trust import Trust
from holdproof.model.times import month_bounds
from holdproof.model.verdicts import Verdict
from holdproof.model.verify import BundleReport, Finding
from holdproof.upkeep import kernel_tables
from holdproof.upkeep.verification import offline

MANIFEST: Final = "archive.json"
RECORDS: Final = "records.parquet"
PROOF: Final = "proof.bin"
HEAD: Final = "head.note"
TRUST: Final = "trust.json"
FILES: Final = (HEAD, PROOF, RECORDS, TRUST)
PAYLOAD_TYPE: Final = "application/vnd.holdproof.archive+json"
MOST: Final = 250_000
"""How many records an archive has at most: who checks it holds a hash of each in memory."""
_SMALL: Final = 1 << 20
_HASH: Final = 32
_CHUNK: Final = 1 << 20
_FIELDS: Final = {"v", "what", "table", "month", "count", "size", "origin", "made_at", "files"}
_REMEDY: Final = "do not rely on this archive; find another copy of it, and say what was found"


@dataclass(frozen=True, slots=True)
class ArchiveManifest:
    """What the manifest of an archive says, parsed."""

    what: str
    table: LoggedTable
    month: str
    count: int
    size: int
    origin: str
    files: Mapping[str, tuple[str, int]]


def is_archive(folder: Path) -> bool:
    """Whether a folder is an archive, or what is left of one."""
    return (folder / MANIFEST).is_file() and not (folder / "kernel.db").exists()


def columns(table: LoggedTable) -> list[ParquetColumn]:
    """Return the columns of `records.parquet`: where the entry stands, entry, salt, and what the entry commits to."""
    logged = [ParquetColumn(name, _kind(name), optional=name != table.key) for name in table.columns]
    texts = [ParquetColumn(name, "text", optional=False) for name in ("entry", "salt")]
    return [ParquetColumn("log_index", "number", optional=False), *texts, *logged]


def _kind(column: str) -> Any:
    if column == "id":
        return "number"
    return "moment" if column.endswith("_at") else "text"


def check(folder: Path, *, root: PublicKey | None = None) -> BundleReport:
    """Check what an archive proves; a malformed one is a FormatError, a false one a finding."""
    data = _read(folder, MANIFEST)
    envelope = dsse.parse(data)
    manifest = _manifest(envelope.payload)
    subject = f"{manifest.what} {manifest.month}"
    try:
        _check_files(folder, manifest)
        trust = trusts.parse(_read(folder, TRUST), root=root)
        head = checkpoint.parse(_read(folder, HEAD))
        offline.check_head(head, trust)
        if (head.checkpoint.origin, head.checkpoint.size) != (manifest.origin, manifest.size):
            raise ProofError("the head is not the one that the manifest names", size=head.checkpoint.size)
        _check_signature(data, envelope, _signers(trust, manifest.size, root))
        _check_records(folder, manifest, head)
    except (FormatError, InvalidInputError, UnicodeEncodeError) as error:
        finding = Finding(Verdict.TAMPERED, str(error), _REMEDY, file="archive")
        return BundleReport(Verdict.TAMPERED, subject, "archive", findings=[finding])
    keys = {f"{key.role} {keyid}": offline.until(key) for keyid, key in trust.keys.items()}
    facts = {"origin": head.checkpoint.origin, "size": head.checkpoint.size, "root": head.checkpoint.root.hex()}
    notes = [
        f"it holds {manifest.count} records; that none of the month was left out, only its store can say: there an"
        f" entry names this archive by the hash {sha256(data).hexdigest()}"
    ]
    return BundleReport(Verdict.VALID, subject, "archive", keys, root is not None, facts, [], notes)


def _check_signature(data: bytes, envelope: Envelope, signers: Sequence[PublicKey]) -> None:
    [signer, *_] = dsse.verify(envelope, signers, payload_type=PAYLOAD_TYPE)
    # Exactly what was written: its hash is in the store's log.
    if [each.keyid for each in envelope.signatures] != [signer.keyid] or dsse.encode(envelope) != data:
        raise ProofError("the manifest was written anew")


def _signers(trust: Trust, size: int, root: PublicKey | None) -> list[PublicKey]:
    """Return the keys whose signature on a manifest counts."""
    named = [key.public for key in trust.keys.values() if key.role in ("root", "log") and key.trusted_at(size - 1)]
    return [*named, root] if root is not None else named


def _read(folder: Path, name: str) -> bytes:
    try:
        return disk.read(folder / name, _SMALL, regular=True)
    except OSError as error:
        raise FormatError(f"not a whole archive: {name} cannot be read ({error.strerror})", path=str(folder)) from error


def _manifest(payload: bytes) -> ArchiveManifest:
    value = canonical.loads(payload)
    if not isinstance(value, dict) or value.get("v") != 1 or set(value) != _FIELDS:
        raise FormatError(f"{MANIFEST}: not of this version")
    what = value["what"]
    if not isinstance(what, str) or archives.TABLES.get(what) != value["table"]:
        raise FormatError(f"{MANIFEST}: not an archive of {' or '.join(sorted(archives.TABLES))}")
    counts = [value["count"], value["size"]]
    if not all(type(each) is int and each > 0 for each in counts) or value["count"] > MOST:
        raise FormatError(f"{MANIFEST}: not 1 to {MOST} records")
    files = value["files"]
    if not isinstance(files, dict) or set(files) != {*FILES}:
        raise FormatError(f"{MANIFEST}: not the files of an archive")
    entries = {name: _file(name, each) for name, each in files.items()}
    texts = [value[name] for name in ("month", "origin", "made_at")]
    if not all(isinstance(each, str) for each in texts):
        raise FormatError(f"{MANIFEST}: a field is of another type")
    month_bounds(value["month"])
    table = kernel_tables.LOGGED[archives.TABLES[what]]
    return ArchiveManifest(what, table, value["month"], value["count"], value["size"], value["origin"], entries)


def _file(name: str, value: Any) -> tuple[str, int]:
    if (
        not isinstance(value, dict)
        or set(value) != {"sha256", "bytes"}
        or not isinstance(value["sha256"], str)
        or type(value["bytes"]) is not int
    ):
        raise FormatError(f"{MANIFEST}: {name} is not described as it must be")
    return value["sha256"], value["bytes"]


def _check_files(folder: Path, manifest: ArchiveManifest) -> None:
    for name, (digest, size) in manifest.files.items():
        if file_digest(folder / name) != (digest, size):
            raise ProofError(f"{name} is not the file that the manifest names", file=name)


def file_digest(path: Path) -> tuple[str, int]:
    """Return hash and length of a file, read in pieces; FormatError where it cannot be read."""
    digest = sha256()
    size = 0
    try:
        with disk.open_file(path) as file:
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
                size += len(chunk)
    except OSError as error:
        raise FormatError(f"not a whole archive: {path.name} cannot be read ({error.strerror})") from error
    return digest.hexdigest(), size


def _check_records(folder: Path, manifest: ArchiveManifest, head: SignedCheckpoint) -> None:
    by_index: dict[int, bytes] = {}
    handles: set[str] = set()
    with disk.open_file(folder / RECORDS) as file:
        for index, handle, digest in _records(file, manifest):
            if len(by_index) == manifest.count:
                raise ProofError("the archive has more records than its manifest says")
            if index in by_index or handle in handles:
                raise ProofError("a record stands in the archive twice", log_index=index)
            by_index[index] = digest
            handles.add(handle)
    if len(by_index) != manifest.count:
        raise ProofError(f"the archive has {len(by_index)} records, and {manifest.count} are said to be in it")
    indexes = sorted(by_index)
    hashes = _hashes(folder, manifest)
    proven = [by_index[index] for index in indexes]
    merkle.verify_many(proven, indexes, head.checkpoint.size, hashes, head.checkpoint.root)


def _hashes(folder: Path, manifest: ArchiveManifest) -> Sequence[bytes]:
    _, size = manifest.files[PROOF]
    # For each record at most one hash for each level of the tree.
    if size % _HASH or size > manifest.count * 64 * _HASH:
        raise FormatError(f"{PROOF}: not the hashes of so many records")
    data = disk.read(folder / PROOF, size, regular=True)
    return [data[at : at + _HASH] for at in range(0, len(data), _HASH)]


def _records(file: BinaryIO, manifest: ArchiveManifest) -> Iterator[tuple[int, str, bytes]]:
    """Yield of each record the place of its entry, its handle, and the hash of the entry, once it was checked."""
    start, end = month_bounds(manifest.month)
    table = manifest.table
    at_of = table.columns.index("created_at")
    for group in parquet_reader.read(file, columns(table)):
        for index, text, salt, *cells in group:
            handle = _check_record(table, text, salt, cells)
            at = cells[at_of]
            if at is None or not start <= at < end:
                raise ProofError(f"a record is not of {manifest.month}", log_index=index)
            yield index, handle, merkle.leaf_hash(text.encode())


def _check_record(table: LoggedTable, text: str, salt: str, cells: Sequence[Any]) -> str:
    """Return the handle of a record whose content and salt give what its entry commits to."""
    entry = canonical.loads(text.encode())
    if not isinstance(entry, dict) or not leaves.is_filed(text, entry.get("id"), entry.get("ver")):
        raise FormatError("an entry of the archive is not one of a log")
    projection = table.projections.get(str(entry.get("p")))
    if projection is None or entry.get("t") not in table.kinds:
        raise ProofError("an entry is of another table")
    try:
        digest = projection.commit(bytes.fromhex(salt), dict(zip(table.columns, cells, strict=True)))
    except ValueError as error:
        raise FormatError("a salt of the archive is not one") from error
    if digest != entry.get("h"):
        raise ProofError("a record does not match its entry: it was edited", leaf_id=str(entry["id"]))
    return str(entry["id"])
