"""Witnesses: who is asked to cosign the log's heads, and what came of it."""

from dataclasses import dataclass, field

from holdproof.model.value import Value


@dataclass(frozen=True, slots=True)
class Witness(Value):
    """A witness of this log, and the newest head that it cosigned."""

    url: str
    name: str
    """Its name, as it stands in its cosignatures."""
    key: str
    """The verifier key that its answers are checked with."""
    locks: bool
    """Whether its word that the log is forked or rolled back locks the store."""
    added_at: str
    removed_at: str | None = None
    size: int | None = None
    """The size of the newest head that it cosigned; None if it never did."""
    cosigned_at: str | None = None
    dispute: str | None = None
    """What it says against this log, if it does."""


@dataclass(frozen=True, slots=True)
class CosignedHead(Value):
    """A head that a witness cosigned."""

    url: str
    witness: str
    origin: str
    size: int
    head: str


@dataclass(frozen=True, slots=True)
class PolicyFile(Value):
    """A tlog-policy file: this log, its witnesses, and how many of them have to cosign a head."""

    text: str


@dataclass(frozen=True, slots=True)
class WitnessedHead(Value):
    """A head that satisfies a tlog-policy: who cosigned it, and where the log stood."""

    origin: str
    size: int
    quorum: str
    """The witness or the group of the policy that had to cosign."""
    witnesses: list[str] = field(default_factory=list)
    """Those that did, by their names in the policy."""
    head: str = ""
    """The head as a signed note, with the cosignatures."""
