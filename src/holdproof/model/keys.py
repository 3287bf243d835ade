"""Keys as the keyring holds them: public, by role, valid by position in the log."""

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from holdproof.model.value import Value

Role = Literal["judge", "memory", "log", "root", "log-pq"]
Action = Literal["introduce", "rotate", "admit", "readmit", "revoke"]
Successors = Literal["readmit", "revoke"]
"""What becomes of keys that a revocation would leave without anybody's word."""


@dataclass(frozen=True, slots=True)
class Key(Value):
    """A public key of the keyring; `statement` holds one signed statement a line, the oldest first."""

    keyid: str
    role: Role
    alg: str
    public: str
    statement: str
    revoked_from: int | None
    added_at: str
    leaf_id: str
    leaf_ver: int
    index: int | None
    """Where its first leaf stands in the log; None while that is pending."""

    def trusted_at(self, index: int | None) -> bool:
        """Whether what the key signed at that index of the log counts; None is what is not in the log yet."""
        # By position, not by time: a stolen key can sign any date, but cannot enter an earlier place of the log.
        return self.revoked_from is None or (index is not None and index < self.revoked_from)

    def to_dict(self) -> dict[str, Any]:
        """The key as every client prints it."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Root:
    """A root key that was just made: its recovery is shown once, and never stored by Holdproof."""

    keyid: str
    recovery: str = field(repr=False)
    on_disk: bool
    """Whether the private key stays in the key folder; if not, only the recovery brings it back."""

    def to_dict(self) -> dict[str, Any]:
        """The outcome as every client prints it."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Signed:
    """A document and what it is."""

    text: str
    kind: str
    signed_by: str
    """The role of the key that signed it; empty where nobody did yet."""

    def to_dict(self) -> dict[str, Any]:
        """The document as every client prints it."""
        return asdict(self)
