"""Skills: files that agents act by, as they were approved, and what was found of them."""

from base64 import b64encode
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from holdproof.model.value import Value


class SkillState(StrEnum):
    """What may be done with a skill."""

    APPROVED = "APPROVED"
    """It may be loaded, if the file is still the approved one."""
    LOCKED = "LOCKED"
    """Something else than the approved file was found: it is not loaded before it is approved again."""
    REVOKED = "REVOKED"
    """Its approval was taken back."""
    UNAPPROVED = "UNAPPROVED"
    """Nobody ever approved it: it is not loaded, and nothing is locked."""
    INVALID = "INVALID"
    """Its approval does not hold: it was not signed, or not with a key that counts."""
    MISSING = "MISSING"
    """It is approved, and there is no file, or none that can be read."""


@dataclass(frozen=True, slots=True)
class Block(Value):
    """A part of a skill file: a headline, a code block or the text between; all of them together are the file."""

    kind: str
    title: str
    line: int
    size: int
    hash: str


@dataclass(frozen=True, slots=True)
class Fingerprint(Value):
    """What a file is by its blocks: `rules` say how it was divided, `root` is the Merkle root over all of them."""

    rules: str
    root: str
    size: int
    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True)
class Approval(Value):
    """What somebody said of a skill, signed: that a file with this root may be loaded, or (`revoke`) none."""

    id: str
    path: str
    n: int
    """The number of what was said of this path, from 1 on; the newest counts."""
    action: str
    place: str
    """Where the file lies, without links."""
    rules: str
    root: str
    size: int
    approved_by: str
    comment: str
    approved_at: str
    keyid: str
    """The key that signed it."""
    ns: str


@dataclass(frozen=True, slots=True)
class SkillLockdown(Value):
    """Why a skill is not loaded: what was found, and the blocks that are not as they were approved."""

    id: str
    path: str
    against: int
    """The number of the approval it was found against; a later one ends the lockdown."""
    reason: str
    changes: tuple[str, ...]
    root: str | None
    """The root of what was found, if a file was read."""
    locked_at: str
    ns: str


@dataclass(frozen=True, slots=True)
class Skill(Value):
    """A skill: its state, what was said of it last, and the lockdown that is in force."""

    path: str
    state: SkillState
    approval: Approval | None = None
    lockdown: SkillLockdown | None = None
    flaw: str = ""
    """What is wrong with it beyond what is recorded: why its approval does not hold, or what was found just now."""


@dataclass(frozen=True, slots=True)
class LoadedSkill(Value):
    """A skill as it was read, hashed and found to be the approved one: use these bytes, not the file."""

    path: str
    data: bytes
    approval: Approval

    @property
    def text(self) -> str:
        """The bytes as text; UnicodeDecodeError where they are none."""
        return self.data.decode()

    def to_dict(self) -> dict[str, Any]:
        """The skill as JSON shows it."""
        return {
            "path": self.path,
            "text": self.data.decode(errors="replace"),
            "data": b64encode(self.data).decode(),
            "approval": self.approval.to_dict(),
        }
