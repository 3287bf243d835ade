"""CARv1: content-addressed blocks in one file.

- The header is strict DAG-CBOR `{roots: [links], version: 1}` and nothing else; CARv2 is refused by name.
- Every section is a varint length, a CID and the block; every block must hash to its CID (ProofError).
- Header, section and file have size limits, checked before anything is read into memory.
- A repeated section is accepted on reading (same CID, same verified bytes) and counts toward the limits; the writer
  writes each block once, at its first occurrence, so the same input gives the same bytes.
- CARv1 has no trailer: a file cut between two sections reads as a shorter file. Callers that need all blocks must
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
    """The largest sizes a reader accepts, in bytes."""

    header: int = 2**20
    section: int = 2**21
    total: int = 2**36


DEFAULT_LIMITS = Limits()

_CBOR = cids.CBOR_PREFIX
# The usual section: a varint of two bytes, a CID of 36, then the block.
_SECTION = struct.Struct("<H36s").unpack_from
_SECTION_LENGTH = 38


class BlockMap(Mapping[CID, bytes]):
    """Blocks by CID, in file order.

    `raw` is the same mapping keyed by the bytes of each CID, for loops over all blocks that need no CID objects.
    """

    def __init__(self, raw: dict[bytes, bytes]) -> None:
        self.raw = raw

    def __getitem__(self, cid: CID) -> bytes:
        return self.raw[cid.raw]

    # Mapping.get would call __getitem__ and catch its KeyError; trees look up many CIDs that are absent.
    def get(self, cid: CID, default: Any = None) -> Any:
        """Return the block of a CID, or `default` where it is absent."""
        return self.raw.get(cid.raw, default)

    def __contains__(self, cid: object) -> bool:
        return isinstance(cid, CID) and cid.raw in self.raw

    def __iter__(self) -> Iterator[CID]:
        return cids.trusted(self.raw)

    def __len__(self) -> int:
        return len(self.raw)


@dataclass(frozen=True, slots=True)
class CarFile:
    """A CAR file in memory: its roots, and its blocks in file order."""

    roots: tuple[CID, ...]
    blocks: BlockMap


def load(data: bytes, limits: Limits = DEFAULT_LIMITS) -> CarFile:
    """Parse a whole CAR file and verify every block.

    Raises FormatError where the file is malformed or over a limit, ProofError where a block does not match its CID.
    """
    if len(data) > limits.total:
        raise FormatError("CAR: larger than the limit", limit=limits.total)
    if not data:
        raise FormatError("CAR: empty")
    header_start, at = _bounds(data, 0, limits.header)
    roots = _parse_header(data[header_start:at])
    blocks: dict[bytes, bytes] = {}
    size = len(data)
    limit = limits.section
    while at < size:
        # Nearly all sections have a length of two bytes and the CID of a dag-cbor block. They are parsed inline,
        # without a Python call, because an image has hundreds of thousands of them.
        head, raw = _SECTION(data, at) if at + _SECTION_LENGTH <= size else (0, b"")
        start = at + _SECTION_LENGTH
        # Two little-endian bytes: the low seven bits of each, the second byte's moved down over the continuation bit.
        end = at + 2 + (head & 0x7F | head >> 1 & 0x3F80)
        # The first byte must continue, the second must not and must not be zero (that would be a padded varint).
        if head & 0x8080 == 0x80 and head > 0xFF and start <= end <= size and end - at - 2 <= limit:
            block = data[start:end]
            if _CBOR + sha256(block).digest() == raw:
                blocks[raw] = block
                at = end
                continue
        # Everything else, damaged sections included, takes the general way, which raises the precise error.
        start, end = _bounds(data, at, limit)
        (raw,), block = _parse_section(data[start:end])
        blocks[raw] = block
        at = end
    return CarFile(roots, BlockMap(blocks))


def write(roots: Iterable[CID], blocks: Iterable[Block]) -> Iterator[bytes]:
    """Yield the pieces of a CAR file, header first, each block once. The blocks are not hashed again."""
    header = dagcbor.encode({"roots": list(roots), "version": 1})
    yield varint.encode(len(header)) + header
    written: set[CID] = set()
    for cid, data in blocks:
        if cid not in written:
            written.add(cid)
            yield varint.encode(len(cid.raw) + len(data)) + cid.raw + data


def dump(roots: Iterable[CID], blocks: Iterable[Block]) -> bytes:
    """Return a whole CAR file."""
    return b"".join(write(roots, blocks))


def _parse_section(section: bytes) -> Block:
    """Split a section into its CID and its block, and verify the block."""
    cid, end = cids.parse_at(section, 0)
    data = section[end:]
    cids.verify(cid, data)
    return cid, data


def _bounds(data: bytes, at: int, limit: int) -> tuple[int, int]:
    """Return where the content of the section at an offset starts and ends."""
    length, start = varint.decode(data, at)
    end = start + length
    if length == 0 or length > limit:
        raise FormatError("CAR: a section of no length or over the limit", at=at, size=length, limit=limit)
    if end > len(data):
        raise FormatError("CAR: cut short within a section", at=at)
    return start, end


def _parse_header(data: bytes) -> tuple[CID, ...]:
    """Return the roots named by a header."""
    header = dagcbor.decode(data, max_size=len(data))
    version = header.get("version") if isinstance(header, dict) else None
    # type() and not isinstance(): True is an int, and equal to 1.
    if not isinstance(header, dict) or type(version) is not int or version != 1:
        raise FormatError("CAR: the header is not of version 1", version=version)
    roots = header.get("roots")
    if header.keys() != {"roots", "version"} or not isinstance(roots, list):
        raise FormatError("CAR: a header without roots, or with more than that")
    links = tuple(root for root in roots if isinstance(root, CID))
    if len(links) != len(roots):
        raise FormatError("CAR: a root that is not a link")
    return links
