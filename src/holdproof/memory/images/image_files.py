"""The files of an image: a base, deltas after it, a signed manifest, and an index that nobody has to believe.

    3lbh5f7kqxc22.base.car     all commits, trees and records up to that rev (CARv1)
    3lbh6a2mmpk22.delta.car    what came after
    3lbh6a2mmpk22.image.json   the manifest: which files, their hashes, the head; a DSSE envelope of the memory key
    *.car.idx                  where each block of a CAR lies: a cache, every block it leads to is hashed

Rules:
- A file is written beside its place, synced, renamed, and its folder synced: it is there whole, or not at all.
- The manifest is written last, so that it never names a file that is not there.
- What none of the last images names is removed; what is damaged is renamed `.corrupt-<time>` and never removed. What
  was written last always stays, whatever comes after it by name; images of others are left alone.
- Nothing but a regular file is read, and nothing of another length than its manifest says.
"""

import errno
import mmap
import os
import re
import struct
from collections.abc import Iterable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO, Final

from holdproof import folders
from holdproof.config import Paths
from holdproof.content import disk
from holdproof.crypto import canonical, car, didkey, dsse, varint
from holdproof.crypto import cid as cids
from holdproof.crypto.cid import CID
from holdproof.crypto.keys import PublicKey, Signer
from holdproof.errors import FormatError, ImageCorruptError, NotFoundError, ProofError, UnknownKeyError

PAYLOAD_TYPE: Final = "application/vnd.holdproof.image+json"
MANIFEST: Final = ".image.json"
_MOST_MANIFEST: Final = 1 << 22
_NAME: Final = re.compile(r"[234567a-z]{13}\.(base|delta)\.car")
_OURS: Final = re.compile(r"\.?[234567a-z]{13}\.(?:(?:base|delta)\.car(?:\.idx)?|image\.json)(?:\.new)?")
_ENTRY: Final = struct.Struct(">36sQI")
_MAGIC: Final = b"holdproof-index/1\n"


@dataclass(frozen=True, slots=True)
class Part:
    """One CAR of an image."""

    name: str
    size: int
    sha256: str
    head: str


@dataclass(frozen=True, slots=True)
class ImageManifest:
    """What an image is made of, and what it holds."""

    store_id: str
    ns: str
    head: str
    rev: str
    root: str
    did: str
    made_at: str
    parts: tuple[Part, ...]
    since: str = ""
    """The commit before the first one here, where retention has pruned it; empty where nothing came before."""

    @property
    def name(self) -> str:
        """The name of its file."""
        return self.rev + MANIFEST


# --- the manifest ------------------------------------------------------------------------------------------------


def encode(manifest: ImageManifest, signer: Signer) -> bytes:
    """Return the signed manifest, as it is written."""
    fields: dict[str, Any] = {name: getattr(manifest, name) for name in ImageManifest.__slots__}
    # Absent when empty, so that images of stores without pruning stay as they always were.
    if not manifest.since:
        del fields["since"]
    fields["parts"] = [{name: getattr(part, name) for name in Part.__slots__} for part in manifest.parts]
    payload = canonical.dumps({"v": 1, "t": "holdproof-image", **fields})
    return dsse.encode(dsse.sign(PAYLOAD_TYPE, payload, signer))


def parse(data: bytes) -> tuple[ImageManifest, dsse.Envelope]:
    """Return a manifest from untrusted bytes; its signature is not verified yet."""
    envelope = dsse.parse(data)
    payload = canonical.loads(envelope.payload)
    if not isinstance(payload, dict) or (payload.get("v"), payload.get("t")) != (1, "holdproof-image"):
        raise FormatError("not the manifest of an image, or of an unknown version")
    rest: dict[str, Any] = {name: value for name, value in payload.items() if name not in ("v", "t", "parts")}
    listed: Any = payload.get("parts")
    try:
        manifest = ImageManifest(**rest, parts=tuple(Part(**part) for part in listed))
    except TypeError as error:
        raise FormatError(f"the manifest lacks a field or has one too many: {error}") from error
    texts = [value for name, value in rest.items()] + [
        text for part in manifest.parts for text in (part.name, part.head)
    ]
    if not all(isinstance(text, str) for text in texts) or not manifest.parts:
        raise FormatError("the manifest has a field of the wrong kind, or no files")
    for part in manifest.parts:
        if not _NAME.fullmatch(part.name) or type(part.size) is not int or not canonical.is_sha256_hex(part.sha256):
            raise FormatError("the manifest names a file that no image has", name=str(part.name)[:100])
    return manifest, envelope


