"""Damage to a file, from a seed: a bit, a byte, a sector of zeros, a cut."""

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Final

HOWS: Final = ("bit", "byte", "sector", "cut")
_WEIGHTS: Final = (6, 2, 1, 1)
_SECTOR: Final = 512


@dataclass(frozen=True, slots=True)
class Damage:
    """What is done, and where."""

    how: str
    at: int
    value: int

    def done_to(self, data: bytes) -> bytes:
        """The bytes as they are afterwards."""
        if self.how == "cut":
            return data[: self.at]
        if self.how == "sector":
            start = self.at // _SECTOR * _SECTOR
            return data[:start] + bytes(min(_SECTOR, len(data) - start)) + data[start + _SECTOR :]
        changed = data[self.at] ^ (1 << self.value % 8 if self.how == "bit" else self.value)
        return data[: self.at] + bytes([changed]) + data[self.at + 1 :]

    def __str__(self) -> str:
        return f"{self.how} at {self.at}"


def drawn(dice: random.Random, data: bytes) -> Damage:
    """Some damage to a file that is not empty, after which it is another."""
    while True:
        [how] = dice.choices(HOWS, _WEIGHTS)
        what = Damage(how, dice.randrange(len(data)), dice.randrange(1, 256))
        if how != "sector" or what.done_to(data) != data:
            return what


def put(path: Path, data: bytes) -> None:
    """Write the bytes with the mode the file had."""
    mode = path.stat().st_mode if path.exists() else 0o600
    path.unlink(missing_ok=True)
    path.write_bytes(data)
    path.chmod(mode)
