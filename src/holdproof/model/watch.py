"""What a store is about, at one moment."""

from dataclasses import dataclass, field, replace

from holdproof.model.coordination import Escalation
from holdproof.model.flows import Flow
from holdproof.model.value import Value
from holdproof.model.verify import Locked


@dataclass(frozen=True, slots=True)
class Frame(Value):
    """What is under way, who is asked, where the log stands, and what is wrong."""

    at: str
    origin: str
    size: int
    root: str
    pending: int
    """Leaves that are not under a signed head yet."""
    locked: Locked | None
    degraded: tuple[str, ...]
    counts: dict[str, int] = field(default_factory=dict)
    """How many flows have each status that is no end."""
    flows: tuple[Flow, ...] = ()
    """Those that changed last, of the flows under way."""
    ended: tuple[Flow, ...] = ()
    """Those of the newest flows that have ended."""
    escalations: tuple[Escalation, ...] = ()

    def same(self, other: "Frame | None") -> bool:
        """Whether nothing but the time has changed."""
        return other is not None and replace(self, at="") == replace(other, at="")