def verify(manifest: ImageManifest, envelope: dsse.Envelope, trusted: Iterable[PublicKey]) -> None:
    """Return if the key it names signed it (else ProofError) and is one of these (else UnknownKeyError)."""
    key = didkey.parse(manifest.did)
    # The signature first: an unknown key is reported only for a manifest that is intact.
    dsse.verify(envelope, [key], payload_type=PAYLOAD_TYPE)
    if key not in trusted:
        raise UnknownKeyError(
            f"the image is signed by {manifest.did}, which is no memory key of this store: name it if you trust it",
            did=manifest.did,
            keyid=key.keyid,
        )


def manifests(folder: Path) -> list[Path]:
    """Return the manifests of a folder, the newest first."""
    if not folder.is_dir():
        return []
    return sorted((path for path in folder.iterdir() if _is_manifest(path.name)), reverse=True)


def _is_manifest(name: str) -> bool:
    return name.endswith(MANIFEST) and bool(_OURS.fullmatch(name)) and not name.startswith(".")


def read_manifest(path: Path) -> tuple[ImageManifest, dsse.Envelope]:
    """Return a manifest out of its file."""
    try:
        return parse(disk.read(path, _MOST_MANIFEST, regular=True))
    except FileNotFoundError as error:
        raise NotFoundError(f"there is no image {path}", listed_by="image list", path=str(path)) from error
    except OSError as error:
        if error.errno in (errno.EINVAL, errno.EFBIG, errno.EISDIR, errno.ENXIO):
            raise ImageCorruptError(f"{path} is no manifest: {error.strerror}", path=str(path)) from error
        raise


def check_name(path: Path, manifest: ImageManifest) -> None:
    """Return if a manifest has its own name: an older image must not pass for the newest one."""
    if path.name != manifest.name:
        raise ImageCorruptError(f"{path} is the manifest of {manifest.name}", path=str(path), own=manifest.name)


# --- CARs --------------------------------------------------------------------------------------------------------


