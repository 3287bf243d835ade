"""What was erased."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Erasure:
    """One erasure: of a subject (`target` is its handle) or of a record (`target` is its table).

    `remains` names older states kept aside on this disk, which the erasure did not reach.
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

    def to_dict(self) -> dict[str, Any]:
        """The erasure as every face prints it: names of files went with them."""
        return {
            "id": self.id,
            "kind": self.kind,
            "target": self.target,
            "who": self.who,
            "count": self.count,
            "leaf_ids": list(self.leaf_ids),
            "erased_at": self.erased_at,
            **({"remains": list(self.remains)} if self.remains else {}),
        }
