"""A second, plain reader of CAR files: section by section, to compare the fast loader with."""

from collections.abc import Iterator
from io import BytesIO
from typing import Protocol

from holdproof.crypto import car, varint
from holdproof.crypto import cid as cids
from holdproof.crypto.car import DEFAULT_LIMITS, Block, Limits
from holdproof.errors import FormatError


class BinaryReader(Protocol):
    """A binary file, open for reading."""

    def read(self, size: int, /) -> bytes:
        """Return at most `size` bytes, none only at the end."""


class Reader:
    """Read a CAR front to back: the roots at once, then each block on demand."""

    def __init__(self, source: bytes | BinaryReader, limits: Limits = DEFAULT_LIMITS) -> None:
        self._source: BinaryReader = BytesIO(source) if isinstance(source, bytes) else source
        self._limits = limits
        self._position = 0
        header = self._section(limits.header)
        if header is None:
            raise FormatError("CAR: empty")
        self.roots = car.load(varint.encode(len(header)) + header).roots

    def __iter__(self) -> Iterator[Block]:
        """Yield the remaining blocks, verified, in file order."""
        while (section := self._section(self._limits.section)) is not None:
            cid, end = cids.parse_at(section, 0)
            cids.verify(cid, section[end:])
            yield cid, section[end:]

    def _section(self, limit: int) -> bytes | None:
        """Return the next section without its length; None at the end of the file."""
        length = self._length()
        if length is None:
            return None
        if length > limit:
            raise FormatError("CAR: a section over the limit", at=self._position, size=length, limit=limit)
        return self._read(length)

    def _length(self) -> int | None:
        prefix = self._source.read(1)
        if not prefix:
            return None
        self._count(1)
        while prefix[-1] > 0x7F and len(prefix) < varint.MAX_BYTES:
            prefix += self._read(1)
        length, _ = varint.decode(prefix)
        if length == 0:
            raise FormatError("CAR: a section of no length", at=self._position)
        return length

    def _read(self, size: int) -> bytes:
        """Return exactly `size` bytes; FormatError where the file ends first."""
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