class Writer:
    """A CAR on its way to the disk, with its index; durable and in its place once `finish` returns."""

    def __init__(self, path: Path, root: CID) -> None:
        self.path = path
        self._aside = path.with_name(f".{path.name}.new")
        folders.make(path.parent)
        handle = os.open(self._aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        self._file = os.fdopen(handle, "wb", buffering=1 << 20)
        self._digest = sha256()
        self._at = 0
        self._places: dict[bytes, tuple[int, int]] = {}
        self._write(b"".join(car.write([root], [])))

    def add(self, cid: CID, data: bytes) -> None:
        """Write a block, once."""
        # Chains share blocks: the stream may name the same one again.
        if cid.raw in self._places:
            return
        head = varint.encode(len(cid.raw) + len(data)) + cid.raw
        self._places[cid.raw] = (self._at + len(head), len(data))
        self._write(head + data)

    def _write(self, data: bytes) -> None:
        self._file.write(data)
        self._digest.update(data)
        self._at += len(data)

    def finish(self, head: CID) -> Part:
        """Make it durable; what it is."""
        with self._file as file:
            file.flush()
            os.fsync(file.fileno())
        # The name appears only after the content is durable, and the folder's entry is made durable too.
        os.replace(self._aside, self.path)
        folders.sync(self.path.parent)
        _write_index(self.path, self._places, self._at)
        return Part(self.path.name, self._at, self._digest.hexdigest(), str(head))

    def abandon(self) -> None:
        """Leave nothing behind."""
        try:
            self._file.close()  # on a full disk that fails as well
        finally:
            with suppress(FileNotFoundError):
                self._aside.unlink()


def _write_index(path: Path, places: Mapping[bytes, tuple[int, int]], size: int) -> None:
    rows = [_ENTRY.pack(raw, at, length) for raw, (at, length) in sorted(places.items())]
    disk.write(_index_path(path), b"".join([_MAGIC, size.to_bytes(8, "big"), *rows]))


def _index_path(path: Path) -> Path:
    return path.with_name(path.name + ".idx")


def read_part(folder: Path, part: Part, limits: car.Limits = car.DEFAULT_LIMITS) -> car.BlockMap:
    """Return all blocks of a CAR, each hashed, if the file is the one the manifest names."""
    path = folder / part.name
    with _open(path, part) as file:
        data = file.read(part.size + 1)
    if len(data) != part.size or sha256(data).hexdigest() != part.sha256:
        raise ImageCorruptError(f"{path} is not the file its manifest names: damaged or cut", path=str(path))
    return car.load(data, limits).blocks


def _open(path: Path, part: Part) -> BinaryIO:
    """Return a CAR of the length that its manifest says; what is in it is another matter."""
    try:
        file = disk.open_file(path)
    except FileNotFoundError as error:
        raise _lost(path) from error
    except OSError as error:
        if error.errno in (errno.EINVAL, errno.ENXIO):
            raise ImageCorruptError(f"{path} is no file", path=str(path)) from error
        raise
    if os.fstat(file.fileno()).st_size != part.size:
        file.close()
        raise ImageCorruptError(f"{path} has another length than its manifest says", path=str(path))
    return file


def _lost(path: Path) -> ImageCorruptError:
    return ImageCorruptError(f"{path} is gone, which its manifest names", path=str(path))


class LazyBlocks:
    """The blocks of an image where they lie: found by the index, hashed when they are read."""

    def __init__(self, folder: Path, manifest: ImageManifest) -> None:
        self._stack = ExitStack()
        try:
            self._parts = [
                self._stack.enter_context(_Mapped(folder / part.name, part)) for part in reversed(manifest.parts)
            ]
        except BaseException:
            self._stack.close()
            raise

    def __call__(self, cid: CID) -> bytes | None:
        """Return a block, hashed; None where no part of the image has it, whatever an index says."""
        for part in self._parts:
            data = part.find(cid)
            if data is not None:
                return data
        for part in self._parts:
            data = part.find_anew(cid)
            if data is not None:
                return data
        return None

    def close(self) -> None:
        """Let the files go; may be called twice."""
        self._stack.close()


class _Mapped:
    """A CAR and its index, mapped into memory; without a good index the CAR is read through once."""

    def __init__(self, path: Path, part: Part) -> None:
        self._path = path
        with _open(path, part) as file:
            self._data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._size = part.size
        self._use(self._load_index(part.size))

    def _use(self, index: "mmap.mmap | bytes") -> None:
        self._index = index
        self._count = (len(index) - len(_MAGIC) - 8) // _ENTRY.size

    def __enter__(self) -> "_Mapped":
        return self

    def __exit__(self, *_: object) -> None:
        self._data.close()
        if isinstance(self._index, mmap.mmap):
            self._index.close()

    def _load_index(self, size: int) -> "mmap.mmap | bytes":
        path = _index_path(self._path)
        try:
            with disk.open_file(path) as file:
                index = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError):
            return self._scan(size)
        prefix = _MAGIC + size.to_bytes(8, "big")
        if index[: len(prefix)] != prefix or (len(index) - len(prefix)) % _ENTRY.size:
            index.close()
            return self._scan(size)
        return index

    def _scan(self, size: int) -> bytes:
        """Return the index of a CAR whose own is missing or no index."""
        places: dict[bytes, tuple[int, int]] = {}
        at = _after(self._data, 0)
        while at < size:
            length, start = varint.decode(self._data[at : at + 10])
            cid, after = cids.parse_at(self._data[at + start : at + start + 100], 0)
            places[cid.raw] = (at + start + after, length - after)
            at += start + length
        rows = [_ENTRY.pack(raw, *place) for raw, place in sorted(places.items()) if len(raw) == 36]
        return b"".join([_MAGIC, size.to_bytes(8, "big"), *rows])

    def find(self, cid: CID) -> bytes | None:
        """Return a block by the index; None where that leads nowhere, or to something else."""
        place = self._place(cid)
        if place is None:
            return None
        data = self._data[place[0] : place[0] + place[1]]
        try:
            cids.verify(cid, data)
        except ProofError:
            if isinstance(self._index, bytes):  # its own, so it is the block that is damaged
                raise
            return None
        return data

    def find_anew(self, cid: CID) -> bytes | None:
        """Return a block by an index of our own, where the one beside the file did not help."""
        if isinstance(self._index, bytes):
            return None
        self._index.close()
        self._use(self._scan(self._size))
        return self.find(cid)

    def _place(self, cid: CID) -> tuple[int, int] | None:
        # The index is sorted by CID: a binary search in the mapped file, nothing is loaded.
        low = 0
        high = self._count
        first = len(_MAGIC) + 8
        while low < high:
            middle = (low + high) // 2
            raw, at, length = _ENTRY.unpack_from(self._index, first + middle * _ENTRY.size)
            if raw == cid.raw:
                return at, length
            if raw < cid.raw:
                low = middle + 1
            else:
                high = middle
        return None


