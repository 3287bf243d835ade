"""CARv1: content-addressed blocks in one file.

- The header is strict DAG-CBOR `{roots: [links], version: 1}` and nothing else; CARv2 is refused by name.
- Every section is a varint length, a CID and the block; every block must hash to its CID (ProofError).
- Header, section and whole have limits, checked before anything is read into memory.
- A repeated section is tolerated on reading (its bytes are the same, its hash was checked) and counts toward the
  limits; the writer writes each block once, where it first comes, so the same input gives the same bytes.
- CARv1 has no trailer: a file cut between two sections reads as a shorter file. Whoever needs all blocks must
  walk from the roots; a cut within a section is refused.
- The roots need not be among the blocks, and there may be none (a delta).
"""

import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, TypeAlias

from holdproof.crypto import cid as cids
from holdproof.crypto import dagcbor, varint
from holdproof.crypto.cid import CID
from holdproof.errors import FormatError

Block: TypeAlias = tuple[CID, bytes]


@dataclass(frozen=True, slots=True)
class Limits:
    """What a reader accepts, in bytes."""

    header: int = 2**20
    section: int = 2**21
    total: int = 2**36


DEFAULT_LIMITS = Limits()

_CBOR = cids.CBOR_PREFIX
# Two bytes of length and the 36 bytes of a dag-cbor CID with SHA-256.
_SECTION = struct.Struct("<H36s").unpack_from
_SECTION_LENGTH = 38


class Blocks(Mapping[CID, bytes]):
    """Blocks by their CIDs, in their order; `raw` has them by the bytes of their CIDs, for whoever goes through all."""

    def __init__(self, raw: dict[bytes, bytes]) -> None:
        self.raw = raw

    def __getitem__(self, cid: CID) -> bytes:
        return self.raw[cid.raw]

    def get(self, cid: CID, default: Any = None) -> Any:
        """Return the block, or what is given for none; without the detour of an exception."""
        return self.raw.get(cid.raw, default)

    def __contains__(self, cid: object) -> bool:
        return isinstance(cid, CID) and cid.raw in self.raw

    def __iter__(self) -> Iterator[CID]:
        return cids.trusted(self.raw)

    def __len__(self) -> int:
        return len(self.raw)


@dataclass(frozen=True, slots=True)
class Archive:
    """A CAR held in memory: its roots and its blocks in their order."""

    roots: tuple[CID, ...]
    blocks: Blocks


def split(section: bytes) -> Block:
    """CID and verified block of a section."""
    cid, end = cids.parse_at(section, 0)
    data = section[end:]
    cids.verify(cid, data)
    return cid, data


def load(data: bytes, limits: Limits = DEFAULT_LIMITS) -> Archive:
    """Return a whole CAR in memory, verified; the fastest way for what fits."""
    if len(data) > limits.total:
        raise FormatError("CAR: larger than the limit", limit=limits.total)
    if not data:
        raise FormatError("CAR: empty")
    header, at = _slice(data, 0, limits.header)
    roots = _parse_header(header)
    blocks: dict[bytes, bytes] = {}
    size = len(data)
    limit = limits.section
    while at < size:
        # Nearly all sections have a length of two bytes and the CID of a dag-cbor block: nothing is called for them.
        head, raw = _SECTION(data, at) if at + _SECTION_LENGTH <= size else (0, b"")
        start = at + _SECTION_LENGTH
        end = at + 2 + (head & 0x7F | head >> 1 & 0x3F80)
        if head & 0x8080 == 0x80 and head > 0xFF and start <= end <= size and end - at - 2 <= limit:
            block = data[start:end]
            if _CBOR + sha256(block).digest() == raw:
                blocks[raw] = block
                at = end
                continue
        start, end = _bounds(data, at, limit)
        (raw,), blocks[raw] = split(data[start:end])
        at = end
    return Archive(roots, Blocks(blocks))


def write(roots: Iterable[CID], blocks: Iterable[Block]) -> Iterator[bytes]:
    """Yield the pieces of a CAR, header first, each block once. Blocks are not hashed again."""
    header = dagcbor.encode({"roots": list(roots), "version": 1})
    yield varint.encode(len(header)) + header
    written: set[CID] = set()
    for cid, data in blocks:
        if cid not in written:
            written.add(cid)
            yield varint.encode(len(cid.raw) + len(data)) + cid.raw + data


def dump(roots: Iterable[CID], blocks: Iterable[Block]) -> bytes:
    """Return a whole CAR in memory."""
    return b"".join(write(roots, blocks))


def _slice(data: bytes, at: int, limit: int) -> tuple[bytes, int]:
    start, end = _bounds(data, at, limit)
    return data[start:end], end


def _bounds(data: bytes, at: int, limit: int) -> tuple[int, int]:
    """Return where the section at an offset begins and ends."""
    length, start = varint.decode(data, at)
    end = start + length
    # Checked before slicing: a hostile length must not cost memory.
    if length == 0 or length > limit:
        raise FormatError("CAR: a section of no length or over the limit", at=at, size=length, limit=limit)
    if end > len(data):
        raise FormatError("CAR: cut short within a section", at=at)
    return start, end


def _parse_header(data: bytes) -> tuple[CID, ...]:
    header = dagcbor.decode(data, max_size=len(data))
    version = header.get("version") if isinstance(header, dict) else None
    if not isinstance(header, dict) or type(version) is not int or version != 1:
        raise FormatError("CAR: the header is not of version 1", version=version)
    roots = header.get("roots")
    if header.keys() != {"roots", "version"} or not isinstance(roots, list):
        raise FormatError("CAR: a header without roots, or with more than that")
    links = tuple(root for root in roots if isinstance(root, CID))
    if len(links) != len(roots):
        raise FormatError("CAR: a root that is not a link")
    return links
