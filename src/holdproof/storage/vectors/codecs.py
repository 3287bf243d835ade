"""How a direction is kept in memory, and how near it is to another at most and at least.

A codec never answers for a distance, only for an interval that holds it; what is reported is reckoned from the rows.
So a coarse codec costs a few more rows to look at, never a wrong answer:

    |q·x - q'·x'| <= |q|·|x - x'| + |q - q'|·|x'|      (Cauchy-Schwarz; x' is what is kept of x, q' of q)
"""

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Rows = NDArray[np.intp]
Arrays = Mapping[str, NDArray[Any]]

_ROUNDING: Final = 2.0**-22


class Codec(Protocol):
    """What a matrix keeps of each row, and how it compares."""

    name: str

    def layout(self, dimensions: int) -> dict[str, tuple[str, int]]:
        """The arrays kept: type and width by name; a width of 0 is one number a row."""
        ...

    def encode(self, units: Floats) -> dict[str, NDArray[Any]]:
        """What is kept of rows of length one."""
        ...

    def scan(self, kept: Arrays, unit: Floats) -> tuple[Floats, Floats | float]:
        """The cosine of every row, and how far off each may be."""
        ...

    def look(self, kept: Arrays, unit: Floats, rows: Rows) -> tuple[Floats, Floats | float]:
        """The same for some rows only, as closely as the codec can."""
        ...

    def decode(self, kept: Arrays, rows: Rows) -> Floats:
        """What is kept of some rows, as numbers."""
        ...


class Plain:
    """The numbers themselves: one product of matrix and vector."""

    name = "plain"

    def layout(self, dimensions: int) -> dict[str, tuple[str, int]]:
        """See Codec."""
        return {"values": ("<f4", dimensions)}

    def encode(self, units: Floats) -> dict[str, NDArray[Any]]:
        """See Codec."""
        return {"values": units}

    def scan(self, kept: Arrays, unit: Floats) -> tuple[Floats, Floats | float]:
        """See Codec."""
        return kept["values"] @ unit, len(unit) * _ROUNDING

    def look(self, kept: Arrays, unit: Floats, rows: Rows) -> tuple[Floats, Floats | float]:
        """See Codec."""
        return kept["values"][rows] @ unit, len(unit) * _ROUNDING

    def decode(self, kept: Arrays, rows: Rows) -> Floats:
        """See Codec."""
        return kept["values"][rows]


class Int8:
    """Whole numbers from -127 to 127, a scale and what that left out; a quarter of the memory, scanned by numkong."""

    name = "int8"

    def layout(self, dimensions: int) -> dict[str, tuple[str, int]]:
        """See Codec."""
        return {"values": ("i1", dimensions), "scale": ("<f4", 0), "error": ("<f4", 0)}

    def encode(self, units: Floats) -> dict[str, NDArray[Any]]:
        """See Codec."""
        scale = np.maximum(np.abs(units).max(axis=1), np.finfo(np.float32).tiny) / np.float32(127)
        values = np.rint(units / scale[:, None]).astype(np.int8)
        error = np.linalg.norm(units - values * scale[:, None], axis=1)
        return {"values": values, "scale": scale, "error": error + np.float32(units.shape[1] * _ROUNDING)}

    def scan(self, kept: Arrays, unit: Floats) -> tuple[Floats, Floats | float]:
        """See Codec."""
        from numkong import cdist  # noqa: PLC0415 (an optional extra)

        mine = self.encode(unit[None])
        near = np.asarray(cdist(mine["values"], kept["values"], "dot", out_dtype="float32"))[0]
        near *= kept["scale"]
        near *= mine["scale"][0]
        # What is kept of a row is longer than one by its error at most.
        return near, kept["error"] * (1 + mine["error"][0]) + mine["error"][0]

    def look(self, kept: Arrays, unit: Floats, rows: Rows) -> tuple[Floats, Floats | float]:
        """See Codec."""
        return (kept["values"][rows].astype(np.float32) @ unit) * kept["scale"][rows], kept["error"][rows]

    def decode(self, kept: Arrays, rows: Rows) -> Floats:
        """See Codec."""
        return kept["values"][rows] * kept["scale"][rows][:, None]


def best() -> Codec:
    """The faster codec where its part is installed; both give the same answers."""
    return Int8() if find_spec("numkong") else Plain()


class Signs:
    """One bit a number, beside a codec: which side of zero it is on. How many differ says roughly how near two are."""

    name = "signs"

    def layout(self, dimensions: int) -> dict[str, tuple[str, int]]:
        """One array, whole words a row."""
        return {self.name: ("<u8", -(-dimensions // 64))}

    def encode(self, units: Floats) -> dict[str, NDArray[Any]]:
        """The bits, padded with zeros."""
        bits = np.packbits(units > 0, axis=1)
        padded = np.zeros((len(units), -(-units.shape[1] // 64) * 8), np.uint8)
        padded[:, : bits.shape[1]] = bits
        return {self.name: padded.view("<u8")}
