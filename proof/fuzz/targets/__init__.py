"""What is fuzzed, by name."""

from collections.abc import Mapping
from typing import Final

from proof.fuzz.targets import doors, evidence, formats, memory
from proof.fuzz.targets.target import Target

TARGETS: Final[Mapping[str, Target]] = {
    each.name: each for each in (*formats.TARGETS, *evidence.TARGETS, *memory.TARGETS, *doors.TARGETS)
}

__all__ = ["TARGETS", "Target"]
