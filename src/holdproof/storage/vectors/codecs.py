"""How directions are encoded in memory, and bounds for the cosine of two of them.

A codec gives an interval that contains the cosine; the reported distance is computed from the rows. So a coarse codec
costs a few more rows to read, never a wrong answer:

    |q·x - q'·x'| <= |q|·|x - x'| + |q - q'|·|x'|      (Cauchy-Schwarz; x' is the encoded x, q' the encoded q)
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
"""An upper bound for the float32 rounding error of one product and one sum."""


class Codec(Protocol):
    """How a matrix encodes each row, and how it compares rows."""

    name: str

    def layout(self, dimensions: int) -> dict[str, tuple[str, int]]:
        """The arrays of the encoding: type and width by name; a width of 0 is one number a row."""
        ...

    def encode(self, units: Floats) -> dict[str, NDArray[Any]]:
        """Encode rows of length one."""
        ...

    def scan(self, arrays: Arrays, unit: Floats) -> tuple[Floats, Floats | float]:
        """The cosine of every row, and how far off each may be."""
        ...

    def scan_rows(self, arrays: Arrays, unit: Floats, rows: Rows) -> tuple[Floats, Floats | float]:
        """The same for some rows only, as precisely as the codec can."""
        ...

    def decode(self, arrays: Arrays, rows: Rows) -> Floats:
        """Decode some rows."""
        ...


class PlainCodec:
    """The numbers themselves: one product of matrix and vector."""

    name = "plain"

    def layout(self, dimensions: int) -> dict[str, tuple[str, int]]:
        """See Codec."""
        return {"values": ("<f4", dimensions)}

    def encode(self, units: Floats) -> dict[str, NDArray[Any]]:
        """See Codec."""
        return {"values": units}

    def scan(self, arrays: Arrays, unit: Floats) -> tuple[Floats, Floats | float]:
        """See Codec."""
        return arrays["values"] @ unit, len(unit) * _ROUNDING

    def scan_rows(self, arrays: Arrays, unit: Floats, rows: Rows) -> tuple[Floats, Floats | float]:
        """See Codec."""
        return arrays["values"][rows] @ unit, len(unit) * _ROUNDING

    def decode(self, arrays: Arrays, rows: Rows) -> Floats:
        """See Codec."""
        return arrays["values"][rows]


class Int8:
    """Integers from -127 to 127, a scale and the rounding error: a quarter of the memory, scanned by numkong."""

    name = "int8"

    def layout(self, dimensions: int) -> dict[str, tuple[str, int]]:
        """See Codec."""
        return {"values": ("i1", dimensions), "scale": ("<f4", 0), "error": ("<f4", 0)}

    def encode(self, units: Floats) -> dict[str, NDArray[Any]]:
        """See Codec."""
        # A row of tiny numbers must not divide by zero.
        scale = np.maximum(np.abs(units).max(axis=1), np.finfo(np.float32).tiny) / np.float32(127)
        values = np.rint(units / scale[:, None]).astype(np.int8)
        error = np.linalg.norm(units - values * scale[:, None], axis=1)
        return {"values": values, "scale": scale, "error": error + np.float32(units.shape[1] * _ROUNDING)}

    def scan(self, arrays: Arrays, unit: Floats) -> tuple[Floats, Floats | float]:
        """See Codec."""
        from numkong import cdist  # noqa: PLC0415 (an optional extra)

        query = self.encode(unit[None])
        [cosines] = np.asarray(cdist(query["values"], arrays["values"], "dot", out_dtype="float32"))
        cosines *= arrays["scale"]
        cosines *= query["scale"][0]
        # An encoded row is longer than one by its error at most.
        return cosines, arrays["error"] * (1 + query["error"][0]) + query["error"][0]

    def scan_rows(self, arrays: Arrays, unit: Floats, rows: Rows) -> tuple[Floats, Floats | float]:
        """See Codec."""
        return (arrays["values"][rows].astype(np.float32) @ unit) * arrays["scale"][rows], arrays["error"][rows]

    def decode(self, arrays: Arrays, rows: Rows) -> Floats:
        """See Codec."""
        return arrays["values"][rows] * arrays["scale"][rows][:, None]


def best() -> Codec:
    """The faster codec if numkong is installed; both lead to the same results."""
    return Int8() if find_spec("numkong") else PlainCodec()


class Signs:
    """One bit a number, beside a codec: its sign. The number of differing signs says roughly how near two rows are."""

    name = "signs"

    def layout(self, dimensions: int) -> dict[str, tuple[str, int]]:
        """One array; each row is padded to 64-bit words."""
        return {self.name: ("<u8", -(-dimensions // 64))}

    def encode(self, units: Floats) -> dict[str, NDArray[Any]]:
        """The sign bits, padded with zeros."""
        bits = np.packbits(units > 0, axis=1)
        padded = np.zeros((len(units), -(-units.shape[1] // 64) * 8), np.uint8)
        padded[:, : bits.shape[1]] = bits
        return {self.name: padded.view("<u8")}