def _after(data: "mmap.mmap", at: int) -> int:
    length, end = varint.decode(data[at : at + 10])
    return at + end + length


# --- the folder --------------------------------------------------------------------------------------------------


def write_manifest(folder: Path, manifest: ImageManifest, signer: Signer) -> Path:
    """Write the signed manifest, durably, as the last file of an image."""
    path = folder / manifest.name
    disk.write(path, encode(manifest, signer))
    return path


def tidy(folder: Path, keep: int, newest: ImageManifest) -> list[str]:
    """Remove what belongs to none of the last images of this store and namespace; the names of what went."""
    named = _names(newest)
    for path in manifests(folder):
        if path.name == newest.name:
            continue
        try:
            manifest, _ = read_manifest(path)
            check_name(path, manifest)
        except (FormatError, ImageCorruptError, NotFoundError):  # damaged: whoever loads it puts it aside
            named.add(path.name)
            continue
        ours = (manifest.store_id, manifest.ns) == (newest.store_id, newest.ns)
        keep -= ours
        if keep > 0 or not ours:
            named |= _names(manifest)
    unused = [path for path in folder.iterdir() if _OURS.fullmatch(path.name) and path.name not in named]
    for path in sorted(unused, key=lambda path: not path.name.endswith(MANIFEST)):  # a manifest goes before its files
        with suppress(FileNotFoundError):
            path.unlink()
    folders.sync(folder)
    return [path.name for path in unused]


def _names(manifest: ImageManifest) -> set[str]:
    """Return the files of an image."""
    return {manifest.name, *(name for part in manifest.parts for name in (part.name, part.name + ".idx"))}


def put_aside(path: Path, at: str) -> Path:
    """Rename a damaged file, so that nobody takes it for a good one; nothing is removed."""
    target = path.with_name(f"{path.name}.corrupt-{re.sub('[^0-9TZ]', '', at)}")
    with suppress(FileNotFoundError):
        os.replace(path, target)
        folders.sync(path.parent)
    return target


def warnings(paths: Paths) -> list[str]:
    """Return what is degraded: images that were put aside and not looked after yet."""
    if not paths.images.is_dir():
        return []
    corrupt = sorted(path for path in paths.images.rglob(f"*{MANIFEST}.corrupt-*") if path.is_file())
    return [f"an image is damaged and was put aside: {path}; look at it, then remove it" for path in corrupt]
