"""Readers of published formats that only tests need: written apart from the product, they check what it writes."""

from collections.abc import Iterable, Iterator
from io import BytesIO
from typing import Protocol

from holdproof.crypto import car, merkle, varint
from holdproof.crypto.car import DEFAULT_LIMITS, Block, Limits
from holdproof.crypto.tiles import WIDTH, Bundle, Tile, tile_of, tiles_of
from holdproof.errors import FormatError


def legacy_sigma(evaluation_id: str, h_delta: str) -> str:
    """Return the simulated signature that an older Green Agent wrote for these fields."""
    return f"SIG_GREEN_{evaluation_id}_{h_delta[:8]}"


def decode_bundle(data: bytes, width: int = WIDTH) -> tuple[bytes, ...]:
    """Return the entries of a bundle that must hold exactly `width` of them."""
    entries = []
    at = 0
    while at < len(data):
        end = at + 2 + int.from_bytes(data[at : at + 2], "big")
        if at + 2 > len(data) or end > len(data):
            raise FormatError("entry bundle: cut short", offset=at, length=len(data))
        entries.append(data[at + 2 : end])
        at = end
    if len(entries) != width:
        raise FormatError("entry bundle: another number of entries", count=len(entries), width=width)
    return tuple(entries)


def bundles_of(size: int) -> Iterator[Bundle]:
    """Yield every entry bundle of the tree of `size` leaves."""
    return (Bundle(tile.index, tile.width) for tile in tiles_of(size) if tile.level == 0)


def tiles_for_inclusion(index: int, size: int) -> tuple[Tile, ...]:
    """Return the tiles an inclusion proof needs, to be fetched at once."""
    return _tiles_for(merkle.inclusion_nodes(index, size), size)


def tiles_for_consistency(old: int, new: int) -> tuple[Tile, ...]:
    """Return the tiles a consistency proof needs, to be fetched at once."""
    return _tiles_for(merkle.consistency_nodes(old, new), new)


def _tiles_for(nodes: Iterable[merkle.Node], size: int) -> tuple[Tile, ...]:
    return tuple(dict.fromkeys(tile_of(level, index, size) for level, index in nodes))


class Source(Protocol):
    """A binary file, open for reading."""

    def read(self, size: int, /) -> bytes:
        """Return at most `size` bytes, none only at the end."""


class CarReader:
    """Reads a CAR front to back: the roots at once, then each block as it is asked for."""

    def __init__(self, source: bytes | Source, limits: Limits = DEFAULT_LIMITS) -> None:
        self._source: Source = BytesIO(source) if isinstance(source, bytes) else source
        self._limits = limits
        self._position = 0
        header = self._section(limits.header)
        if header is None:
            raise FormatError("CAR: empty")
        self.roots = car._parse_header(header)

    def __iter__(self) -> Iterator[Block]:
        """Yield the verified blocks that are left, in their order."""
        while (section := self._section(self._limits.section)) is not None:
            yield car.split(section)

    def _section(self, limit: int) -> bytes | None:
        """Return the next section without its length; None at the end of the file."""
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
