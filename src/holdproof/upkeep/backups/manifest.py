"""The manifest of a backup: canonical JSON over every file, and the log key's signature over the manifest.

`manifest.json` is JCS; `manifest.sig` is a C2SP signed note of three lines (`holdproof-backup/1`, the store's id, the
SHA-256 of manifest.json in base64) under the name `holdproof-backup/<store id>`. The log key signs, because it is
available wherever a store is open; the name enters the key id and the second line is no number, so that neither can
this note pass for a log head nor a head for it.

Rules:
- A backup with a file missing, added, or of another hash or length than the manifest says is refused.
- Names are relative, without `..`, and in the folders that a backup has.
- A signature counts only under a key that the caller trusts; which ones those are is not decided here.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from pathlib import Path, PurePosixPath
from typing import Any, Final, cast

from holdproof.content import disk
from holdproof.crypto import b64, canonical, note
from holdproof.crypto.keys import PublicKey, Signer
from holdproof.crypto.note import SignedNote
from holdproof.crypto.vkey import ED25519, VerifierKey
from holdproof.errors import FormatError, NotFoundError, ProofError
from holdproof.model.backup import Entry, Manifest
from holdproof.model.times import to_micros

MANIFEST: Final = "manifest.json"
SIGNATURE: Final = "manifest.sig"
PLACES: Final = (
    *("kernel.db", "membrane.db", "telemetry.db", "kernel", "membrane", "telemetry"),
    *("dboms", "blobs", "images", "config", "keys"),
)
MOST_BYTES: Final = 256 << 20
_SPACES: Final = {"kernel", "membrane", "telemetry"}
_TABLE: Final = re.compile("[a-z_][a-z0-9_]*")
_TEXTS = ("store_id", "created_at", "backend", "origin", "root", "head")


def encode(manifest: Manifest) -> bytes:
    """Return the manifest as it is hashed and stored."""
    return canonical.dumps({"v": 1, "t": "holdproof-backup", **asdict(manifest)})


def parse(data: bytes) -> Manifest:
    """Parse a manifest from untrusted bytes; FormatError where anything is missing, unexpected or too much."""
    tree = canonical.loads(data)
    if not isinstance(tree, dict) or (tree.get("v"), tree.get("t")) != (1, "holdproof-backup"):
        raise FormatError("not the manifest of a backup, or of an unknown version")
    try:
        rest: dict[str, Any] = {key: value for key, value in tree.items() if key not in {"v", "t", "files"}}
        listed = cast("Mapping[str, Mapping[str, Any]]", tree["files"])
        manifest = Manifest(**rest, files={name: Entry(**entry) for name, entry in listed.items()})
    except (TypeError, KeyError, AttributeError) as error:
        raise FormatError(f"the manifest lacks a field or has one too many: {error}") from error
    # bool is an int to isinstance, and True would pass for a size.
    if type(rest.get("size")) is not int or not all(isinstance(rest.get(name), str) for name in _TEXTS):
        raise FormatError("the manifest has a field of the wrong kind")
    try:
        to_micros(manifest.created_at)
    except ValueError as error:
        raise FormatError("the manifest says no time at which the backup was made") from error
    if not _is_by_space(manifest.tables, _is_table_list) or not all(
        _is_by_space(each, lambda value: isinstance(value, dict)) for each in (manifest.migrations, manifest.sequences)
    ):
        raise FormatError("the manifest's tables, sequences or migrations are not as a backup lists them")
    if not _is_texts(manifest.outside):
        raise FormatError("the manifest's list of what is outside is not one of texts")
    for name, entry in manifest.files.items():
        _check_name(name)
        if not canonical.is_sha256_hex(entry.sha256) or type(entry.size) is not int:
            raise FormatError("the manifest has no hash or size for a file", file=name)
    return manifest


def _is_by_space(value: object, fits: Callable[[object], bool]) -> bool:
    return isinstance(value, dict) and value.keys() <= _SPACES and all(map(fits, value.values()))


def _is_table_list(value: object) -> bool:
    """Whether a value is a mapping of tables to columns, each a name and a type; a table's name is one of a file."""
    if not isinstance(value, dict) or not all(map(_TABLE.fullmatch, value)):
        return False
    return all(isinstance(columns, list) and all(map(_is_column, columns)) for columns in value.values())


def _is_column(value: object) -> bool:
    return _is_texts(value) and len(cast("list[str]", value)) == 2


def _is_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def _check_name(name: str) -> None:
    path = PurePosixPath(name)
    # PurePosixPath normalises; a name that changes is no plain relative path.
    plain = str(path) == name and "\0" not in name and ".." not in path.parts
    if not plain or not path.parts or path.parts[0] not in PLACES:
        raise FormatError("the manifest names a file outside the backup", file=name[:200])


def sign(manifest: bytes, store_id: str, signer: Signer) -> bytes:
    """Return the content of the signature file."""
    text = _text(manifest, store_id)
    return note.encode(SignedNote(text, (note.sign(text, _name(store_id), signer),)))


def verify(manifest: bytes, store_id: str, signature: bytes, keys: Iterable[PublicKey]) -> PublicKey:
    """Return the key that signed; ProofError if none of these did, or if the note is for another manifest."""
    signed = note.parse(signature)
    if signed.text != _text(manifest, store_id):
        raise ProofError("the signature is for another manifest", store_id=store_id)
    verifiers = {VerifierKey(_name(store_id), ED25519, key): key for key in keys if key.alg == "ed25519"}
    return verifiers[note.verify(signed, verifiers)[0].key]


def read(folder: Path) -> tuple[Manifest, bytes, bytes]:
    """Read the manifest of a backup, its exact bytes, and its signature."""
    with disk.translated(folder):
        try:
            data = disk.read(folder / MANIFEST, MOST_BYTES, regular=True)
            signature = disk.read(folder / SIGNATURE, note.MAX_BYTES, regular=True)
        except FileNotFoundError:
            raise NotFoundError(f"{folder} is no complete backup: no manifest", path=str(folder)) from None
    return parse(data), data, signature


def check_listing(folder: Path, manifest: Manifest) -> None:
    """Refuse a backup that has a file too many or too few, one that is no file, or one of another length.

    So nobody waits for a pipe, or copies what has no end.
    """
    check_names({path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir()}, manifest)
    for name, entry in manifest.files.items():
        path = folder / name
        if not path.is_file():
            raise FormatError(f"{name} of the backup is no file", file=name)
        check_file(name, Entry(entry.sha256, path.stat().st_size), manifest)


def check_names(names: set[str], manifest: Manifest) -> None:
    """Refuse names of files that are not those of a backup."""
    # These two cannot list themselves.
    names -= {MANIFEST, SIGNATURE}
    if missing := sorted(manifest.files.keys() - names):
        raise FormatError(f"{missing[0]} is missing from the backup", file=missing[0], count=len(missing))
    if added := sorted(names - manifest.files.keys()):
        raise FormatError(f"{added[0]} is not in the backup's manifest", file=added[0], count=len(added))


def check_file(name: str, entry: Entry, manifest: Manifest) -> None:
    """Refuse a file whose hash or size is not the manifest's."""
    if entry != manifest.files[name]:
        raise FormatError(f"{name} is not as the backup's manifest says: it was changed or is damaged", file=name)


def _text(manifest: bytes, store_id: str) -> str:
    return f"holdproof-backup/1\n{store_id}\n{b64.encode(canonical.sha256(manifest))}\n"


def _name(store_id: str) -> str:
    return f"holdproof-backup/{store_id}"
