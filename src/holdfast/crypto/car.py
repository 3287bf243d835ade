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

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from io import BytesIO
from typing import Protocol, TypeAlias

from holdfast.crypto import cid as cids
from holdfast.crypto import dagcbor, varint
from holdfast.crypto.cid import CID
from holdfast.errors import FormatError, ProofError

Block: TypeAlias = tuple[CID, bytes]


class Source(Protocol):
    """A binary file, open for reading."""

    def read(self, size: int, /) -> bytes:
        """At most `size` bytes, none only at the end."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a reader accepts, in bytes."""

    header: int = 2**20
    section: int = 2**21
    total: int = 2**36


DEFAULT_LIMITS = Limits()

_PLAIN = (cids.CBOR_PREFIX, cids.RAW_PREFIX)
_PLAIN_LENGTH = cids.PLAIN_LENGTH


@dataclass(frozen=True, slots=True)
class Archive:
    """A CAR held in memory: its roots and its blocks in their order."""

    roots: tuple[CID, ...]
    blocks: dict[CID, bytes]


class Reader:
    """Reads a CAR front to back: the roots at once, then each block as it is asked for."""

    def __init__(self, source: bytes | Source, limits: Limits = DEFAULT_LIMITS) -> None:
        self._source: Source = BytesIO(source) if isinstance(source, bytes) else source
        self._limits = limits
        self._position = 0
        header = self._section(limits.header)
        if header is None:
            raise FormatError("CAR: empty")
        self.roots = _parse_header(header)

    def __iter__(self) -> Iterator[Block]:
        """The verified blocks that are left, in their order."""
        while (section := self._section(self._limits.section)) is not None:
            yield split(section)

    def _section(self, limit: int) -> bytes | None:
        """The next section without its length; None at the end of the file."""
        length = self._length()
        if length is None:
            return None
        if length > limit:
            raise FormatError("CAR: a section over the limit", at=self._position, size=length, limit=limit)
        return self._read(length)

    def _length(self) -> int | None:
        first = self._source.read(1)
        if not first:
            return None
        self._count(1)
        while first[-1] > 0x7F and len(first) < varint.MAX_BYTES:
            first += self._read(1)
        length, _ = varint.decode(first)
        if length == 0:
            raise FormatError("CAR: a section of no length", at=self._position)
        return length

    def _read(self, size: int) -> bytes:
        """Exactly so many bytes."""
        self._count(size)
        data = self._source.read(size)
        while len(data) < size:
            more = self._source.read(size - len(data))
            if not more:
                raise FormatError("CAR: cut short within a section", at=self._position)
            data += more
        return data

    def _count(self, size: int) -> None:
        self._position += size
        if self._position > self._limits.total:
            raise FormatError("CAR: larger than the limit", limit=self._limits.total)


def split(section: bytes) -> Block:
    """CID and verified block of a section."""
    cid, end = cids.parse_at(section, 0)
    data = section[end:]
    cids.verify(cid, data)
    return cid, data


def load(data: bytes, limits: Limits = DEFAULT_LIMITS) -> Archive:
    """A whole CAR in memory, verified; the fastest way for what fits."""
    if len(data) > limits.total:
        raise FormatError("CAR: larger than the limit", limit=limits.total)
    if not data:
        raise FormatError("CAR: empty")
    header, at = _slice(data, 0, limits.header)
    roots = _parse_header(header)
    raws: list[bytes] = []
    blocks: list[bytes] = []
    size, limit = len(data), limits.section
    while at < size:
        start, end = _bounds(data, at, limit)
        if end - start >= _PLAIN_LENGTH and data.startswith(_PLAIN, start):  # `split` without its calls: half the time
            raw, block = data[start : start + _PLAIN_LENGTH], data[start + _PLAIN_LENGTH : end]
            if sha256(block).digest() != raw[4:]:
                raise ProofError("the block is not what its CID names", at=at, size=len(block))
        else:
            (raw,), block = split(data[start:end])
        raws.append(raw)
        blocks.append(block)
        at = end
    return Archive(roots, dict(zip(cids.trusted(raws), blocks, strict=True)))


def write(roots: Iterable[CID], blocks: Iterable[Block]) -> Iterator[bytes]:
    """The pieces of a CAR, header first; each block once. The blocks are taken at their word, not hashed again."""
    header = dagcbor.encode({"roots": list(roots), "version": 1})
    yield varint.encode(len(header)) + header
    seen: set[CID] = set()
    for cid, data in blocks:
        if cid not in seen:
            seen.add(cid)
            yield varint.encode(len(cid.raw) + len(data)) + cid.raw + data


def dump(roots: Iterable[CID], blocks: Iterable[Block]) -> bytes:
    """A whole CAR in memory."""
    return b"".join(write(roots, blocks))


def _slice(data: bytes, at: int, limit: int) -> tuple[bytes, int]:
    start, end = _bounds(data, at, limit)
    return data[start:end], end


def _bounds(data: bytes, at: int, limit: int) -> tuple[int, int]:
    """Where the section at an offset begins and ends."""
    first, start = data[at], at + 2
    if first > 0x7F and start <= len(data) and 0 < (second := data[at + 1]) < 0x80:  # most sections: two bytes
        length = first & 0x7F | second << 7
    else:
        length, start = varint.decode(data, at)
    end = start + length
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
    found = tuple(root for root in roots if isinstance(root, CID))
    if len(found) != len(roots):
        raise FormatError("CAR: a root that is not a link")
    return found
