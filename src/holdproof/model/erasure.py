"""What was erased."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from holdproof.model.value import Value


@dataclass(frozen=True, slots=True)
class Erasure(Value):
    """One erasure: of a subject (`target` is its handle) or of a record (`target` is its table).

    `services` says how many of their records went with a subject, which is under no leaf. `remains` names what the
    erasure did not reach: older states kept aside on this disk, bytes that others have too. `sealed` counts what can be
    read no longer and stands as it is, because proofs need its bytes: versions of `objects`, `values`, and `flows` with
    what they recorded. Of these, the ones that had not ended are not run again.
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
            **({"services": dict(self.services)} if self.services else {}),
            **({"sealed": dict(self.sealed)} if self.sealed else {}),
            **({"remains": list(self.remains)} if self.remains else {}),
        }
