"""What verification says of a record or a log: one word each, with a stable exit code."""

from collections.abc import Iterable
from enum import Enum


class Verdict(Enum):
    """The outcome of a check, mildest first; `exit_code` is what a command ends with."""

    VALID = ("VALID", 0)
    PENDING = ("PENDING", 0)
    ERASED = ("ERASED", 0)
    UNSIGNED = ("UNSIGNED", 10)
    UNLOGGED = ("UNLOGGED", 11)
    REVOKED_KEY = ("REVOKED_KEY", 12)
    FOREIGN_WRITER = ("FOREIGN_WRITER", 13)
    INCOMPLETE = ("INCOMPLETE", 14)
    MISSING_HERE = ("MISSING_HERE", 15)
    MISDATED = ("MISDATED", 16)
    TAMPERED = ("TAMPERED", 20)
    ROLLED_BACK = ("ROLLED_BACK", 21)
    FORKED = ("FORKED", 22)

    @property
    def word(self) -> str:
        """The verdict as every client prints it."""
        return self.value[0]

    @property
    def exit_code(self) -> int:
        """The exit code of a command that found nothing worse."""
        return self.value[1]

    @property
    def sound(self) -> bool:
        """Whether nothing is wrong."""
        return self.exit_code == 0

    @property
    def locks(self) -> bool:
        """Whether it is grave enough for a lockdown: tampered or worse."""
        return self.exit_code >= 20

    def __str__(self) -> str:
        return self.word


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """The gravest of several; VALID of none."""
    order = list(Verdict)
    return max(verdicts, key=order.index, default=Verdict.VALID)
