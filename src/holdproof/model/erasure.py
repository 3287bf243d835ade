"""What was erased."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from holdproof.model.value import Value


@dataclass(frozen=True, slots=True)
class Derived(Value):
    """Something that used a subject's content and does not carry the subject's label.

    `kind` is flows (a whole tree, by its root), objects, notes, threads, transcripts, or what shows such an object
    still: snapshots, images. `via` says what links it, `reason` why it is still there; None where it was erased.
    """

    kind: str
    id: str
    ns: str
    via: str
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class ErasureCertificate(Value):
    """The certificate of an erasure: a signed in-toto statement, with the proof that the log has its entry."""

    id: str
    text: str


@dataclass(frozen=True, slots=True)
class Erasure(Value):
    """One erasure: of a subject (`target` is its handle) or of a record (`target` is its table).

    `services` says how many of their records went with a subject, which is under no leaf. `remains` names what the
    erasure did not reach: older states kept aside on this disk, bytes that others have too. `sealed` counts what can be
    read no longer and stands as it is, because proofs need its bytes: versions of `objects`, `values`, and `flows` with
    what they recorded. Of these, the ones that had not ended are not run again. `derived` is what used the subject's
    content and is not labelled with it, erased or left by `mode`. With `dry_run` nothing was erased, and `id` is empty.
    """

    id: str
    kind: str
    target: str
    who: str
    count: int
    leaf_ids: tuple[str, ...]
    erased_at: str
    files: tuple[str, ...] = ()
    remains: tuple[str, ...] = ()
    services: Mapping[str, int] = field(default_factory=dict)
    sealed: dict[str, int] = field(default_factory=dict)
    derived: tuple[Derived, ...] = ()
    mode: str = "list"
    dry_run: bool = False

    def to_dict(self) -> dict[str, Any]:
        """The erasure as every client prints it: names of files went with them."""
        return {
            "id": self.id,
            "kind": self.kind,
            "target": self.target,
            "who": self.who,
            "count": self.count,
            "leaf_ids": list(self.leaf_ids),
            "erased_at": self.erased_at,
            **({"mode": self.mode} if self.kind == "subject" else {}),
            **({"derived": [each.to_dict() for each in self.derived]} if self.derived else {}),
            **({"dry_run": True} if self.dry_run else {}),
            **({"services": dict(self.services)} if self.services else {}),
            **({"sealed": dict(self.sealed)} if self.sealed else {}),
            **({"remains": list(self.remains)} if self.remains else {}),
        }
